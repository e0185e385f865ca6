package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	"github.com/weirstream/weir/codes"
)

// piece is how much is read ahead.
const piece = 64 << 10

// Verify makes the reader that Get returns out of the bytes that a store holds under a name: it reads one piece ahead, and gives the last one
// away only when the hash of all is the name. ctx ends the reading. Closing it closes src.
func Verify(ctx context.Context, src io.ReadCloser, name string, size int64) io.ReadCloser {
	return &verifying{ctx: ctx, src: src, name: name, size: size, hash: sha256.New()}
}

type verifying struct {
	ctx  context.Context
	src  io.ReadCloser
	name string
	size int64
	hash hash.Hash
	// out is what may be given away, ahead what was read after it and waits for the next piece or the verdict.
	out, ahead []byte
	bufs       [2][]byte
	turn       int
	read       int64
	end        error // once src has ended: io.EOF when the bytes are good
}

// Read gives verified order, see Verify.
func (v *verifying) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(v.out) == 0 {
		if v.end != nil {
			return 0, v.end
		}
		v.advance()
	}
	n := copy(p, v.out)
	v.out = v.out[n:]
	return n, nil
}

// advance reads the next piece; what was ahead may then be given away.
func (v *verifying) advance() {
	if err := v.ctx.Err(); err != nil {
		v.end = err
		return
	}
	if v.bufs[v.turn] == nil {
		v.bufs[v.turn] = make([]byte, piece)
	}
	buf := v.bufs[v.turn]
	v.turn = 1 - v.turn
	n, err := io.ReadFull(v.src, buf)
	v.hash.Write(buf[:n])
	v.read += int64(n)
	switch {
	case err == nil && v.read <= v.size:
		v.out, v.ahead = v.ahead, buf
		return
	case err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		v.end = codes.New(codes.StoreUnavailable, "blob %s cannot be read: %w", v.name, Bare(err))
		return
	}
	if got := hex.EncodeToString(v.hash.Sum(nil)); v.read != v.size || got != v.name {
		v.end = codes.New(codes.BlobCorrupt, "blob %s is damaged: its %d bytes have the hash %s", v.name, v.read, got)
		return
	}
	v.end = io.EOF
	// The buffer that out was given from is free: the last pieces are put together in one.
	v.out = append(append(make([]byte, 0, len(v.ahead)+n), v.ahead...), buf[:n]...)
}

// Close closes the store's reader. What is read after it is an error.
func (v *verifying) Close() error {
	v.out = nil
	if v.end == nil || errors.Is(v.end, io.EOF) {
		v.end = errClosed
	}
	return v.src.Close()
}

var errClosed = errors.New("the blob is closed")
