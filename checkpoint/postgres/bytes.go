package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
)

const (
	// partSize is the size of every part but the last; it is part of the format.
	partSize = 4 << 20
	// patience is how long the reader of a large Put may take for one part. It holds no lock that anybody waits for.
	patience = 10 * time.Minute

	insertPart = `INSERT INTO weir.blob_parts (blob, part, data) VALUES ($1, $2, $3)`
	// selectPart finds a part of the bytes that stand under a name; data is NULL when it is not there.
	selectPart = `SELECT b.blob, b.size, p.data FROM weir.blobs b LEFT JOIN weir.blob_parts p ON p.blob = b.blob AND p.part = $2 WHERE b.name = $1 AND b.aside IS NULL`
	bringBack  = `SELECT weir.bring_back(ticket) FROM weir.blobs WHERE name = $1 AND aside IS NOT NULL ORDER BY ticket DESC LIMIT 1`
)

// Put implements checkpoint.Blobs. A blob of up to 4 MiB is one statement; a larger one is a transaction that holds about 8 MiB in memory.
func (s *Store) Put(ctx context.Context, r io.Reader) (checkpoint.Info, error) {
	in := &input{ctx: ctx, r: r, hash: sha256.New()}
	first, err := in.part()
	if err != nil {
		return checkpoint.Info{}, err
	}
	var next []byte
	if len(first) == partSize {
		if next, err = in.part(); err != nil {
			return checkpoint.Info{}, err
		}
	}
	var modified time.Time
	if len(next) == 0 {
		err = s.db.Write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, `SELECT weir.put_blob($1, $2)`, in.hash.Sum(nil), first).Scan(&modified)
		})
	} else {
		err = s.db.Write(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			modified, err = s.putParts(ctx, conn, in, first, next)
			return err
		})
	}
	if in.err != nil {
		return checkpoint.Info{}, in.err
	}
	if err != nil {
		return checkpoint.Info{}, s.db.Fail(ctx, "write a blob", err)
	}
	return checkpoint.Info{Name: hex.EncodeToString(in.hash.Sum(nil)), Size: in.size, Modified: modified}, nil
}

// putParts writes a blob of several parts, as they are read, in one transaction. Its errors have codes, so that it is not tried again: what was
// read cannot be read again. The name, which others may wait for, is locked in the flush that commits.
func (s *Store) putParts(ctx context.Context, conn *pgx.Conn, in *input, first, next []byte) (modified time.Time, err error) {
	defer func() {
		if err != nil && !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
			_, _ = conn.Exec(ctx, "ROLLBACK") // if it fails, the connection is gone, and the transaction with it
		}
		err = s.db.Fail(ctx, "write a blob", err)
	}()
	var blob int64
	begin, end := &pgx.Batch{}, &pgx.Batch{}
	begin.Queue("BEGIN")
	begin.Queue(`SELECT nextval('weir.blob_numbers'), set_config('idle_in_transaction_session_timeout', $1, true)`, strconv.FormatInt(patience.Milliseconds(), 10)).
		QueryRow(func(row pgx.Row) error { return row.Scan(&blob, nil) })
	if err := conn.SendBatch(ctx, begin).Close(); err != nil {
		return modified, err
	}
	for part := 0; len(first) > 0; part++ {
		if _, err := conn.Exec(ctx, insertPart, blob, part, first); err != nil {
			return modified, err
		}
		first, next = next, nil
		if len(first) == partSize {
			if next, err = in.part(); err != nil {
				return modified, err
			}
		}
	}
	end.Queue(`SELECT weir.name_blob($1, $2, $3)`, blob, in.hash.Sum(nil), in.size).QueryRow(func(row pgx.Row) error { return row.Scan(&modified) })
	end.Queue("COMMIT")
	err = conn.SendBatch(ctx, end).Close()
	return modified, err
}

// input cuts what is read into parts.
type input struct {
	ctx  context.Context
	r    io.Reader
	hash interface {
		io.Writer
		Sum(b []byte) []byte
	}
	size int64
	// err is that of r or of the context, which goes back as it is.
	err error
}

// part reads the next part: partSize bytes, or less at the end.
func (i *input) part() ([]byte, error) {
	var buf bytes.Buffer
	_, err := buf.ReadFrom(io.LimitReader(under{i.ctx, i.r}, partSize))
	if err != nil {
		i.err = err
		return nil, err
	}
	_, _ = i.hash.Write(buf.Bytes()) // a hash takes everything
	i.size += int64(buf.Len())
	if buf.Len() == 0 {
		return []byte{}, nil // nil would become NULL
	}
	return buf.Bytes(), nil
}

// under is a reader that ends with a context.
type under struct {
	ctx context.Context
	r   io.Reader
}

// Read reads under the context.
func (u under) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, fmt.Errorf("a blob is written: %w", err)
	}
	return u.r.Read(p)
}

// Get implements checkpoint.Blobs. The reader holds one part, and no connection between two of them.
func (s *Store) Get(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	k, err := key(name)
	if err != nil {
		return nil, 0, err
	}
	p := &parts{ctx: ctx, s: s, name: name, key: k}
	if err := p.find(); err != nil {
		return nil, 0, err
	}
	return checkpoint.Verify(ctx, p, name, p.size), p.size, nil
}

// parts reads a blob part by part.
type parts struct {
	ctx  context.Context
	s    *Store
	name string
	key  []byte
	// blob is the number of the bytes that are read, size their size.
	blob, size int64
	// next is the number of the next part, data what is left of the one before.
	next int
	data []byte
}

// find reads the next part of what stands under the name; what is set aside is brought back first.
func (p *parts) find() error {
	const tries = 3 // it may be set aside again meanwhile
	for range tries {
		err := p.s.db.QueryRow(p.ctx, selectPart, p.key, p.next).Scan(&p.blob, &p.size, &p.data)
		if err == nil {
			p.next++
			return nil
		}
		if !noRows(err) {
			return p.s.db.Fail(p.ctx, doing("read", p.name), err)
		}
		var back bool
		err = p.s.db.Write(p.ctx, func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, bringBack, p.key).Scan(&back)
		})
		if noRows(err) {
			return missing(p.name)
		}
		if err != nil {
			return p.s.db.Fail(p.ctx, doing("bring back", p.name), err)
		}
	}
	return missing(p.name)
}

// Read gives the bytes as they are stored; Verify judges them. Bytes that are replaced meanwhile, by those of another Put, are cut in the same
// way; so are those that are set aside and brought back.
func (p *parts) Read(b []byte) (int, error) {
	for len(p.data) == 0 {
		if int64(p.next)*partSize >= p.size {
			return 0, io.EOF
		}
		err := p.s.db.QueryRow(p.ctx, `SELECT data FROM weir.blob_parts WHERE blob = $1 AND part = $2`, p.blob, p.next).Scan(&p.data)
		switch {
		case err == nil:
			p.next++
		case noRows(err):
			blob := p.blob
			err := p.find()
			if codes.Has(err, codes.BlobMissing) || err == nil && p.blob == blob && len(p.data) == 0 {
				return 0, io.EOF // a part is missing, which Verify sees
			}
			if err != nil {
				return 0, err
			}
		default:
			return 0, p.s.db.Fail(p.ctx, doing("read", p.name), err)
		}
		if len(p.data) == 0 {
			return 0, io.EOF // an empty part is damage
		}
	}
	n := copy(b, p.data)
	p.data = p.data[n:]
	return n, nil
}

// Close lets the part go.
func (p *parts) Close() error {
	p.data = nil
	return nil
}
