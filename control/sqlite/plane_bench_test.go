package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
)

// planeBench is a store and, beside it, a bare connection to a file of the same kind: same tables, same settings, no rules.
func planeBench(b *testing.B) (s *Store, l control.Lease, bare *sql.DB) {
	dir := b.TempDir()
	s = open(b, Config{Path: filepath.Join(dir, "weir.db")})
	b.Cleanup(func() { _ = s.Close() })
	l, err := s.Acquire(b.Context(), "job", "a", control.MaxTTL)
	if err != nil {
		b.Fatal(err)
	}
	other := open(b, Config{Path: filepath.Join(dir, "bare.db")})
	b.Cleanup(func() { _ = other.Close() })
	return s, l, other.writer
}

// report gives the medians and how fast ours is beside the bare one: 1 is as fast, 0.5 takes twice as long.
func report(b *testing.B, ours, bare []time.Duration) {
	b.ReportMetric(float64(median(ours).Microseconds()), "ours-us")
	b.ReportMetric(float64(median(bare).Microseconds()), "bare-us")
	b.ReportMetric(float64(median(bare))/float64(median(ours)), "ratio")
}

// BenchmarkEffect is a fenced effect of one row (an event is delivered) beside a bare update of one row with the same durability, in one run,
// interleaved.
func BenchmarkEffect(b *testing.B) {
	s, l, db := planeBench(b)
	var ids []int64
	for n := range 200 {
		r := planeRequest
		r.Key = fmt.Sprint(n)
		if _, _, err := s.Admit(b.Context(), r); err != nil {
			b.Fatal(err)
		}
		ids = append(ids, int64(n+1))
		if _, err := db.ExecContext(b.Context(), `INSERT INTO outbox (kind, run_id, attempt, claimant, claimed_ns, delivered, created_ns, crc) VALUES ('run.requested', ?, 0, '', 0, 0, 0, 0)`, r.Key); err != nil {
			b.Fatal(err)
		}
	}
	update, err := db.PrepareContext(b.Context(), `UPDATE outbox SET delivered = 1, crc = ? WHERE id = ?`)
	if err != nil {
		b.Fatal(err)
	}
	defer update.Close()
	var ours, bare []time.Duration
	for n := 0; b.Loop(); n++ {
		id := ids[n%len(ids)]
		if n >= len(ids) { // pending again, outside the measured time
			if err := s.write(b.Context(), func(t *txn) error {
				r, err := t.event(id)
				if err != nil {
					return err
				}
				return t.pend(r)
			}); err != nil {
				b.Fatal(err)
			}
		}
		start := time.Now()
		if err := s.Fenced(b.Context(), l, control.Deliver{EventIDs: []int64{id}}); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		if _, err := update.ExecContext(b.Context(), n, id); err != nil {
			b.Fatal(err)
		}
		ours, bare = append(ours, middle.Sub(start)), append(bare, time.Since(middle))
	}
	report(b, ours, bare)
}

// BenchmarkPublish is a publication of that many rows beside the bare insert of the same rows into the same table by the same statements (64 rows
// each), in one run, interleaved. The bare side is given its digests.
func BenchmarkPublish(b *testing.B) {
	for _, rows := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			s, l, db := planeBench(b)
			st, err := db.PrepareContext(b.Context(), insertPublications+tuples(batches[0], publicationsWidth))
			if err != nil {
				b.Fatal(err)
			}
			defer st.Close()
			one, err := db.PrepareContext(b.Context(), insertPublications+tuples(1, publicationsWidth))
			if err != nil {
				b.Fatal(err)
			}
			defer one.Close()
			var ours, bare []time.Duration
			for n := 0; b.Loop(); n++ {
				p := control.Publish{}
				var args []any
				for i := range rows {
					pub := control.Publication{Key: fmt.Sprintf("row/%06d/%06d", n, i), RunID: "run_1",
						Value: fmt.Appendf(nil, `{"event":"exchange.event.%d.%d","ema":%d.25,"time":"2026-01-05T14:30:00Z"}`, n, i, i)}
					digest := sha256.Sum256(pub.Value)
					args = append(args, pub.Key, digest[:], pub.RunID, int64(1), pub.Value)
					p.Publications = append(p.Publications, pub)
				}
				start := time.Now()
				if err := s.Fenced(b.Context(), l, p); err != nil {
					b.Fatal(err)
				}
				middle := time.Now()
				if err := bareInsert(b.Context(), db, st, one, args); err != nil {
					b.Fatal(err)
				}
				ours, bare = append(ours, middle.Sub(start)), append(bare, time.Since(middle))
			}
			report(b, ours, bare)
		})
	}
}

func bareInsert(ctx context.Context, db *sql.DB, many, one *sql.Stmt, args []any) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after COMMIT it does nothing
	ctx = context.WithoutCancel(ctx)
	m, o := tx.StmtContext(ctx, many), tx.StmtContext(ctx, one)
	for width := batches[0] * publicationsWidth; len(args) > 0; {
		st, n := m, width
		if len(args) < width {
			st, n = o, publicationsWidth
		}
		if _, err := st.ExecContext(ctx, args[:n]...); err != nil {
			return err
		}
		args = args[n:]
	}
	return tx.Commit()
}
