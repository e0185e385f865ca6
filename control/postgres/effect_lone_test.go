package postgres

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/pgtest"
)

// loneCase is an effect that is one plain statement, with a run of its own.
type loneCase struct {
	name, run string
	effect    control.Effect
	// stands counts 1 once the effect stands, else 0.
	stands string
	// statement and args are what is sent after lease, owner and token: to try a naive variant.
	statement string
	args      []any
}

// loneCases makes the rows that the effects change.
func loneCases(t *testing.T, super *pgx.Conn, series int) []loneCase {
	t.Helper()
	n := 0
	admitted := func(phase string) string {
		n++
		id := fmt.Sprintf("run_%064x", series<<8+n)
		run(t, super, `INSERT INTO weir.runs (run_id, principal, operation, body, flow, snapshot, phase, created, updated)
			VALUES ($1, 'p', 'o', '{}', 'f', 's', $2, clock_timestamp(), clock_timestamp())`, id, phase)
		return id
	}
	event := func(id string) int64 {
		return one[int64](t, super, `INSERT INTO weir.outbox (kind, run_id, created) VALUES ('k', $1, clock_timestamp()) RETURNING id`, id)
	}
	queued, running, finished, published, several := admitted("QUEUED"), admitted("RUNNING"), admitted("SUCCEEDED"), admitted("RUNNING"), admitted("SUCCEEDED")
	first, all, sum := event(finished), []int64{event(several), event(several)}, sha256.Sum256([]byte(`1`))
	inPhase := func(id, phase string) string {
		return fmt.Sprintf(`SELECT count(*) FROM weir.runs WHERE run_id = '%s' AND phase = '%s'`, id, phase)
	}
	return []loneCase{
		{"start", queued, control.StartRun{RunID: queued}, inPhase(queued, "RUNNING"), startOne, []any{queued}},
		{"finish", running, control.FinishRun{RunID: running, Phase: control.Succeeded, ResultRefs: []string{"ref"}},
			inPhase(running, "SUCCEEDED") + ` AND revision = 1 AND result_refs = '{ref}' AND error = ''`, finishOne, []any{running, "SUCCEEDED", []string{"ref"}, ""}},
		{"deliver", finished, control.Deliver{EventIDs: []int64{first}},
			fmt.Sprintf(`SELECT count(*) FROM weir.outbox WHERE id = %d AND delivered IS NOT NULL`, first), deliverOne, []any{first}},
		{"deliver several", several, control.Deliver{EventIDs: all},
			fmt.Sprintf(`SELECT count(*) / 2 FROM weir.outbox WHERE run_id = '%s' AND delivered IS NOT NULL`, several), deliverMany, []any{all}},
		{"publish", published, publication(published, `1`), `SELECT count(*) FROM weir.publications WHERE key = '` + published + `' AND digest = sha256(value)`,
			publishOne, []any{published, []byte(`1`), sum[:], "r"}},
	}
}

// Each lone effect is done by its plain statement, and by nothing else; the function fenced is not asked.
func TestLoneEffectsNeedNoFunction(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{}), pgtest.Connect(t, db.Super)
	run(t, super, `ALTER FUNCTION weir.fenced RENAME TO fenced_away`)
	for _, c := range loneCases(t, super, 1) {
		l := acquired(t, s, control.RunLease(c.run), "a", time.Hour)
		forged, stale := l, l
		forged.Owner, stale.Token = "b", l.Token+1
		for _, wrong := range []control.Lease{forged, stale} {
			if err := s.Fenced(t.Context(), wrong, c.effect); !codes.Has(err, codes.StoreOlder) || one[int](t, super, c.stands) != 0 {
				t.Errorf("%s: a wrong owner or token is not left to the function: %v", c.name, err)
			}
		}
		if err := s.Fenced(t.Context(), l, c.effect); err != nil || one[int](t, super, c.stands) != 1 {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := s.Fenced(t.Context(), l, c.effect); !codes.Has(err, codes.StoreOlder) {
			t.Errorf("%s: what is out of the ordinary is not left to the function: %v", c.name, err)
		}
	}
}

