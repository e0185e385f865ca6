package postgres

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	store "github.com/weirstream/weir/control/postgres"
)

const (
	// page is how many blobs a listing asks for at once.
	page = 1000

	selectBlobs = `SELECT name, size, modified FROM weir.blobs WHERE aside IS NULL AND name > $1 ORDER BY name LIMIT $2`
	selectAside = `SELECT name, size, modified, aside, ticket FROM weir.blobs WHERE aside IS NOT NULL AND (name, ticket) > ($1, $2) ORDER BY name, ticket LIMIT $3`
	// Rows are locked in one order by everybody, and judged again after the lock. What counts is the bytes that are there, not what the row says.
	touch = `WITH asked AS (SELECT DISTINCT * FROM unnest($1::bytea[], $2::bigint[]) AS a (name, size)),
		l AS MATERIALIZED (SELECT b.name FROM weir.blobs b JOIN asked a ON a.name = b.name AND a.size = b.size WHERE b.aside IS NULL ORDER BY b.name FOR NO KEY UPDATE OF b)
		UPDATE weir.blobs b SET modified = clock_timestamp() FROM asked a
		WHERE a.name = b.name AND a.size = b.size AND b.aside IS NULL AND b.name IN (SELECT name FROM l)
			AND a.size = (SELECT sum(octet_length(p.data)) FROM weir.blob_parts p WHERE p.blob = b.blob) RETURNING b.name, b.size`
	setAside = `UPDATE weir.blobs SET aside = clock_timestamp(), ticket = nextval('weir.blob_tickets')
		WHERE name = $1 AND aside IS NULL AND modified <= clock_timestamp() - $2::interval`
	purge = `WITH b AS (DELETE FROM weir.blobs WHERE ticket = $1 AND name = $2 RETURNING blob)
		DELETE FROM weir.blob_parts WHERE blob IN (SELECT blob FROM b)`
)

// Store is a blob store in PostgreSQL. All methods may be called from several goroutines and processes.
type Store struct {
	db *store.Store
	// close is what Close does.
	close func() error
}

var _ checkpoint.Blobs = (*Store)(nil)

// Open connects and checks as the store of the control plane does; the errors are those of its Open.
func Open(ctx context.Context, cfg store.Config) (*Store, error) {
	db, err := store.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Store{db: db, close: db.Close}, nil
}

// On is the blob store in the database of a store that is open. It uses that one's connections, and closing it does nothing.
func On(db *store.Store) *Store {
	return &Store{db: db, close: func() error { return nil }}
}

// Close closes the connections, unless they are another's.
func (s *Store) Close() error { return s.close() }

// key is a blob's name as the database has it.
func key(name string) ([]byte, error) {
	if err := checkpoint.CheckName(name); err != nil {
		return nil, err
	}
	return hex.DecodeString(name)
}

// doing is what is done to a blob, in an error.
func doing(what, name string) string { return fmt.Sprintf("%s blob %s", what, name) }

// Has implements checkpoint.Blobs.
func (s *Store) Has(ctx context.Context, name string) (has bool, err error) {
	k, err := key(name)
	if err != nil {
		return false, err
	}
	err = s.db.QueryRow(ctx, `SELECT EXISTS (SELECT FROM weir.blobs WHERE name = $1 AND aside IS NULL)`, k).Scan(&has)
	return has, s.db.Fail(ctx, doing("look for", name), err)
}

// Touch implements checkpoint.Blobs.
func (s *Store) Touch(ctx context.Context, blobs []checkpoint.Info) ([]bool, error) {
	names, sizes := make([][]byte, len(blobs)), make([]int64, len(blobs))
	for i, b := range blobs {
		k, err := key(b.Name)
		if err != nil {
			return nil, err
		}
		names[i], sizes[i] = k, b.Size
	}
	type blob struct {
		name string
		size int64
	}
	var stand map[blob]bool
	err := s.db.Write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		stand = map[blob]bool{}
		rows, err := conn.Query(ctx, touch, names, sizes)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var name []byte
			var size int64
			if err := rows.Scan(&name, &size); err != nil {
				return err
			}
			stand[blob{hex.EncodeToString(name), size}] = true
		}
		return rows.Err()
	})
	if err != nil {
		return nil, s.db.Fail(ctx, "touch blobs", err)
	}
	stands := make([]bool, len(blobs))
	for i, b := range blobs {
		stands[i] = stand[blob{b.Name, b.Size}]
	}
	return stands, nil
}

