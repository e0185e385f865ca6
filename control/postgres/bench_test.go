package postgres

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/pgtest"
)

// The benchmarks compare with what somebody would write by hand against the same server, with the same durability. Contestants take turns, and the
// ratio is the median over the rounds: within a round both have met the same machine.

const rounds = 9

// contestant does one unit of work, on its own connection.
type contestant struct {
	name string
	// work is called with the number of the worker and of the call.
	work func(ctx context.Context, worker, n int) error
}

// duel reports the rate of each, in units a second, and the ratio of the first to every other: the median over the rounds. A round is
// several short turns of each, so that a disk that is slow for a while is slow for all. CPU time
// is that of this process and of the server's, which a busy machine changes little; it is known on Linux, of a private server. It returns the number of
// calls.
func duel(b *testing.B, workers, turns int, turn time.Duration, units float64, all ...contestant) (called int64) {
	b.Helper()
	rates := make([][]float64, len(all))
	cpus := make([]time.Duration, len(all))
	counts := make([]int64, len(all))
	var calls atomic.Int64
	for range rounds {
		sums := make([]float64, len(all))
		for k := range turns {
			for j := range all {
				i := j
				if k%2 == 1 {
					i = len(all) - 1 - j
				}
				before, began := calls.Load(), cpuTime(b)
				sums[i] += units * rate(b, workers, turn, &calls, all[i].work) / float64(turns)
				cpus[i] += cpuTime(b) - began
				counts[i] += calls.Load() - before
			}
		}
		for i := range all {
			rates[i] = append(rates[i], sums[i])
		}
	}
	for i, c := range all {
		b.ReportMetric(median(rates[i]), c.name+"/s")
		cpu := func(i int) float64 { return float64(cpus[i]) / float64(counts[i]) }
		if cpus[i] > 0 {
			b.ReportMetric(cpu(i)/1000/units, c.name+"-cpu-µs")
		}
		if i > 0 && cpus[0] > 0 {
			b.ReportMetric(cpu(i)/cpu(0), "×"+c.name+"-by-cpu")
		}
		if i > 0 {
			ratios := make([]float64, rounds)
			for r := range ratios {
				ratios[r] = rates[0][r] / rates[i][r]
			}
			b.ReportMetric(median(ratios), "×"+c.name)
		}
	}
	return calls.Load()
}

func rate(b *testing.B, workers int, each time.Duration, calls *atomic.Int64, work func(ctx context.Context, worker, n int) error) float64 {
	b.Helper()
	var done atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for w := range workers {
		wg.Go(func() {
			for time.Since(began) < each {
				if err := work(b.Context(), w, int(calls.Add(1))); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(began).Seconds()
}

func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	return s[len(s)/2]
}

// bare are connections as the store's, but outside of it.
func bare(b *testing.B, s *Store, n int) []*pgx.Conn {
	b.Helper()
	out := make([]*pgx.Conn, n)
	for i := range out {
		conn, err := pgx.ConnectConfig(b.Context(), s.pool.Config().ConnConfig)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.Close(context.Background()) })
		out[i] = conn
	}
	return out
}

// A fenced effect of one row (an event is delivered), beside a bare update of one row, and beside the same effect in four round trips. With
// lease=own every connection acts under a lease of its own, as workers on runs of their own do; with lease=shared all act under one, whose row
// then is locked by several at once.
func BenchmarkFencedEffect(b *testing.B) {
	for _, c := range []struct {
		workers int
		lease   string
	}{{1, "own"}, {8, "own"}, {8, "shared"}} {
		b.Run(fmt.Sprintf("connections=%d/lease=%s", c.workers, c.lease), func(b *testing.B) {
			db := place(b)
			s := open(b, db, Config{TTL: time.Minute})
			conns, super := bare(b, s, c.workers), pgtest.Connect(b, db.Super)
			const events = 1 << 19 // more than there are calls, so that every call finds a row to change
			run(b, super, `INSERT INTO weir.outbox (kind, run_id, created) SELECT 'k', 'r' || n % 1000, now() FROM generate_series(1, $1) n`, events)
			run(b, super, `VACUUM ANALYZE weir.outbox`)
			leases := make([]control.Lease, c.workers)
			for w := range leases {
				name := fmt.Sprint("job", w)
				if c.lease == "shared" {
					name = "job"
				}
				l, err := s.Acquire(b.Context(), name, "a", time.Hour)
				if err != nil {
					b.Fatal(err)
				}
				leases[w] = l
			}
			const update = `UPDATE weir.outbox SET delivered = clock_timestamp() WHERE id = $1`
			four := func(ctx context.Context, w, n int) error {
				conn := conns[w]
				if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
					return err
				}
				if _, err := conn.Exec(ctx, `SELECT weir.hold($1, 'a', $2)`, leases[w].Name, int64(leases[w].Token)); err != nil {
					return err
				}
				if _, err := conn.Exec(ctx, update, int64(n)); err != nil {
					return err
				}
				_, err := conn.Exec(ctx, "COMMIT")
				return err
			}
			for b.Loop() {
				calls := duel(b, c.workers, 6, 40*time.Millisecond, 1,
					contestant{"fenced", func(ctx context.Context, w, n int) error {
						return s.Fenced(ctx, leases[w], control.Deliver{EventIDs: []int64{int64(n)}})
					}},
					contestant{"bare", func(ctx context.Context, w, n int) error {
						_, err := conns[w].Exec(ctx, update, int64(n))
						return err
					}},
					contestant{"four", four})
				if n := one[int64](b, super, `SELECT count(*) FROM weir.outbox WHERE delivered IS NOT NULL`); n != calls {
					b.Fatalf("%d events are delivered after %d calls", n, calls)
				}
				run(b, super, `UPDATE weir.outbox SET delivered = NULL WHERE delivered IS NOT NULL`)
				run(b, super, `VACUUM ANALYZE weir.outbox`)
			}
		})
	}
}

