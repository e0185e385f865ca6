package postgres

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/checkpointtest"
	"github.com/weirstream/weir/codes"
	store "github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/internal/pgtest"
)

func put(t testing.TB, s *Store, b []byte) checkpoint.Info {
	t.Helper()
	info, err := checkpoint.PutBytes(t.Context(), s, b)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func get(t testing.TB, s *Store, name string) ([]byte, error) {
	t.Helper()
	r, _, err := s.Get(t.Context(), name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func want(t testing.TB, s *Store, name string, b []byte) {
	t.Helper()
	if got, err := get(t, s, name); err != nil || !bytes.Equal(got, b) {
		t.Errorf("%d of %d bytes, %v", len(got), len(b), err)
	}
}

// orphans counts parts that belong to no blob.
func orphans(t testing.TB, super *pgx.Conn) int {
	t.Helper()
	return scan[int](t, super, `SELECT count(*) FROM weir.blob_parts p WHERE NOT EXISTS (SELECT FROM weir.blobs b WHERE b.blob = p.blob)`)
}

// large is bytes of several parts; the last one ends where a part does.
func large(seed uint64) []byte { return bytes.Repeat(checkpointtest.Bytes(seed, 1<<20), 12) }

func TestParts(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, store.Config{}), pgtest.Connect(t, db.Super)
	whole := large(1)
	for _, n := range []int{partSize - 1, partSize, partSize + 1, 2 * partSize, 3*partSize - 1, 3 * partSize} {
		info := put(t, s, whole[:n])
		want(t, s, info.Name, whole[:n])
		if parts := scan[int](t, super, `SELECT count(*) FROM weir.blobs b JOIN weir.blob_parts p USING (blob) WHERE b.name = $1`, named(t, info.Name)); parts != (n+partSize-1)/partSize {
			t.Errorf("%d bytes in %d parts", n, parts)
		}
		if got, err := s.Touch(t.Context(), []checkpoint.Info{info, {Name: info.Name, Size: info.Size - 1}}); err != nil || !got[0] || got[1] {
			t.Errorf("%d bytes: touched %v, %v", n, got, err)
		}
		// Pieces as they come change nothing.
		again, err := s.Put(t.Context(), iotest.HalfReader(bytes.NewReader(whole[:n])))
		if err != nil || again.Name != info.Name || again.Size != info.Size || info.Modified.IsZero() || !again.Modified.After(info.Modified) {
			t.Errorf("%d bytes again: %+v, %v", n, again, err)
		}
		want(t, s, info.Name, whole[:n])
	}
	if n := scan[int](t, super, `SELECT max(octet_length(data)) FROM weir.blob_parts`); n != partSize {
		t.Errorf("the largest part has %d bytes", n)
	}
	if n := orphans(t, super); n != 0 {
		t.Errorf("%d parts are left", n)
	}
}

// Many write and read the same large blob at once.
func TestPartsTogether(t *testing.T) {
	t.Parallel()
	db := place(t)
	super := pgtest.Connect(t, db.Super)
	whole := large(2)[:2*partSize+1]
	first := open(t, db, store.Config{})
	name := put(t, first, whole).Name
	var wg sync.WaitGroup
	for range 3 {
		s := open(t, db, store.Config{MaxConns: 2})
		wg.Go(func() {
			if info, err := checkpoint.PutBytes(t.Context(), s, whole); err != nil || info.Name != name {
				t.Errorf("%+v, %v", info, err)
			}
			want(t, s, name, whole)
		})
		wg.Go(func() { want(t, first, name, whole) })
	}
	wg.Wait()
	if n := scan[int](t, super, `SELECT count(*) FROM weir.blobs`); n != 1 {
		t.Errorf("%d blobs", n)
	}
	if n := orphans(t, super); n != 0 {
		t.Errorf("%d parts are left", n)
	}
}

// A part that is gone, cut, changed or another's: never the whole, always BLOB_CORRUPT. Writing it again heals it.
func TestDamagedParts(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, store.Config{}), pgtest.Connect(t, db.Super)
	whole := large(3)[:2*partSize+100]
	name := put(t, s, whole).Name
	for _, damage := range []string{
		`DELETE FROM weir.blob_parts WHERE part = 1`,
		`DELETE FROM weir.blob_parts WHERE part = 2`,
		`DELETE FROM weir.blob_parts WHERE part = 0`,
		`UPDATE weir.blob_parts SET data = '' WHERE part = 1`,
		`UPDATE weir.blob_parts SET data = substr(data, 1, 50) WHERE part = 2`,
		`UPDATE weir.blob_parts SET data = set_byte(data, 7, get_byte(data, 7) # 128) WHERE part = 1`,
		`UPDATE weir.blob_parts SET part = CASE part WHEN 0 THEN 5 ELSE 0 END WHERE part < 2 AND part = 0`,
		`UPDATE weir.blobs SET size = size - 1`,
		`UPDATE weir.blobs SET size = size + 5000000`,
	} {
		if n := exec(t, super, damage); n != 1 {
			t.Fatalf("%s: %d rows", damage, n)
		}
		got, err := get(t, s, name)
		if !codes.Has(err, codes.BlobCorrupt) || len(got) >= len(whole) {
			t.Errorf("%s: %d bytes, %v, want BLOB_CORRUPT", damage, len(got), err)
		}
		if !strings.Contains(damage, "set_byte") { // what has another size does not stand for who touches it
			if stands, err := s.Touch(t.Context(), []checkpoint.Info{{Name: name, Size: int64(len(whole))}}); err != nil || stands[0] && !strings.Contains(damage, "SET part") {
				t.Errorf("%s: touched %v, %v", damage, stands, err)
			}
		}
		put(t, s, whole)
		want(t, s, name, whole)
	}
	exec(t, super, `DELETE FROM weir.blob_parts WHERE part > 3`) // of the one that was moved, which its blob did not know
	if n := orphans(t, super); n != 0 {
		t.Errorf("%d parts are left", n)
	}
}

// What is replaced, set aside or brought back while it is read, is read to its end; what is purged is not.
func TestReadBesideChanges(t *testing.T) {
	t.Parallel()
	db := place(t)
	s := open(t, db, store.Config{})
	whole := large(4)
	name := put(t, s, whole).Name
	aside := func() (all []checkpoint.Aside) {
		if done, err := s.SetAside(t.Context(), name, 0); err != nil || !done {
			t.Fatal(done, err)
		}
		if err := s.Aside(t.Context(), func(a checkpoint.Aside) error { all = append(all, a); return nil }); err != nil {
			t.Fatal(err)
		}
		return all
	}
	for what, change := range map[string]func() error{
		"replaced":            func() error { _, err := checkpoint.PutBytes(t.Context(), s, whole); return err },
		"set aside":           func() error { aside(); return nil },
		"aside, and anew":     func() error { aside(); _, err := checkpoint.PutBytes(t.Context(), s, whole); return err },
		"aside, anew, purged": func() error { all := aside(); put(t, s, whole); return s.Purge(t.Context(), all[len(all)-1]) },
	} {
		r, _, err := s.Get(t.Context(), name)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		begin := make([]byte, 100)
		if _, err := io.ReadFull(r, begin); err != nil {
			t.Fatal(err)
		}
		if err := change(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		rest, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(append(begin, rest...), whole) {
			t.Errorf("%s: %d bytes, %v", what, len(rest), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	r, _, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, a := range aside() {
		if err := s.Purge(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := io.ReadAll(r); !codes.Has(err, codes.BlobCorrupt) || len(got) >= len(whole) {
		t.Errorf("purged while it is read: %d bytes, %v", len(got), err)
	}
}

// A large Put that ends anywhere but at its end leaves nothing: a reader that fails, a context that ends, a connection that is killed. One that is
// slow is waited for, beyond the time-out of other transactions.
func TestUnfinishedParts(t *testing.T) {
	t.Parallel()
	db := place(t)
	super := pgtest.Connect(t, db.Super)
	const those = ` FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'weir-blobs'`
	s := open(t, db, store.Config{TTL: 200 * time.Millisecond, ApplicationName: "weir-blobs"})
	whole := large(5)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	own := errors.New("the caller's own")
	for what, c := range map[string]struct {
		at  func() error
		err func(error) bool
	}{
		"failing":   {func() error { return own }, func(err error) bool { return err == own }},
		"cancelled": {func() error { cancel(); return nil }, func(err error) bool { return errors.Is(err, context.Canceled) && codes.Of(err) == nil }},
		"killed": {func() error {
			exec(t, super, `SELECT pg_terminate_backend(pid)`+those)
			for scan[int](t, super, `SELECT count(*)`+those) > 0 {
				exec(t, super, `SELECT pg_sleep(0.005)`)
			}
			return nil
		}, func(err error) bool { return codes.Has(err, codes.StoreUnavailable) }},
		"slow": {func() error { exec(t, super, `SELECT pg_sleep(0.3)`); return nil }, func(err error) bool { return err == nil }},
	} {
		done := false
		r := io.MultiReader(bytes.NewReader(whole[:2*partSize+5]), readerFunc(func([]byte) (int, error) {
			if !done {
				done = true
				if err := c.at(); err != nil {
					return 0, err
				}
			}
			return 0, io.EOF
		}), bytes.NewReader(whole[2*partSize+5:]))
		used := t.Context()
		if what == "cancelled" {
			used = ctx
		}
		for range 20 { // each may meet one dead connection of the pool
			if _, err := s.Has(t.Context(), strings.Repeat("0", 64)); err == nil {
				break
			}
		}
		info, err := s.Put(used, r)
		if !c.err(err) {
			t.Errorf("%s: %v", what, err)
		}
		if err == nil {
			want(t, s, info.Name, whole)
			exec(t, super, `TRUNCATE weir.blobs, weir.blob_parts`)
		}
		for range 20 {
			if _, err := s.Has(t.Context(), strings.Repeat("0", 64)); err == nil {
				break
			}
		}
		if n := scan[int](t, super, `SELECT (SELECT count(*) FROM weir.blobs) + (SELECT count(*) FROM weir.blob_parts)`); n != 0 {
			t.Errorf("%s: %d rows are left", what, n)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A listing of more than a page has everything once, in order, and its receiver may use the store.
func TestListPages(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, store.Config{MaxConns: 1}), pgtest.Connect(t, db.Super)
	const n = 2*page + 1
	exec(t, super, `INSERT INTO weir.blobs (blob, name, size, modified, aside, ticket)
		SELECT i, sha256(convert_to((i / 2)::text, 'UTF8')), i, now(), CASE WHEN i % 2 = 0 THEN now() END, CASE WHEN i % 2 = 0 THEN 2 * i END FROM generate_series(0, $1) AS i`, 2*n-1)
	last, count := "", 0
	err := s.List(t.Context(), func(i checkpoint.Info) error {
		if i.Name <= last {
			t.Fatalf("%s comes after %s", i.Name, last)
		}
		last = i.Name
		if count++; count%500 == 0 {
			_, err := s.Has(t.Context(), i.Name)
			return err
		}
		return nil
	})
	if err != nil || count != n {
		t.Errorf("%d of %d blobs, %v", count, n, err)
	}
	last, count = "", 0
	err = s.Aside(t.Context(), func(a checkpoint.Aside) error {
		if a.Name < last || a.Ticket == "" {
			t.Fatalf("%+v comes after %s", a, last)
		}
		last = a.Name
		count++
		return nil
	})
	if err != nil || count != n {
		t.Errorf("%d of %d set aside, %v", count, n, err)
	}
}

// A store of blobs shares the connections of the control plane's, and outlives nobody.
func TestOn(t *testing.T) {
	t.Parallel()
	db := place(t)
	plane, err := store.Open(t.Context(), store.Config{URL: db.Runtime, MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := On(plane)
	name := put(t, s, []byte("x")).Name
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, s, name, []byte("x"))
	if err := plane.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, s, name); !codes.Has(err, codes.StoreUnavailable) {
		t.Errorf("after the store was closed: %v", err)
	}
}

// Who may only look at the views may neither write nor read blobs, and is told which role may.
func TestRoles(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, err := Open(t.Context(), store.Config{URL: db.Reader})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	name := put(t, open(t, db, store.Config{}), []byte("x")).Name
	_, putErr := checkpoint.PutBytes(t.Context(), s, []byte("y"))
	_, getErr := get(t, s, name)
	_, asideErr := s.SetAside(t.Context(), name, 0)
	for what, err := range map[string]error{"Put": putErr, "Get": getErr, "SetAside": asideErr} {
		if !codes.Has(err, codes.StoreDenied) || !strings.Contains(err.Error(), "weir_runtime") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
