package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

func TestABoundedLogIsConsumedToItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, true)
		w.put(0, 0, 5)
		w.put(1, 0, 3)
		w.log.Skip(1, 4) // positions that hold nothing are passed too
		c := w.consumer(w.config(nil))
		r, err := c.Run(t.Context())
		wantNil(t, err)
		w.want("handled", w.seen(), "0:0#1 0:1#1 0:2#1 0:3#1 0:4#1 1:0#1 1:1#1 1:2#1")
		w.want("next", fmt.Sprint(r.Next[0], r.Counts.Records, r.Counts.Consumed, r.Counts.Omitted), "5 8 8 0")
		w.released()
		_, err = w.consumer(w.config(nil)).Run(t.Context())
		wantCode(t, err, codes.RunFinished)
	})
}

// The example: 1 done, 3 running, 4 and 5 done, 6 running; the store is written when the position moves and not otherwise.
func TestTheContiguousRunIsCommitted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		for i := range 7 {
			w.log.Append(0, record.Record{Key: fmt.Append(nil, i), Value: fmt.Append(nil, i)})
		}
		gates := map[string]chan struct{}{}
		for i := range 7 {
			gates[fmt.Sprint(i)] = make(chan struct{})
		}
		cfg := w.config(func(_ context.Context, d Delivery) Outcome {
			<-gates[string(d.Value)]
			return Ack()
		})
		cfg.Order, cfg.Concurrency = ByKey, 7
		stop := w.start(w.consumer(cfg))
		synctest.Wait()
		for _, s := range []struct{ open, at string }{{"0", "0=1"}, {"1", "0=2"}, {"2", "0=3"}, {"4", "0=3"}, {"5", "0=3"}, {"3", "0=6"}, {"6", "0=7"}} {
			before := w.epoch("r")
			close(gates[s.open])
			synctest.Wait()
			w.want("after "+s.open, w.committed("r"), s.at)
			if moved := s.open != "4" && s.open != "5"; moved != (w.epoch("r") != before) {
				t.Errorf("after %s: epoch %d after %d", s.open, w.epoch("r"), before)
			}
		}
		_, err := stop()
		wantNil(t, err)
		w.released()
	})
}

func TestOrderWithinAKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, true)
		w.put(0, 0, 300)
		w.put(1, 0, 300)
		var mu sync.Mutex
		last, at, most := map[string]int{}, map[string]int{}, 0
		cfg := w.config(func(_ context.Context, d Delivery) Outcome {
			var p, n int
			fmt.Sscanf(string(d.Value), "%d:%d", &p, &n)
			key := fmt.Sprint(p, string(d.Key))
			mu.Lock()
			at[key]++
			at["all"]++
			most = max(most, at["all"])
			if at[key] > 1 || n < last[key] {
				t.Errorf("%s after %d, %d of key %s at once", d.Value, last[key], at[key], key)
			}
			last[key] = n
			mu.Unlock()
			<-time.After(time.Duration(n%7) * time.Millisecond)
			mu.Lock()
			at[key]--
			at["all"]--
			mu.Unlock()
			return Ack()
		})
		cfg.Order, cfg.Concurrency, cfg.Capacity = ByKey, 4, 50
		r, err := w.consumer(cfg).Run(t.Context())
		wantNil(t, err)
		if r.Counts.Consumed != 600 || most < 4 || most > 6 {
			t.Errorf("%d consumed, at most %d at once", r.Counts.Consumed, most)
		}
		w.released()
	})
}