// Publish-if-absent beside a bare insert of the same rows into a table of the same shape: by unnest, and by COPY.
func BenchmarkPublish(b *testing.B) {
	for _, rows := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			db := place(b)
			s := open(b, db, Config{TTL: time.Minute})
			conn, super := bare(b, s, 1)[0], pgtest.Connect(b, db.Super)
			run(b, super, `CREATE TABLE public.bare (LIKE weir.publications INCLUDING ALL); GRANT ALL ON public.bare TO weir_runtime`)
			l, err := s.Acquire(b.Context(), "job", "a", time.Hour)
			if err != nil {
				b.Fatal(err)
			}
			plain := func(ctx context.Context, _, n int) error {
				c := newCall([]control.Effect{many(fmt.Sprintf("b%07d/", n), rows)}, rows)
				_, err := conn.Exec(ctx, `INSERT INTO public.bare (key, value, digest, run_id) SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::text[])`, c.keys, c.values, c.digests, c.publishers)
				return err
			}
			if rows > s.cfg.BulkRows {
				plain = func(ctx context.Context, _, n int) error {
					c := newCall([]control.Effect{many(fmt.Sprintf("b%07d/", n), rows)}, rows)
					_, err := conn.CopyFrom(ctx, pgx.Identifier{"public", "bare"}, []string{"key", "value", "digest", "run_id"}, pgx.CopyFromSlice(rows, func(i int) ([]any, error) {
						return []any{c.keys[i], c.values[i], c.digests[i], c.publishers[i]}, nil
					}))
					return err
				}
			}
			for b.Loop() {
				duel(b, 1, 2, 200*time.Millisecond, float64(rows),
					contestant{"publish", func(ctx context.Context, _, n int) error {
						return s.Fenced(ctx, l, many(fmt.Sprintf("p%07d/", n), rows))
					}},
					contestant{"bare", plain})
			}
		})
	}
}

