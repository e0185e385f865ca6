package postgres

import (
	"testing"

	"github.com/weirstream/weir/internal/pgtest"
)

// Claims write to no index, and step over what others hold.
func TestClaimsAreHeapOnly(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{}), pgtest.Connect(t, db.Super)
	run(t, super, `INSERT INTO weir.outbox (kind, run_id, created) SELECT 'run.requested', 'run_' || lpad(n::text, 64, '0'), clock_timestamp() FROM generate_series(1, 500) n`)
	for turn := range 4 { // the last ones find their rows behind what the first ones have claimed
		conn := begun(t, db.Runtime)
		rows, err := conn.Query(t.Context(), claimDue, "batch-worker:a-host-name-of-some-length:12345:0123456789abcdef", 50)
		if err != nil {
			t.Fatal(err)
		}
		claimed := 0
		for rows.Next() {
			e, err := scanEvent(rows)
			if err != nil || e.ID <= int64(50*turn) || e.ID > int64(50*turn+50) {
				t.Errorf("turn %d: %+v, %v", turn, e, err)
			}
			claimed++
		}
		// In this transaction, which ends with it.
		if sync := one[string](t, conn, `SELECT current_setting('synchronous_commit')`); sync != "off" {
			t.Errorf("the commit of a claim waits for the disk: synchronous_commit is %s", sync)
		}
		hot := one[int](t, conn, `SELECT pg_stat_get_xact_tuples_hot_updated('weir.outbox'::regclass)`)
		if rows.Err() != nil || claimed != 50 || hot != claimed {
			t.Errorf("turn %d: %d claimed, %d of them without a write to an index, %v", turn, claimed, hot, rows.Err())
		}
		run(t, conn, "COMMIT")
		if sync := one[string](t, conn, `SELECT current_setting('synchronous_commit')`); sync != "on" {
			t.Errorf("what follows a claim does not wait for the disk: synchronous_commit is %s", sync)
		}
	}
	if rest, err := s.Claim(t.Context(), "x", 500); err != nil || len(rest) != 300 {
		t.Errorf("%d are left, %v", len(rest), err)
	}
}