// List implements checkpoint.Blobs. It asks page by page, so fn may take its time and may use the store.
func (s *Store) List(ctx context.Context, fn func(checkpoint.Info) error) error {
	for last := []byte{}; ; {
		var all []checkpoint.Info
		err := s.db.Query(ctx, selectBlobs, []any{last, page}, func(rows pgx.Rows) error {
			var i checkpoint.Info
			err := rows.Scan(&last, &i.Size, &i.Modified)
			i.Name = hex.EncodeToString(last)
			all = append(all, i)
			return err
		})
		if err != nil {
			return s.db.Fail(ctx, "list blobs", err)
		}
		if err := each(ctx, all, fn); err != nil || len(all) < page {
			return err
		}
	}
}

func each[T any](ctx context.Context, all []T, fn func(T) error) error {
	for _, x := range all {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("a listing of blobs: %w", err)
		}
		if err := fn(x); err != nil {
			return err
		}
	}
	return nil
}

// SetAside implements checkpoint.Blobs.
func (s *Store) SetAside(ctx context.Context, name string, age time.Duration) (done bool, err error) {
	k, err := key(name)
	if err != nil {
		return false, err
	}
	err = s.db.Write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, setAside, k, age)
		done = tag.RowsAffected() == 1
		return err
	})
	return done && err == nil, s.db.Fail(ctx, doing("set aside", name), err)
}

// Aside implements checkpoint.Blobs. It asks page by page, so fn may take its time and may use the store.
func (s *Store) Aside(ctx context.Context, fn func(checkpoint.Aside) error) error {
	var ticket int64
	for last := []byte{}; ; {
		var all []checkpoint.Aside
		err := s.db.Query(ctx, selectAside, []any{last, ticket, page}, func(rows pgx.Rows) error {
			var a checkpoint.Aside
			err := rows.Scan(&last, &a.Size, &a.Modified, &a.Since, &ticket)
			a.Name, a.Ticket = hex.EncodeToString(last), strconv.FormatInt(ticket, 10)
			all = append(all, a)
			return err
		})
		if err != nil {
			return s.db.Fail(ctx, "list what is set aside", err)
		}
		if err := each(ctx, all, fn); err != nil || len(all) < page {
			return err
		}
	}
}

// BringBack implements checkpoint.Blobs.
func (s *Store) BringBack(ctx context.Context, a checkpoint.Aside) error {
	return s.spend(ctx, a, "bring back", func(ctx context.Context, conn *pgx.Conn, _ []byte, ticket int64) error {
		_, err := conn.Exec(ctx, `SELECT weir.bring_back($1)`, ticket)
		return err
	})
}

// Purge implements checkpoint.Blobs.
func (s *Store) Purge(ctx context.Context, a checkpoint.Aside) error {
	return s.spend(ctx, a, "purge", func(ctx context.Context, conn *pgx.Conn, k []byte, ticket int64) error {
		_, err := conn.Exec(ctx, purge, ticket, k)
		return err
	})
}

// spend runs fn on the ticket of what was set aside; what is no ticket of this store counts as spent.
func (s *Store) spend(ctx context.Context, a checkpoint.Aside, what string, fn func(ctx context.Context, conn *pgx.Conn, k []byte, ticket int64) error) error {
	k, err := key(a.Name)
	if err != nil {
		return err
	}
	ticket, err := strconv.ParseInt(a.Ticket, 10, 64)
	if err != nil {
		return ctx.Err()
	}
	err = s.db.Write(ctx, func(ctx context.Context, conn *pgx.Conn) error { return fn(ctx, conn, k, ticket) })
	return s.db.Fail(ctx, doing(what, a.Name), err)
}

// Owner implements checkpoint.Blobs: the blobs of a database are its own store's.
func (s *Store) Owner(ctx context.Context) (string, error) { return s.db.StoreID(ctx) }

// missing is the answer to who asks for a blob that is not there.
func missing(name string) error { return codes.New(codes.BlobMissing, "there is no blob %s", name) }

func noRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }
