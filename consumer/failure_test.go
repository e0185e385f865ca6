package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// TestKillsAnywhere kills the consumer at random points (a handler has returned, a copy stands, before and after a commit), starts it again, and holds
// the whole to what it promises: nothing is lost, whatever was in flight, and the journal never goes back.
func TestKillsAnywhere(t *testing.T) {
	t.Parallel()
	points := map[string]int{}
	var mu sync.Mutex
	t.Run("seeds", func(t *testing.T) {
		for seed := range uint64(40) {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					for point := range killAnywhere(t, seed) {
						mu.Lock()
						points[point]++
						mu.Unlock()
					}
				})
			})
		}
	})
	for _, point := range []string{"handled", "published", "commit", "committed"} {
		if points[point] == 0 {
			t.Errorf("no kill at %q: %v", point, points)
		}
	}
}

func killAnywhere(t *testing.T, seed uint64) (killed map[string]bool) {
	r := rand.New(rand.NewPCG(seed, 0x6b696c6c))
	w := newWorld(t, 2, false)
	w.put(0, 0, 60)
	w.put(1, 0, 60)
	ended := map[string]string{}
	var mu sync.Mutex
	handler := func(_ context.Context, d Delivery) Outcome {
		mu.Lock()
		defer mu.Unlock()
		var p, n int
		fmt.Sscanf(string(d.Value), "%d:%d", &p, &n)
		switch {
		case n%11 == 5: // never succeeds
			if d.Attempt >= 3 {
				ended[string(d.Value)] = "dead"
			}
			return Retry("never")
		case n%7 == 3 && d.Attempt < 3:
			return RetryAfter(time.Duration(n)*time.Second, "later")
		case n%5 == 4:
			ended[string(d.Value)] = "dropped"
			return Drop("broken")
		}
		ended[string(d.Value)] = "acked"
		return Ack()
	}
	killed = map[string]bool{}
	for life := 0; ; life++ {
		kill, dead := context.WithCancel(t.Context())
		target, left := [...]string{"handled", "published", "commit", "committed"}[r.IntN(4)], 1+r.IntN(20)
		if life > 12 {
			target = "" // in peace
		}
		cfg := w.config(handler)
		cfg.Kill, cfg.MaxAttempts, cfg.Retry, cfg.Standby = kill, 3, w.back(), true
		cfg.Quarantine = true
		cfg.Order, cfg.Concurrency, cfg.CommitEvery = ByKey, 1+r.IntN(4), time.Duration(r.IntN(3)-1)*100*time.Millisecond
		cfg.hook = func(point string) {
			mu.Lock()
			defer mu.Unlock()
			if point != target {
				return
			}
			if left--; left == 0 {
				killed[point] = true
				dead()
			}
		}
		before := w.committed("r")
		stop := w.start(w.consumer(cfg))
		after(10 * time.Minute)
		_, err := stop()
		if !errors.Is(err, ErrKilled) {
			wantNil(t, err)
		}
		dead()
		synctest.Wait()
		if goneBack(before, w.committed("r")) {
			t.Fatalf("the journal went back from %s to %s", before, w.committed("r"))
		}
		if err == nil && life > 12 {
			break
		}
	}
	quarantined := map[string]int{}
	for _, q := range w.quarantine("r") {
		rec, _ := OpenEnvelope(record.Record{Value: q.Value})
		quarantined[string(rec.Value)]++
	}
	for p := range 2 {
		for n := range 60 {
			id := fmt.Sprintf("%d:%d", p, n)
			if ended[id] == "" || (ended[id] == "dead") != (quarantined[id] > 0) {
				t.Errorf("%s ended as %q, %d times in the quarantine", id, ended[id], quarantined[id])
			}
		}
	}
	end, _ := w.log.End(0).Int64()
	w.want("committed", w.committed("r"), fmt.Sprintf("0=%d 1=60", end))
	return killed
}

// goneBack compares two answers of committed.
func goneBack(before, now string) bool {
	at := func(s string, p int) (n int) {
		for _, f := range strings.Fields(s) {
			if rest, ok := strings.CutPrefix(f, fmt.Sprintf("%d=", p)); ok {
				fmt.Sscan(rest, &n)
			}
		}
		return n
	}
	return at(now, 0) < at(before, 0) || at(now, 1) < at(before, 1)
}

