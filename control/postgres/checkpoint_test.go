package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/partitions"
)

// pointerTo is the pointer of a checkpoint of the run stream.
func pointerTo(epoch uint64) control.Pointer {
	digest := strings.Repeat("0", 56) + fmt.Sprintf("%08x", epoch)
	return control.Pointer{RunID: stream.RunID, Epoch: epoch, Manifest: digest, Hash: "sha256:" + digest, Fingerprint: "sha256:0123", Blobs: 2, Bytes: 10, NewBytes: 5}
}

// forkOf is the fork of the run stream at the epoch where it stands, into the run of that id.
func forkOf(t *testing.T, s *Store, id string) (f control.Fork) {
	t.Helper()
	state := map[int32][]partitions.StateBlob{}
	err := s.Snapshot(t.Context(), stream.RunID, func(v control.JournalView) error {
		at := v.State()
		f = control.Fork{From: stream.RunID, Epoch: at.Epoch, Header: at.Header, Watermark: at.Watermark, Cuts: at.Cuts}
		f.Header.RunID = id
		for p := range at.Cuts {
			var names []string
			if err := v.Blobs(t.Context(), p, func(r control.BlobRef) error { names = append(names, r.Name); return nil }); err != nil {
				return err
			}
			err := v.Load(t.Context(), p, names, func(b partitions.StateBlob) error {
				state[p] = append(state[p], partitions.StateBlob{Name: b.Name, Data: slices.Clone(b.Data)})
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Load = func(p int32, yield func(partitions.StateBlob) error) error {
		for _, b := range state[p] {
			data := slices.Clone(b.Data)
			if err := yield(partitions.StateBlob{Name: b.Name, Data: data}); err != nil {
				return err
			}
			for i := range data {
				data[i] = 0xDB // valid during the call only
			}
		}
		return nil
	}
	return f
}

// forked is the workload of a fork: the same epochs under another id.
func forked(id string) controltest.Workload {
	w := stream
	w.RunID = id
	return w
}

// A connection that is killed at any step of a fenced commit, a pointer or a fork leaves everything of it or nothing. Made again, it is there
// once, or says that it is.
func TestFencedKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	db := place(t)
	k := &killer{t: t, super: pgtest.Connect(t, db.Super)}
	s := open(t, db, Config{Hook: k.hook, ApplicationName: victim})
	l, j := owned(t, s, "a", time.Hour)
	commitEpochs(t, j, stream, 1, 3)
	n, epoch := 0, uint64(3)
	for name, c := range map[string]func() (write func() error, stands func() bool){
		"commit": func() (func() error, func() bool) {
			before := epoch
			return func() error { return j.Commit(t.Context(), stream.Commit(before+1)) }, func() bool {
				epoch = epochOf(t, j, stream)
				return epoch == before+1
			}
		},
		"pointer": func() (func() error, func() bool) {
			run(t, k.super, `DELETE FROM weir.pointers`)
			return func() error { return s.KeepPointer(t.Context(), l, pointerTo(2)) }, func() bool {
				all, err := s.ListPointers(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				return len(all) == 1
			}
		},
		"fork": func() (func() error, func() bool) {
			id := fmt.Sprint("fork", n)
			own := acquired(t, s, control.StreamLease(id), "a", time.Hour)
			f := forkOf(t, s, id)
			return func() error { return s.ForkRun(t.Context(), own, f) }, func() bool {
				there := one[int](t, k.super, `SELECT count(*) FROM weir.journal WHERE run_id = $1`, id) == 1
				if there {
					mustHold(t, s.Under(own), forked(id), f.Epoch)
				}
				return there
			}
		},
	} {
		steps := map[string]bool{}
		for at, survived := int64(1), false; !survived; at++ {
			n++
			alive(t, s)
			write, stands := c()
			k.left.Store(at)
			err := write()
			survived = k.left.Load() > 0
			k.left.Store(0)
			alive(t, s)
			there := stands()
			switch {
			case err == nil && !there:
				t.Errorf("%s, killed at %q: acknowledged, and it does not stand", name, k.step)
			case err != nil && !codes.Has(err, codes.StoreUnavailable):
				t.Errorf("%s, killed at %q: %v, want STORE_UNAVAILABLE", name, k.step, err)
			}
			if !survived {
				steps[k.step] = true
			}
			again := write()
			if name == "commit" && there && codes.Has(again, codes.JournalConflict) {
				again = nil // read back, it would not have been asked again
			}
			if again != nil || !stands() {
				t.Errorf("%s, killed at %q, again: %v", name, k.step, again)
			}
		}
		for _, step := range []string{"begin", "locked", "commit", "committed"} {
			if !steps[step] {
				t.Errorf("%s: no kill at %q", name, step)
			}
		}
	}
}

// A fork is the run up to the checkpoint, and goes on by itself; what the other run does later does not concern it.
func TestForkGoesOn(t *testing.T) {
	t.Parallel()
	db := place(t)
	s := open(t, db, Config{})
	_, j := owned(t, s, "a", time.Hour)
	commitEpochs(t, j, stream, 1, 6)
	f := forkOf(t, s, "fork")
	commitEpochs(t, j, stream, 7, 9)
	own := acquired(t, s, control.StreamLease("fork"), "a", time.Hour)
	if err := s.ForkRun(t.Context(), own, f); err != nil {
		t.Fatal(err)
	}
	w := forked("fork")
	mustHold(t, s.Under(own), w, 6)
	commitEpochs(t, s.Under(own), w, 7, 8)
	mustHold(t, s.Under(own), w, 8)
	mustHold(t, j, stream, 9)
	if err := s.ForkRun(t.Context(), own, f); !codes.Has(err, codes.RunMismatch) {
		t.Errorf("a fork that has gone on, again: %v", err)
	}
	mine := errors.New("the caller's own")
	f.Header.RunID = "other"
	f.Load = func(int32, func(partitions.StateBlob) error) error { return mine }
	if err := s.ForkRun(t.Context(), acquired(t, s, control.StreamLease("other"), "a", time.Hour), f); err != mine {
		t.Errorf("an error of Load comes back as %v", err)
	}
	if n := one[int](t, pgtest.Connect(t, db.Super), `SELECT count(*) FROM weir.journal WHERE run_id = 'other'`); n != 0 {
		t.Error("a fork without its state stands")
	}
}

// State that was damaged in the database is found by whoever reads it.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{}), pgtest.Connect(t, db.Super)
	_, j := owned(t, s, "a", time.Hour)
	commitEpochs(t, j, stream, 1, 4)
	var p int32
	var name []byte
	if err := super.QueryRow(t.Context(), `UPDATE weir.checkpoint_blobs SET data = set_byte(data, 0, get_byte(data, 0) # 1)
		WHERE ctid = (SELECT ctid FROM weir.checkpoint_blobs WHERE data <> '' LIMIT 1) RETURNING partition, name`).Scan(&p, &name); err != nil {
		t.Fatal(err)
	}
	nothing := func(partitions.StateBlob) error { return nil }
	if err := j.LoadBlobs(t.Context(), stream.RunID, p, nothing); !codes.Has(err, codes.JournalCorrupt) {
		t.Errorf("LoadBlobs: %v", err)
	}
	err := s.Snapshot(t.Context(), stream.RunID, func(v control.JournalView) error { return v.Load(t.Context(), p, []string{string(name)}, nothing) })
	if !codes.Has(err, codes.JournalCorrupt) {
		t.Errorf("Load: %v", err)
	}
}

// A pointer and a snapshot wait for no commit, and no commit for them.
func TestCheckpointBesideCommit(t *testing.T) {
	t.Parallel()
	db := place(t)
	p := newStopper("commit")
	a, s := open(t, db, Config{TTL: time.Minute, Hook: p.hook}), open(t, db, Config{TTL: time.Minute})
	t.Cleanup(p.open)
	l, j := owned(t, a, "a", time.Hour)
	commitEpochs(t, j, stream, 1, 3)
	p.armed.Store(true)
	wait := after(func() error { return j.Commit(t.Context(), stream.Commit(4)) })
	<-p.stopped
	if err := s.KeepPointer(t.Context(), l, pointerTo(3)); err != nil {
		t.Errorf("beside a commit: %v", err)
	}
	err := s.Snapshot(t.Context(), stream.RunID, func(v control.JournalView) error {
		p.open()
		if err := wait(); err != nil {
			t.Errorf("a commit beside a snapshot: %v", err)
		}
		if at := v.State().Epoch; at != 3 {
			t.Errorf("the snapshot stands at epoch %d", at)
		}
		return s.Under(l).Commit(t.Context(), stream.Commit(5))
	})
	if err != nil {
		t.Error(err)
	}
	mustHold(t, j, stream, 5)
}

// A server whose disk is full, wherever in a commit that shows: the reason is told, nothing of the epoch stands, nothing before it is lost, and
// with room again the same owner goes on.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{}), pgtest.Connect(t, db.Super)
	l, j := owned(t, s, "a", time.Hour)
	commitEpochs(t, j, stream, 1, 4)
	run(t, super, `CREATE FUNCTION public.full_disk() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100', MESSAGE = 'could not extend file: No space left on device'; END $$`)
	run(t, super, `GRANT EXECUTE ON FUNCTION public.full_disk TO PUBLIC`)
	epoch := uint64(4)
	for _, table := range []string{"journal", "checkpoints", "checkpoint_blobs", "journal_outputs", "quarantine", "decisions"} {
		run(t, super, `CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON weir.`+table+` FOR EACH ROW EXECUTE FUNCTION public.full_disk()`)
		refused := false
		for !refused { // not every epoch writes to every table
			err := j.Commit(t.Context(), stream.Commit(epoch+1))
			if refused = err != nil; !refused {
				epoch++
				continue
			}
			if !codes.Has(err, codes.StoreUnavailable) || !strings.Contains(err.Error(), "disk is full") {
				t.Errorf("%s: %v", table, err)
			}
		}
		run(t, super, `DROP TRIGGER full_disk ON weir.`+table)
		mustHold(t, j, stream, epoch)
		if _, err := s.Renew(t.Context(), l); err != nil {
			t.Errorf("%s: the lease: %v", table, err)
		}
		epoch++
		commitEpochs(t, j, stream, epoch, epoch)
	}
	mustHold(t, j, stream, epoch)
}

// A dump that is restored elsewhere goes on where it stood, under the same store id: nothing kept depends on numbers of the old server.
func TestRestoredDump(t *testing.T) {
	t.Parallel()
	db := place(t)
	super := pgtest.Connect(t, db.Super)
	bin := one[string](t, super, `SELECT setting FROM pg_config WHERE name = 'BINDIR'`)
	dump, restore := filepath.Join(bin, "pg_dump"), filepath.Join(bin, "pg_restore")
	for _, program := range []string{dump, restore} {
		if _, err := os.Stat(program); err != nil {
			t.Skipf("no %s beside the server's programs: %v", filepath.Base(program), err)
		}
	}
	s := open(t, db, Config{})
	l, j := owned(t, s, "a", time.Hour)
	commitEpochs(t, j, stream, 1, 5)
	if err := s.KeepPointer(t.Context(), l, pointerTo(5)); err != nil {
		t.Fatal(err)
	}
	id, err := s.StoreID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dump")
	command := func(program string, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if out, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", filepath.Base(program), err, out)
		}
	}
	command(dump, "-Fc", "-f", file, "-d", db.Super)
	other := pgtest.Database(t, nil)
	// Transaction numbers of the new server have nothing to do with those of the old one.
	run(t, pgtest.Connect(t, other.Super), `SELECT pg_current_xact_id()`)
	command(restore, "--exit-on-error", "-d", other.Super, file)

	restored := open(t, other, Config{})
	if got, err := restored.StoreID(t.Context()); err != nil || got != id {
		t.Errorf("the store's id was %s and is %s, %v", id, got, err)
	}
	mustHold(t, restored.Under(l), stream, 5) // its lease is in the dump, too
	expire(t, pgtest.Connect(t, other.Super))
	next, k := owned(t, restored, "b", time.Hour)
	if next.Token != 2 {
		t.Errorf("token %d", next.Token)
	}
	commitEpochs(t, k, stream, 6, 7)
	mustHold(t, k, stream, 7)
	if err := restored.KeepPointer(t.Context(), next, pointerTo(7)); err != nil {
		t.Error(err)
	}
	if all, err := restored.ListPointers(t.Context(), stream.RunID); err != nil || len(all) != 2 || all[0].Token != 1 || all[1].Token != 2 {
		t.Errorf("pointers %+v, %v", all, err)
	}
	if n := one[int](t, super, `SELECT count(*) FROM information_schema.columns WHERE table_schema = 'weir' AND udt_name IN ('xid', 'xid8', 'oid', 'pg_lsn', 'txid_snapshot', 'pg_snapshot')`); n != 0 {
		t.Errorf("%d columns hold numbers that mean something on one server only", n)
	}
}

// A store of the version before gets the digests of the state that stands, by Migrate and by the printed script.
func TestMigrateDigests(t *testing.T) {
	t.Parallel()
	for _, printed := range []bool{false, true} {
		db := pgtest.Database(t, nil)
		const before = 3
		old := preamble
		for _, m := range migrations()[:before] {
			old += m.sql + m.note()
		}
		if err := execScript(t.Context(), db.Super, "BEGIN;"+old+"COMMIT;"); err != nil {
			t.Fatal(err)
		}
		super := pgtest.Connect(t, db.Super)
		run(t, super, `INSERT INTO weir.journal (run_id, fingerprint, source, source_id, source_group, status, epoch, watermark, created) VALUES ('run', 'f', 's', '', '', 'OPEN', 1, 0, now())`)
		run(t, super, `INSERT INTO weir.checkpoint_blobs (run, partition, name, data) SELECT id, 0, convert_to('n' || i, 'UTF8'), convert_to(repeat('x', 100000 * i), 'UTF8') FROM weir.journal, generate_series(0, 3) AS i`)
		if printed {
			text, err := PendingSQL(t.Context(), db.Super)
			if err != nil || text != MigrationSQL(before) {
				t.Fatalf("what is left to do: %v", err)
			}
			if err := execScript(t.Context(), db.Super, text); err != nil {
				t.Fatal(err)
			}
		} else if applied, err := Migrate(t.Context(), db.Super); err != nil || len(applied) != Version()-before {
			t.Fatalf("applied %v, %v", applied, err)
		}
		if err := CheckSchema(t.Context(), db.Super); err != nil {
			t.Error(err)
		}
		// With nothing left to do, the script does nothing.
		if text, err := PendingSQL(t.Context(), db.Super); err != nil || execScript(t.Context(), db.Super, text) != nil {
			t.Errorf("up to date: %v", err)
		}
		if n := one[int](t, super, `SELECT count(*) FROM weir.checkpoint_blobs WHERE digest = sha256(data)`); n != 4 {
			t.Errorf("%d of 4 digests", n)
		}
		if fence := one[int](t, super, `SELECT fence FROM weir.journal`); fence != 0 {
			t.Errorf("fence %d", fence)
		}
		if id := one[string](t, super, `SELECT id FROM weir.store`); len(id) != 32 {
			t.Errorf("store id %q", id)
		}
	}
}
