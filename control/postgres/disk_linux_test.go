package postgres

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/internal/pgtest"
)

// smallDisk is a file system of a few megabytes that the server may write to, as a table space. The test is skipped where none can be made.
func smallDisk(t *testing.T, super *pgx.Conn, space, table string) (grow func()) {
	t.Helper()
	if !pgtest.Private() || os.Geteuid() != 0 {
		t.Skip("a small disk for the server is made by root, beside a server of the tests' own")
	}
	var owner syscall.Stat_t
	if err := syscall.Stat(one[string](t, super, `SHOW data_directory`), &owner); err != nil {
		t.Skipf("the server's files are not to be seen here: %v", err)
	}
	dir, err := os.MkdirTemp("/tmp", "weir-disk-") // where the server's user gets to
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) }) // an empty folder at most
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	options := fmt.Sprintf("uid=%d,gid=%d,mode=0700,size=", owner.Uid, owner.Gid)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, options+"8m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	run(t, super, fmt.Sprintf(`CREATE TABLESPACE %s LOCATION '%s'`, space, dir))
	run(t, super, fmt.Sprintf(`ALTER TABLE %s SET TABLESPACE %s`, table, space))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, text := range []string{fmt.Sprintf(`ALTER TABLE %s SET TABLESPACE pg_default`, table), fmt.Sprintf(`DROP TABLESPACE %s`, space)} {
			if _, err := super.Exec(ctx, text); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	})
	return func() {
		t.Helper()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, options+"64m"); err != nil {
			t.Fatal(err)
		}
	}
}

// The server's disk fills up in truth. What was committed stands, what was not is refused with the reason, and with more room the same owner goes on.
func TestDiskFillsUp(t *testing.T) {
	t.Parallel()
	db := place(t)
	super := pgtest.Connect(t, db.Super)
	grow := smallDisk(t, super, db.Name+"_small", "weir.journal_outputs")
	s := open(t, db, Config{})
	l, j := owned(t, s, "a", time.Hour)
	w := controltest.Workload{Seed: stream.Seed, RunID: stream.RunID, Partitions: stream.Partitions, Rows: 40000, Blob: 1000}
	epoch := uint64(0)
	var err error
	for err == nil {
		if err = j.Commit(t.Context(), w.Commit(epoch+1)); err == nil {
			epoch++
		}
	}
	if !codes.Has(err, codes.StoreUnavailable) || !strings.Contains(err.Error(), "disk is full") || epoch == 0 {
		t.Errorf("after epoch %d: %v", epoch, err)
	}
	mustHold(t, j, w, epoch)
	if _, err := s.Renew(t.Context(), l); err != nil {
		t.Errorf("the lease: %v", err)
	}
	grow()
	commitEpochs(t, j, w, epoch+1, epoch+2)
	mustHold(t, j, w, epoch+2)
}