// A lease is lost in the middle of a retry delay: the copy is never written by who lost it, contexts end, and the next owner gets the record again as the
// same attempt.
func TestLeaseLostInARetryDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 2)
		var cause error
		cfg := w.config(func(ctx context.Context, d Delivery) Outcome {
			if string(d.Value) == "0:0" {
				return RetryAfter(time.Minute, "not yet")
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			return Ack()
		})
		cfg.Retry = w.back()
		first := w.consumer(cfg)
		stop := w.start(first)
		after(10 * time.Second)
		// The store stops answering to renewals for longer than the ttl.
		for i := range 3 {
			w.store.Inject(controltest.Fault{Op: controltest.OpRenew, Call: i + 1, Err: codes.New(codes.StoreUnavailable, "away")})
		}
		after(30 * time.Second)
		_, err := stop()
		wantCode(t, err, codes.StreamFenceStale)
		wantCode(t, cause, codes.StreamFenceStale)
		w.want("handled", w.seen(), "0:0#1 0:1#1")

		next := w.config(nil)
		stop = w.start(w.consumer(next))
		after(10 * time.Minute)
		w.want("handled", w.seen(), "0:0#1 0:0#1 0:1#1 0:1#1")
		w.want("committed", w.committed("r"), "0=2")
		if len(w.copies) != 0 {
			t.Error("the copy was written by who had lost the lease")
		}
		_, err = stop()
		wantNil(t, err)
		w.released()
	})
}

// Whoever was taken over while it did not look commits nothing, however late it is.
func TestTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 2)
		release := make(chan struct{})
		cfg := w.config(func(context.Context, Delivery) Outcome {
			<-release
			return Ack()
		})
		stop := w.start(w.consumer(cfg))
		synctest.Wait()
		second, err := control.Lease{}, error(nil)
		w.store.Now = func() time.Time { return time.Now().Add(time.Hour) }
		if second, err = w.store.Acquire(t.Context(), control.StreamLease("r"), "other", time.Hour); err != nil || second.Token != 2 {
			t.Fatal(second, err)
		}
		close(release)
		synctest.Wait()
		_, err = stop()
		wantCode(t, err, codes.StreamFenceStale)
		w.want("committed", w.committed("r"), "")
	})
}

func TestAnotherOwner(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 2)
		stop := w.start(w.consumer(w.config(nil)))
		synctest.Wait()
		_, err := w.consumer(w.config(nil)).Run(t.Context())
		wantCode(t, err, codes.StreamLeaseHeld)
		cfg := w.config(nil)
		cfg.Standby = true
		waiting := w.start(w.consumer(cfg))
		after(time.Second)
		_, err = stop()
		wantNil(t, err)
		w.put(0, 2, 3)
		after(time.Second)
		w.want("handled", w.seen(), "0:0#1 0:1#1 0:2#1")
		_, err = waiting()
		wantNil(t, err)
		w.want("committed", w.committed("r"), "0=3")
	})
}

// Answers to commits are lost, and commits fail: each is found out, and nothing is handled twice for it.
func TestCommitsOfUnknownFate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.store.Inject(controltest.LoseAnswer(1), controltest.FailCommit(2), controltest.FailCommit(3), controltest.LoseAnswer(5))
		cfg := w.config(nil)
		stop := w.start(w.consumer(cfg))
		for i := range 5 {
			w.put(0, i, i+1)
			after(time.Second)
			w.want("committed", w.committed("r"), fmt.Sprintf("0=%d", i+1))
		}
		w.store.AllFired(t)
		_, err := stop()
		wantNil(t, err)
		w.want("handled", w.seen(), "0:0#1 0:1#1 0:2#1 0:3#1 0:4#1")
	})
}

// A stop lets handlers end; one that takes longer than Drain gets the end of its context, and one that does not heed it is abandoned with the lease kept.
func TestDraining(t *testing.T) {
	for _, c := range []struct {
		name       string
		takes      time.Duration
		heeds      bool
		at, causes string
		ends       time.Duration
		kept       bool
	}{
		{"in time", 20 * time.Second, true, "0=1", "", 19 * time.Second, false},
		{"too long", time.Hour, true, "", ErrRevoked.Error(), 30 * time.Second, false},
		{"heedless", time.Hour, false, "", "", 40 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t, 1, false)
				w.put(0, 0, 3)
				causes := ""
				cfg := w.config(func(ctx context.Context, _ Delivery) Outcome {
					heed := ctx.Done()
					if !c.heeds {
						heed = nil
					}
					select {
					case <-time.After(c.takes):
						return Ack()
					case <-heed:
						causes = context.Cause(ctx).Error()
						return Retry("interrupted")
					}
				})
				stop := w.start(w.consumer(cfg))
				after(time.Second)
				began := time.Now()
				_, err := stop()
				wantNil(t, err)
				w.want("committed", w.committed("r"), c.at)
				w.want("cause", causes, c.causes)
				w.want("handled", w.seen(), "0:0#1")
				if took := time.Since(began); took != c.ends {
					t.Errorf("it took %v, want %v", took, c.ends)
				}
				info, _, err := w.store.LookupLease(t.Context(), control.StreamLease("r"))
				if err != nil || info.Valid != c.kept {
					t.Errorf("lease %+v, %v", info, err)
				}
				after(2 * time.Hour)
				w.want("committed later", w.committed("r"), c.at)
				if c.heeds {
					w.released()
				}
			})
		})
	}
}

