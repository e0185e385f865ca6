package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	store "github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/postgres"
	"github.com/weirstream/weir/sinks/sinktest"
)

// journalled is a journal and a sink in one database.
type journalled struct {
	db  pgtest.DB
	run string
	s   *store.Store

	mu     sync.Mutex
	hook   func(string) error
	leases map[uint64]control.Lease
}

func migrated(ctx context.Context, url string) error {
	_, err := store.Migrate(ctx, url)
	return err
}

func journal(t testing.TB, run string) *journalled {
	t.Helper()
	j := &journalled{db: pgtest.Database(t, migrated), run: run, hook: func(string) error { return nil }, leases: map[uint64]control.Lease{}}
	var err error
	j.s, err = store.Open(t.Context(), store.Config{URL: j.db.Runtime, TTL: time.Minute, ConnectTimeout: time.Minute, Hook: func(step string) error {
		j.mu.Lock()
		hook := j.hook
		j.mu.Unlock()
		return hook("journal: " + step)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.s.Close() }) // the test is over
	return j
}

func (j *journalled) exec(t testing.TB, statements ...string) {
	t.Helper()
	conn := pgtest.Connect(t, j.db.Super)
	for _, text := range statements {
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatal(text, err)
		}
	}
}

func (j *journalled) sink(t testing.TB, hook func(string) error) sinks.Sink {
	t.Helper()
	s, err := sink(t, j.db.Super, func(c *postgres.Config) { c.Hook = hook }).Within(t.Context(), j.s)
	if err != nil || s == nil {
		t.Fatalf("the journal is in the same database, and the sink says %v, %v", s, err)
	}
	return s
}

// take makes a new owner, whoever was.
func (j *journalled) take(t testing.TB) uint64 {
	t.Helper()
	j.exec(t, "UPDATE weir.leases SET until = clock_timestamp() - interval '1 s'")
	l, err := j.s.Acquire(t.Context(), control.StreamLease(j.run), fmt.Sprintf("owner-%d", len(j.leases)), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	j.leases[uint64(l.Token)] = l
	return uint64(l.Token)
}

func (j *journalled) open(ctx context.Context, token uint64) (control.Journal, control.RunState, error) {
	under := j.s.Under(j.leases[token])
	state, err := under.OpenRun(ctx, control.RunHeader{RunID: j.run, Fingerprint: "f", Source: "s", Partitions: []int32{0, 1}})
	return under, state, err
}

func (j *journalled) commit(t testing.TB, token uint64, batches []sinks.Rows, hook func(string) error) error {
	t.Helper()
	under, state, err := j.open(t.Context(), token)
	if err != nil {
		return err
	}
	c := control.Commit{RunID: j.run, Epoch: state.Epoch + 1, Status: control.RunOpen, Watermark: record.NoTime}
	for _, b := range batches {
		c.Partitions = append(c.Partitions, control.PartitionCommit{
			Cut: partitions.Cut{Partition: b.Partition, Next: record.Offset(b.End()), Watermark: record.NoTime, Counts: partitions.Counts{Outputs: b.End()}}, Rows: b.Rows,
		})
	}
	j.mu.Lock()
	j.hook = hook
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		j.hook = func(string) error { return nil }
		j.mu.Unlock()
	}()
	return under.Commit(t.Context(), c)
}

func (j *journalled) rows(t testing.TB) map[int32]int64 {
	t.Helper()
	out := map[int32]int64{}
	for p := range int32(2) {
		err := j.s.Outputs(t.Context(), j.run, p, func(r partitions.Rows) error { out[p] += int64(r.Count); return nil })
		if err != nil && !codes.Has(err, codes.RunUnknown) {
			t.Fatal(err)
		}
	}
	return out
}

// TestAtomicWithJournal: rows of a sink in the journal's database become visible in the journal's own transaction.
func TestAtomicWithJournal(t *testing.T) {
	t.Parallel()
	sinktest.RunAtomic(t, func(t testing.TB) sinktest.Atomic {
		j := journal(t, sinktest.RunID)
		return sinktest.Atomic{
			Place: sinktest.Place{
				PlainText: true,
				Sink:      func(hook func(string) error) sinks.Sink { return j.sink(t, hook) },
				Seen:      func(t testing.TB, run string) []sinktest.Seen { return seen(t, j.db.Super, run) },
				Stopped:   func(t testing.TB) { endStopped(t, j.db) },
			},
			Take: j.take, Commit: j.commit, Rows: j.rows,
		}
	})
}

// TestWithinAnotherDatabase: another database is none of the journal's, whatever its URL, and the journal's role has to have the rights.
func TestWithinAnotherDatabase(t *testing.T) {
	t.Parallel()
	j := journal(t, "r")
	other := pgtest.Database(t, nil)
	if s, err := sink(t, other.Super, nil).Within(t.Context(), j.s); s != nil || err != nil {
		t.Errorf("another database: %v, %v", s, err)
	}
	odd := j.db.Super + "&application_name=somebody"
	if s, err := sink(t, odd, nil).Within(t.Context(), j.s); s == nil || err != nil {
		t.Errorf("the same database by another URL: %v, %v", s, err)
	}
	if _, err := sink(t, "postgres://u:canary-pw@127.0.0.1:1/x", nil).Within(t.Context(), j.s); !codes.Has(err, codes.SinkUnavailable) {
		t.Errorf("unreachable: %v", err)
	}
	to := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0}, Token: 1}
	w, err := j.sink(t, nil).Open(t.Context(), to)
	if err != nil {
		t.Fatalf("who makes the tables grants the journal's role what it needs: %v", err)
	}
	_ = w.Close()
	j.exec(t, "REVOKE INSERT ON results FROM "+pgtest.RuntimeLogin)
	poor, err := sink(t, j.db.Super, func(c *postgres.Config) { c.Create = false }).Within(t.Context(), j.s)
	if err != nil {
		t.Fatal(err)
	}
	_, err = poor.Open(t.Context(), to)
	if !codes.Has(err, codes.SinkDenied) || !strings.Contains(err.Error(), "by its role") || !strings.Contains(err.Error(), "may not INSERT") {
		t.Errorf("without a right: %v", err)
	}
}