// TestRows is every row of the settlement table, through the whole consumer.
func TestRows(t *testing.T) {
	t.Parallel()
	retry := func(context.Context, Delivery) Outcome { return Retry("busy") }
	for _, row := range []struct {
		name    string
		h       Handler
		change  func(w *world, c *Config)
		handled string
		// at is the committed position of a log of one record, its copies behind it.
		at, counts string
		dead       int
		held       error
	}{
		{"ack", nil, nil, "0:0#1", "0=1", "1 1 0", 0, nil},
		{"drop", func(context.Context, Delivery) Outcome { return Drop("broken") }, nil, "0:0#1", "0=1", "1 0 1", 0, nil},
		{"retry, nothing declared", retry, func(w *world, c *Config) { c.Retry = w.back() }, "0:0#1", "", "0 0 0", 0, partitions.ErrUnsupported},
		{"retry with a limit", retry, func(w *world, c *Config) { c.Retry, c.MaxAttempts = w.back(), 3 }, "0:0#1 0:0#2 0:0#3", "0=3", "3 2 1", 0, nil},
		{"retry with a limit and dead letters", retry, func(w *world, c *Config) { c.Retry, c.MaxAttempts, c.DeadLetter = w.back(), 2, w.graveyard() }, "0:0#1 0:0#2", "0=2", "2 1 1", 1, nil},
		{"retry with a quarantine", retry, func(w *world, c *Config) { c.Retry, c.MaxAttempts, c.Quarantine = w.back(), 2, true }, "0:0#1 0:0#2", "0=2", "2 1 1", 0, nil},
		{"one attempt", retry, func(_ *world, c *Config) { c.MaxAttempts = 1 }, "0:0#1", "0=1", "1 0 1", 0, nil},
		{"retry with dead letters and no target", retry, func(w *world, c *Config) { c.DeadLetter = w.graveyard() }, "0:0#1", "", "0 0 0", 0, partitions.ErrUnsupported},
		{"no outcome", func(context.Context, Delivery) Outcome { return Later }, nil, "0:0#1", "", "0 0 0", 0, partitions.ErrUnsupported},
		{"a panic", func(context.Context, Delivery) Outcome { panic("oops") }, func(w *world, c *Config) { c.Retry, c.MaxAttempts, c.DeadLetter = w.back(), 2, w.graveyard() }, "0:0#1 0:0#2", "0=2", "2 1 1", 1, nil},
		{"a panic, by policy", func(context.Context, Delivery) Outcome { panic("oops") }, func(_ *world, c *Config) {
			c.OnPanic = func(v any, _ Delivery) Outcome { return Drop(fmt.Sprint(v)) }
		}, "0:0#1", "0=1", "1 0 1", 0, nil},
		{"a panic in the policy", func(context.Context, Delivery) Outcome { panic("oops") }, func(_ *world, c *Config) {
			c.MaxAttempts, c.OnPanic = 1, func(any, Delivery) Outcome { panic("again") }
		}, "0:0#1", "0=1", "1 0 1", 0, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 1, false)
				w.put(0, 0, 1)
				cfg := w.config(row.h)
				if row.change != nil {
					row.change(w, &cfg)
				}
				stop := w.start(w.consumer(cfg))
				synctest.Wait()
				w.want("handled", w.seen(), row.handled)
				w.want("committed", w.committed("r"), row.at)
				r, err := stop()
				wantNil(t, err)
				w.want("counts", fmt.Sprint(r.Counts.Records, r.Counts.Consumed, r.Counts.Omitted), row.counts)
				if len(w.dead) != row.dead || (row.held != nil) != (len(w.held) > 0) || row.held != nil && !errors.Is(w.held[0].Cause, row.held) {
					t.Errorf("%d dead letters; held %+v", len(w.dead), w.held)
				}
				w.released()
			})
		})
	}
}

func TestRetryAfterWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 3)
		cfg := w.config(func(_ context.Context, d Delivery) Outcome {
			if string(d.Value) == "0:0" && d.Attempt == 1 {
				return RetryAfter(time.Minute, "not yet")
			}
			return Ack()
		})
		cfg.Retry = w.back()
		c := w.consumer(cfg)
		stop := w.start(c)
		after(59 * time.Second)
		w.want("committed", w.committed("r"), "")
		if s := c.Status()[0]; s.Delayed != 1 || s.InFlight != 3 || s.Oldest != record.Offset(0) || s.Next != record.Offset(3) || s.Committed != record.Offset(0) {
			t.Errorf("%+v", s)
		}
		after(2 * time.Second)
		w.want("handled", w.seen(), "0:0#1 0:0#2 0:1#1 0:2#1")
		w.want("committed", w.committed("r"), "0=4")
		if h := w.copies[0].Headers; len(h) != 2 || h[0].Key != "h" || h[1].Key != partitions.HeaderRetryCount || string(h[1].Value) != "1" {
			t.Errorf("headers of the copy: %q", h)
		}
		_, err := stop()
		wantNil(t, err)
	})
}