// Events from claim to delivered, fifty at a time, with so many workers, each under a lease of its own; beside the queue that somebody would write
// by hand: claim by UPDATE … SKIP LOCKED … RETURNING, then DELETE, on a table with the columns and the primary key of ours and an index of
// what is due. No fence, no claim that can be taken back by its claimant only, nothing kept of what was delivered.
func BenchmarkOutbox(b *testing.B) {
	for _, workers := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			db := place(b)
			s := open(b, db, Config{TTL: time.Minute})
			conns, super := bare(b, s, workers), pgtest.Connect(b, db.Super)
			run(b, super, `CREATE TABLE public.queue (LIKE weir.outbox INCLUDING STORAGE INCLUDING IDENTITY INCLUDING DEFAULTS) WITH (fillfactor = 60);
				ALTER TABLE public.queue ADD PRIMARY KEY (id); CREATE INDEX ON public.queue (id) WHERE claimant IS NULL; GRANT ALL ON public.queue TO weir_runtime`)
			leases := make([]control.Lease, workers)
			for w := range leases {
				l, err := s.Acquire(b.Context(), fmt.Sprint("job", w), "a", time.Hour)
				if err != nil {
					b.Fatal(err)
				}
				leases[w] = l
			}
			const claim = `UPDATE public.queue SET claimant = $1, claimed_at = clock_timestamp(), attempt = attempt + 1 WHERE id = ANY (ARRAY (
				SELECT id FROM public.queue WHERE claimant IS NULL ORDER BY id LIMIT 50 FOR UPDATE SKIP LOCKED)) RETURNING id, kind, run_id, attempt, claimed_at, created`
			sides := []side{
				{"outbox", "weir.outbox", func(ctx context.Context, w int) (int, error) {
					claimed, err := s.Claim(ctx, fmt.Sprint("w", w), 50)
					if err != nil || len(claimed) == 0 {
						return 0, err
					}
					ids := make([]int64, len(claimed))
					for i, e := range claimed {
						ids[i] = e.ID
					}
					return len(ids), s.Fenced(ctx, leases[w], control.Deliver{EventIDs: ids})
				}},
				{"hand", "public.queue", func(ctx context.Context, w int) (int, error) {
					var ids []int64
					err := each(ctx, conns[w], claim, []any{fmt.Sprint("w", w)}, func(rows pgx.Rows) error {
						var e control.OutboxEvent
						err := rows.Scan(&e.ID, &e.Kind, &e.RunID, &e.Attempt, &e.ClaimedAt, &e.Created)
						ids = append(ids, e.ID)
						return err
					})
					if err != nil || len(ids) == 0 {
						return 0, err
					}
					_, err = conns[w].Exec(ctx, `DELETE FROM public.queue WHERE id = ANY ($1)`, ids)
					return len(ids), err
				}},
			}
			for b.Loop() {
				var rates [2][]float64
				var ratios []float64
				for round := range rounds {
					for k := range sides {
						i := (k + round) % len(sides)
						rates[i] = append(rates[i], drain(b, super, workers, sides[i]))
					}
					ratios = append(ratios, rates[0][round]/rates[1][round])
				}
				b.ReportMetric(median(rates[0]), "outbox/s")
				b.ReportMetric(median(rates[1]), "hand/s")
				b.ReportMetric(median(ratios), "×hand")
			}
		})
	}
}

// side is a queue and one turn of a worker at it: how many events it took from claim to delivered, 0 when there is nothing left.
type side struct {
	name, table string
	turn        func(ctx context.Context, worker int) (int, error)
}

// drain fills a queue, lets the workers empty it, and returns the events a second.
func drain(b *testing.B, super *pgx.Conn, workers int, q side) float64 {
	b.Helper()
	const events = 10000
	run(b, super, `TRUNCATE `+q.table)
	run(b, super, `INSERT INTO `+q.table+` (kind, run_id, created) SELECT 'run.requested', 'run_' || lpad(n::text, 64, '0'), now() FROM generate_series(1, $1) n`, events)
	run(b, super, `VACUUM ANALYZE `+q.table)
	var wg sync.WaitGroup
	var done atomic.Int64
	began := time.Now()
	for w := range workers {
		wg.Go(func() {
			for {
				n, err := q.turn(b.Context(), w)
				if err != nil {
					b.Errorf("%s: %v", q.name, err)
				}
				if err != nil || n == 0 {
					return
				}
				done.Add(int64(n))
			}
		})
	}
	wg.Wait()
	took := time.Since(began).Seconds()
	if done.Load() != events {
		b.Errorf("%s: %d of %d events", q.name, done.Load(), events)
	}
	return events / took
}
