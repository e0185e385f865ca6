package consumer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

// Over PostgreSQL, as the role of the runtime: claims, dead letters in the quarantine, a kill with the lease held, and the take-over that follows it.
func TestOverPostgres(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, func(ctx context.Context, url string) error {
		_, err := postgres.Migrate(ctx, url)
		return err
	})
	store, err := postgres.Open(t.Context(), postgres.Config{URL: db.Runtime})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log := sourcetest.New(sourcetest.Config{Partitions: 2, Bounded: true})
	for i := range 40 {
		log.Append(int32(i%2), record.Record{Key: fmt.Append(nil, i%5), Value: fmt.Append(nil, i)})
	}
	for life := range 2 {
		kill, dead := context.WithCancel(t.Context())
		c, err := New(Config{Source: log, Store: store, RunID: "r", Kill: kill, MaxAttempts: 1, MaxClaims: 3, Quarantine: true, Standby: true, TTL: 2 * time.Second, Order: ByKey, Concurrency: 3,
			Handler: func(ctx context.Context, d Delivery) Outcome {
				switch {
				case life == 0 && string(d.Value) == "30":
					dead()
					<-ctx.Done()
				case d.Position == record.Offset(7):
					return Retry("\x00\xff never")
				}
				return Ack()
			}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.Run(t.Context())
		dead()
		if life == 0 && !errors.Is(err, ErrKilled) || life == 1 && err != nil {
			t.Fatal(err)
		}
		if life == 1 && fmt.Sprint(r.Next, r.Counts.Records, r.Counts.Omitted) != "map[0:20 1:20] 40 2" {
			t.Errorf("%+v", r)
		}
	}
	n := 0
	if err := store.Quarantine(t.Context(), "r", func(q partitions.Quarantined) error {
		n++
		if rec, ok := OpenEnvelope(record.Record{Value: q.Value}); !ok || q.Position != record.Offset(7) || string(rec.Value) != fmt.Sprint(14+q.Partition) {
			t.Errorf("%+v", q)
		}
		return nil
	}); err != nil || n != 2 {
		t.Errorf("%d dead letters, %v", n, err)
	}
}