// Rewind reads again what was refused; a completion from before it changes nothing.
func TestRewind(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 6)
		var early []Delivery
		var cause error
		cfg := w.config(func(ctx context.Context, d Delivery) Outcome {
			if string(d.Value) == "0:5" && w.times("0:5#1") == 1 {
				<-ctx.Done()
				cause = context.Cause(ctx)
				return Ack()
			}
			switch n := w.times(string(d.Value) + "#1"); {
			case n == 1 && string(d.Value) == "0:2":
				return Retry("refused")
			case n == 1 && string(d.Value) == "0:3":
				early = append(early, d)
				return Later
			case n == 1 && string(d.Value) == "0:4":
				return RetryAfter(time.Hour, "later")
			}
			return Ack()
		})
		cfg.Explicit, cfg.Retry = true, w.back()
		c := w.consumer(cfg)
		stop := w.start(c)
		synctest.Wait()
		w.want("committed", w.committed("r"), "0=2")
		wantNil(t, c.Rewind(0))
		if err := early[0].Settle(Ack()); !errors.Is(err, ErrVoid) {
			t.Errorf("a late ack: %v", err)
		}
		after(2 * time.Hour)
		if !errors.Is(cause, ErrRewound) || len(w.copies) != 0 {
			t.Errorf("cause %v, %d copies", cause, len(w.copies))
		}
		w.want("handled", w.seen(), "0:0#1 0:1#1 0:2#1 0:2#1 0:3#1 0:3#1 0:4#1 0:4#1 0:5#1 0:5#1")
		w.want("committed", w.committed("r"), "0=6")
		if err := c.Rewind(7); err == nil {
			t.Error("a partition that is not there")
		}
		r, err := stop()
		wantNil(t, err)
		if r.Counts.Records != 6 {
			t.Errorf("%+v", r.Counts)
		}
		w.released()
		if err := c.Rewind(0); err == nil {
			t.Error("rewound after the end")
		}
	})
}

// B18: a partition that cannot be read any further does not keep the others from going on, also after a restart.
func TestAPoisonedPartition(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 4, true)
		for p := range int32(4) {
			w.put(p, 0, 100)
		}
		for life := range 3 {
			w.log.FailAt(1, record.Offset(50), &sources.Fault{Partition: 1, Need: record.Offset(50), Err: codes.New(codes.PoisonBatch, "damaged")})
			_, err := w.consumer(w.config(nil)).Run(t.Context())
			wantCode(t, err, codes.PoisonBatch)
			w.want(fmt.Sprint("life ", life), w.committed("r"), "0=100 1=50 2=100 3=100")
		}
		if len(w.handled) != 350 || len(w.held) != 3 {
			t.Errorf("%d handled, held %+v", len(w.handled), w.held)
		}
	})
}

// B18: attempts outlive restarts, since they travel with the copies; a record that always fails is given up after as many as declared.
func TestAttemptsOutliveRestarts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 3)
		for range 5 {
			cfg := w.config(func(_ context.Context, d Delivery) Outcome {
				if string(d.Value) == "0:1" {
					return RetryAfter(time.Minute, "always")
				}
				return Ack()
			})
			cfg.MaxAttempts, cfg.Retry, cfg.Quarantine = 3, w.back(), true
			stop := w.start(w.consumer(cfg))
			after(70 * time.Second) // one delay
			_, err := stop()
			wantNil(t, err)
		}
		w.want("handled", w.seen(), "0:0#1 0:1#1 0:1#2 0:1#2 0:1#3 0:2#1")
		if q := w.quarantine("r"); len(q) != 1 || q[0].Position.String() != "4" {
			t.Errorf("%+v", q)
		}
		w.want("committed", w.committed("r"), "0=5")
	})
}

// A handler that ends its goroutine ends neither the partition nor the consumer.
func TestAHandlerEndsItsGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, true)
		w.put(0, 0, 9)
		cfg := w.config(func(_ context.Context, d Delivery) Outcome {
			if d.Attempt == 1 && string(d.Value) != "0:4" {
				runtime.Goexit()
			}
			return Ack()
		})
		cfg.Retry, cfg.MaxAttempts, cfg.Order, cfg.Concurrency = w.back(), 2, ByKey, 2
		r, err := w.consumer(cfg).Run(t.Context())
		wantNil(t, err)
		if len(w.copies) != 8 || r.Counts.Consumed != 17 {
			t.Errorf("%d copies, %+v", len(w.copies), r.Counts)
		}
		w.released()
	})
}