// Trap 1 for the plain statements: a lease that expires, or is taken over, while the statement waits for its row, is lost.
func TestTrapPlainStatements(t *testing.T) {
	t.Parallel()
	db := place(t)
	super := pgtest.Connect(t, db.Super)
	series := 0
	for _, c := range []struct {
		name, meanwhile string
		naive           bool
	}{
		{"expires", ``, false},
		// OFFSET 0 is what keeps the clock behind the lock.
		{"expires, naive", ``, true},
		{"taken over", `UPDATE weir.leases SET owner = 'b', fence_token = fence_token + 1, until = clock_timestamp() + interval '1 h'`, false},
		{"taken over by the same owner", `UPDATE weir.leases SET fence_token = fence_token + 1, until = clock_timestamp() + interval '1 h'`, false},
	} {
		s := open(t, db, Config{})
		var cases []loneCase
		var waits []func() error
		start := func() (waits []func() error) {
			for _, lone := range cases {
				l, conn := control.Lease{Name: control.RunLease(lone.run), Owner: "a", Token: 1, TTL: time.Hour}, pgtest.Connect(t, db.Runtime)
				waits = append(waits, after(func() error {
					if !c.naive {
						return s.Fenced(t.Context(), l, lone.effect)
					}
					_, err := conn.Exec(t.Context(), strings.Replace(lone.statement, " OFFSET 0", "", 1), append([]any{l.Name, "a", int64(l.Token)}, lone.args...)...)
					return err
				}))
			}
			return waits
		}
		expiring(t, func(term time.Duration) (begins bool) {
			run(t, super, `DELETE FROM weir.leases`)
			series++
			cases = loneCases(t, super, series)
			for _, lone := range cases {
				acquired(t, s, control.RunLease(lone.run), "a", time.Hour)
			}
			if c.meanwhile == "" {
				if waits, begins = overdue(t, db, super, term, len(cases), start); !begins {
					for _, wait := range waits {
						_ = wait() // whatever became of it
					}
				}
				return begins
			}
			blocker := begun(t, db.Super)
			run(t, blocker, `SELECT FROM weir.leases FOR UPDATE`)
			waits = start()
			waiting(t, super, len(cases))
			run(t, blocker, c.meanwhile)
			run(t, blocker, "COMMIT")
			return true
		})
		for i, lone := range cases {
			err := waits[i]()
			got, want := one[int](t, super, lone.stands), 0
			if c.naive && strings.Contains(lone.statement, " OFFSET 0") {
				want = 1
			}
			if got != want || !c.naive && !codes.Has(err, codes.StaleFence) || c.naive && err != nil {
				t.Errorf("%s, %s: %v, and %d stand, want %d", c.name, lone.name, err, got, want)
			}
		}
	}
}

// A heartbeat and a change of the effect's own row while the statement waits do not lead it astray: it goes by what stands after the wait.
func TestPlainStatementsSeeWhatStands(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{}), pgtest.Connect(t, db.Super)
	cases := loneCases(t, super, 1)
	start, finish := cases[0], cases[1]
	for _, c := range []struct {
		lone      loneCase
		meanwhile string
		want      *codes.Code
	}{
		{start, `UPDATE weir.runs SET phase = 'CANCELLED' WHERE run_id = $1`, codes.RunNotQueued},
		{finish, `UPDATE weir.runs SET phase = 'QUEUED' WHERE run_id = $1`, codes.RunNotRunning},
	} {
		l := acquired(t, s, control.RunLease(c.lone.run), "a", time.Hour)
		blocker := begun(t, db.Super)
		run(t, blocker, `SELECT FROM weir.leases WHERE name = $1 FOR UPDATE`, l.Name)
		wait := after(func() error { return s.Fenced(t.Context(), l, c.lone.effect) })
		waiting(t, super, 1)
		run(t, blocker, c.meanwhile, c.lone.run)
		run(t, blocker, `UPDATE weir.leases SET until = until + interval '1 h' WHERE name = $1`, l.Name) // as a heartbeat does
		run(t, blocker, "COMMIT")
		if err := wait(); !codes.Has(err, c.want) {
			t.Errorf("%s: %v, want %s", c.lone.name, err, c.want.Name)
		}
	}
}

// Events are delivered all or not at all: with one that is missing nothing is, and one that is delivered already is no hindrance.
func TestDeliverIsAllOrNothing(t *testing.T) {
	t.Parallel()
	db := place(t)
	s, super := open(t, db, Config{}), pgtest.Connect(t, db.Super)
	l := acquired(t, s, "job", "a", time.Hour)
	var ids []int64
	for range 3 {
		ids = append(ids, one[int64](t, super, `INSERT INTO weir.outbox (kind, run_id, created) VALUES ('k', 'r', clock_timestamp()) RETURNING id`))
	}
	delivered := func() int { return one[int](t, super, `SELECT count(*) FROM weir.outbox WHERE delivered IS NOT NULL`) }
	if err := s.Fenced(t.Context(), l, control.Deliver{EventIDs: append(ids[:2:2], 1<<40)}); !codes.Has(err, codes.Internal) || delivered() != 0 {
		t.Errorf("with an event that is missing: %v, and %d are delivered", err, delivered())
	}
	for _, list := range [][]int64{ids[:1], ids[:2], append(ids[:3:3], ids[2]), ids, {}} {
		if err := s.Fenced(t.Context(), l, control.Deliver{EventIDs: list}); err != nil {
			t.Errorf("%v: %v", list, err)
		}
	}
	if delivered() != 3 {
		t.Errorf("%d are delivered", delivered())
	}
}