// What a dead letter carries, in a log for them and in the journal.
func TestDeadLetters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.log.Append(0, record.Record{Key: []byte("k"), Value: []byte{0xff, 0}, Headers: []record.Header{{Key: record.HeaderEventID, Value: []byte("e1")}, {Key: "h", Value: nil}}})
		for _, quarantine := range []bool{false, true} {
			cfg := w.config(func(context.Context, Delivery) Outcome { return Retry("no such account") })
			cfg.RunID = fmt.Sprint("r", quarantine)
			cfg.MaxAttempts, cfg.Quarantine = 1, quarantine
			if !quarantine {
				cfg.DeadLetter = w.graveyard()
			}
			stop := w.start(w.consumer(cfg))
			synctest.Wait()
			_, err := stop()
			wantNil(t, err)
		}
		rows := w.quarantine("rtrue")
		if len(rows) != 1 || rows[0].Reason != ReasonDeadLetter || rows[0].EventID != "e1" || rows[0].Detail != "no such account" {
			t.Fatalf("%+v", rows)
		}
		kept, ok := OpenEnvelope(record.Record{Value: rows[0].Value})
		if !ok {
			t.Fatalf("%s", rows[0].Value)
		}
		for _, r := range []record.Record{w.dead[0], kept} {
			var got []string
			for _, h := range r.Headers {
				got = append(got, h.Key+"="+string(h.Value))
			}
			run := "rfalse"
			if got[8] == HeaderDeadRun+"=rtrue" {
				run = "rtrue"
			}
			want := "event_id=e1 h= weir-dead-source=in weir-dead-partition=0 weir-dead-position=0 weir-dead-sub=0 weir-dead-reason=no such account weir-dead-attempts=1 weir-dead-run=" + run + " weir-dead-fence-token=1"
			w.want("headers", strings.Join(got, " "), want)
			if string(r.Key) != "k" || !slices.Equal(r.Value, []byte{0xff, 0}) || r.Headers[1].Value != nil {
				t.Errorf("%+v", r)
			}
		}
	})
}

// While the log for dead letters is missing, the record stays undone and the cause is told once; it goes on by itself when the log is there.
func TestDeadLetterTargetMissing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 3)
		var there atomic.Bool
		cfg := w.config(func(_ context.Context, d Delivery) Outcome {
			return Of(map[bool]error{true: errDown}[string(d.Value) == "0:1"])
		})
		cfg.MaxAttempts = 1
		cfg.DeadLetter = CopierFunc(func(ctx context.Context, r record.Record) error {
			if !there.Load() {
				return codes.New(codes.TopicMissing, "topic %q does not exist", "dead")
			}
			return w.graveyard().Copy(ctx, r)
		})
		stop := w.start(w.consumer(cfg))
		after(10 * time.Minute)
		w.want("committed", w.committed("r"), "0=1")
		if len(w.held) != 2 || !codes.Has(w.held[0].Cause, codes.TopicMissing) || w.held[0].Position != record.Offset(1) || w.held[1].Cause != nil {
			t.Errorf("held: %+v", w.held) // the cause, and then the alarm after five minutes
		}
		there.Store(true)
		after(time.Minute)
		w.want("committed", w.committed("r"), "0=3")
		if len(w.dead) != 1 {
			t.Errorf("%d dead letters", len(w.dead))
		}
		_, err := stop()
		wantNil(t, err)
	})
}

// A copy that its log does not take goes to the dead letters, with the attempts that were made.
func TestCopyTooLarge(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.log.Append(0, record.Record{Value: make([]byte, 2000)})
		cfg := w.config(func(context.Context, Delivery) Outcome { return Retry("busy") })
		cfg.Retry, cfg.DeadLetter = Enveloped(w.back(), 1000), w.graveyard()
		stop := w.start(w.consumer(cfg))
		synctest.Wait()
		_, err := stop()
		wantNil(t, err)
		w.want("committed", w.committed("r"), "0=1")
		if len(w.copies) != 0 || len(w.dead) != 1 || len(w.dead[0].Value) != 2000 || partitions.Attempt(w.dead[0].Headers) != 1 || !strings.Contains(fmt.Sprintf("%s", w.dead[0].Headers), "RECORD_TOO_LARGE") {
			t.Errorf("%d copies, dead: %+v", len(w.copies), w.dead)
		}
	})
}