// At its bound a partition waits at the source, the lease is renewed all the same, and it goes on when the oldest record ends.
func TestCapacity(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, false)
		w.put(0, 0, 100)
		w.put(1, 0, 100)
		release := make(chan struct{})
		cfg := w.config(func(_ context.Context, d Delivery) Outcome {
			if string(d.Value) == "0:0" {
				<-release
			}
			return Ack()
		})
		cfg.Order, cfg.Concurrency, cfg.Capacity, cfg.FetchSize = ByKey, 3, 10, 7
		c := w.consumer(cfg)
		stop := w.start(c)
		after(10 * time.Minute) // forty times the ttl
		s := c.Status()
		if s[0].InFlight != 10 || !s[0].Paused || s[1].InFlight != 0 || s[1].Paused || s[1].Committed != record.Offset(100) {
			t.Errorf("%+v", s)
		}
		close(release)
		after(time.Second)
		w.want("committed", w.committed("r"), "0=100 1=100")
		_, err := stop()
		wantNil(t, err)
		w.released()
	})
}

// The source fails for a while: reading goes on behind what was read, and nothing is handled twice.
func TestTheSourceFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 2, true)
		w.put(0, 0, 30)
		w.put(1, 0, 30)
		w.log.FailInfo(codes.New(codes.BrokerUnreachable, "away"))
		w.log.FailOpen(codes.New(codes.BrokerUnreachable, "away"), nil, codes.New(codes.SourceFailure, "away"))
		for i := range int64(6) {
			w.log.FailAt(int32(i%2), record.Offset(3+4*i), codes.New(codes.SourceFailure, "away"))
		}
		r, err := w.consumer(w.config(nil)).Run(t.Context())
		wantNil(t, err)
		if r.Counts.Consumed != 60 || len(w.handled) != 60 {
			t.Errorf("%+v, %d handled", r.Counts, len(w.handled))
		}
		w.released()
	})
}

// A log with an end of which something is not done stays open, and says so.
func TestTheEndIsNotDone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, true)
		w.put(0, 0, 3)
		_, err := w.consumer(w.config(func(_ context.Context, d Delivery) Outcome {
			return Of(map[bool]error{true: errDown}[string(d.Value) == "0:1"])
		})).Run(t.Context())
		wantCode(t, err, codes.RecordsUndone)
		w.want("committed", w.committed("r"), "0=1")
		_, err = w.consumer(w.config(nil)).Run(t.Context())
		wantNil(t, err)
		w.want("committed", w.committed("r"), "0=3")
	})
}

// Where a new run begins is in the journal before the first read, so that a restart skips nothing.
func TestFrom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 5)
		asked := 0
		for range 2 {
			cfg := w.config(nil)
			cfg.From = func(context.Context, int32) (record.Position, error) {
				asked++
				return w.log.End(0), nil
			}
			stop := w.start(w.consumer(cfg))
			synctest.Wait()
			_, err := stop()
			wantNil(t, err)
			w.put(0, 5, 7) // between the two
		}
		w.want("committed", w.committed("r"), "0=7")
		w.want("handled", w.seen(), "0:5#1 0:6#1")
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}

func TestVerdictsOfCopiers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 1)
		calls := 0
		cfg := w.config(func(_ context.Context, d Delivery) Outcome {
			if d.Attempt == 1 {
				return Retry("busy")
			}
			return Ack()
		})
		back := w.back()
		cfg.MaxAttempts = 2
		cfg.Retry = CopierFunc(func(ctx context.Context, r record.Record) error {
			if calls++; calls < 8 {
				return errDown
			}
			return back.Copy(ctx, r)
		})
		stop := w.start(w.consumer(cfg))
		after(2 * time.Minute)
		w.want("committed", w.committed("r"), "0=2")
		if calls != 8 || len(w.held) != 1 || !errors.Is(w.held[0].Cause, errDown) {
			t.Errorf("%d calls, held %+v", calls, w.held)
		}
		_, err := stop()
		wantNil(t, err)
	})
}

func TestRefusalIsTyped(t *testing.T) {
	t.Parallel()
	v := partitions.Terms{}.Judge(Retry("x"), 1)
	var r *partitions.Refusal
	if !errors.As(v.Err, &r) || !errors.Is(v.Err, partitions.ErrUnsupported) || r.Outcome.Reason() != "x" {
		t.Errorf("%v", v.Err)
	}
}
