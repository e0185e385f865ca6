package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
)

// document opens the canonical bytes of the emit document: the file without the line break at its end.
func (r result) document() (io.ReadCloser, error) {
	f, err := os.Open(r.path)
	if err != nil {
		return nil, codes.New(codes.OutputUnwritable, "the document is gone: %w", checkpoint.Bare(err))
	}
	return struct {
		io.Reader
		io.Closer
	}{io.LimitReader(f, r.size), f}, nil
}

// digest is the name that the document will have as a blob.
func digest(ctx context.Context, r result) (string, error) {
	in, err := r.document()
	if err != nil {
		return "", err
	}
	defer in.Close()
	h := sha256.New()
	buf := make([]byte, 64<<10)
	for {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		n, err := in.Read(buf)
		h.Write(buf[:n])
		if err == io.EOF {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", codes.New(codes.OutputUnwritable, "the document cannot be read back: %w", checkpoint.Bare(err))
		}
	}
}

// putBlob keeps the document. It is durable when it returns.
func (w *worker) putBlob(ctx context.Context, r result, name string) error {
	in, err := r.document()
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := w.Blobs.Put(ctx, in)
	if err == nil && info.Name != name {
		err = codes.New(codes.Internal, "the document had the hash %s and was kept under %s", name, info.Name)
	}
	return err
}