// Retries go through a log without headers in envelopes.
func TestEnvelopesOnTheWay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 1)
		w.log.Append(0, record.Record{Value: []byte(`{"format":"weir.envelope/1","no`)})
		var seen []string
		cfg := w.config(func(_ context.Context, d Delivery) Outcome {
			seen = append(seen, fmt.Sprintf("%s %s %s %d", d.Key, d.Value, d.Headers, d.Attempt))
			if d.Attempt < 3 && d.Key != nil {
				return Retry("busy")
			}
			return Ack()
		})
		cfg.Retry, cfg.MaxAttempts, cfg.Envelope = Enveloped(w.back(), MaxKinesisRecord), 9, true
		stop := w.start(w.consumer(cfg))
		synctest.Wait()
		_, err := stop()
		wantNil(t, err)
		w.want("seen", strings.Join(seen, "; "), "k0 0:0 [{h v}] 1;  {\"format\":\"weir.envelope/1\",\"no [] 1; k0 0:0 [{h v} {x-ruststream-retry-count 1}] 2; k0 0:0 [{h v} {x-ruststream-retry-count 2}] 3")
		w.want("committed", w.committed("r"), "0=4")
	})
}

func TestExplicitSettlement(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 4)
		var got []Delivery
		cfg := w.config(func(_ context.Context, d Delivery) Outcome {
			got = append(got, d)
			return Later
		})
		cfg.Explicit = true
		stop := w.start(w.consumer(cfg))
		synctest.Wait()
		if len(got) != 4 {
			t.Fatalf("%d deliveries", len(got))
		}
		wantNil(t, got[2].Settle(Ack()))
		synctest.Wait()
		w.want("committed", w.committed("r"), "")
		if err := got[0].Settle(Retry("busy")); !errors.Is(err, partitions.ErrUnsupported) {
			t.Errorf("got %v", err)
		}
		wantNil(t, got[0].Settle(Ack()))
		wantNil(t, got[1].Settle(Drop("no")))
		if err := got[2].Settle(Ack()); !errors.Is(err, ErrSettled) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		w.want("committed", w.committed("r"), "0=3")
		go func() {
			<-time.After(5 * time.Second) // while it drains
			if err := got[3].Settle(Ack()); err != nil {
				t.Error(err)
			}
		}()
		_, err := stop()
		wantNil(t, err)
		w.want("committed", w.committed("r"), "0=4")
		if err := got[3].Settle(Ack()); err == nil {
			t.Error("settled twice")
		}
		w.released()
	})
}

// Settled one by one in any order, the journal follows after each: it stands just before the oldest undone record, and has an epoch more exactly when that
// has moved.
func TestTheJournalFollowsAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const n = 60
				w := newWorld(t, 1, false)
				w.put(0, 0, n)
				var open []Delivery
				cfg := w.config(func(_ context.Context, d Delivery) Outcome {
					open = append(open, d)
					return Later
				})
				cfg.Explicit = true
				stop := w.start(w.consumer(cfg))
				synctest.Wait()
				done, at := map[int64]bool{}, int64(0)
				r := rand.New(rand.NewPCG(seed, 0x6f72646572))
				for _, i := range r.Perm(n) {
					epoch := w.epoch("r")
					if err := open[i].Settle([...]Outcome{Ack(), Drop("no")}[r.IntN(2)]); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					position, _ := open[i].Position.Int64()
					done[position] = true
					before := at
					for done[at] {
						at++
					}
					if at > 0 {
						w.want("committed", w.committed("r"), fmt.Sprintf("0=%d", at))
					}
					if moved := at > before; moved != (w.epoch("r") == epoch+1) || !moved && w.epoch("r") != epoch {
						t.Fatalf("from %d to %d: epoch %d after %d", before, at, w.epoch("r"), epoch)
					}
				}
				_, err := stop()
				wantNil(t, err)
				w.released()
			})
		})
	}
}
