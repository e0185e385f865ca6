package actors

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

// Windows from one record to many, windows of bytes smaller than a batch, fetches larger than the window: what is under way stays within
// its window, and whatever was held comes in the end.
func TestCreditStorms(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	for seed := range uint64(15) {
		rng := seeded(t, 100+seed)
		in := randomInput(rng, 1+rng.IntN(6), 400)
		want := plainLoop(t, plan, in, 50)
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, func(c *Config, s *sourcetest.Config) {
				c.FetchSize, c.EpochRecords = 1+rng.IntN(100), int64(1+rng.IntN(100))
				c.CreditRecords, c.CreditBytes = int64(1+rng.IntN(50)), int64(1+rng.IntN(20_000))
				c.EpochBytes = int64(1 + rng.IntN(2000))
				s.Rand = rng
			})
			var mu sync.Mutex
			holds := 0
			r.cfg.OnBackpressure = func(_ int32, tr backpressure.Transition) {
				mu.Lock()
				defer mu.Unlock()
				if !tr.To.Reads() {
					holds++
				}
			}
			r.cfg.OnProgress = func(p Progress) {
				for _, q := range p.Queues {
					// One batch larger than the window of bytes may pass alone.
					if q.Records < 0 || q.Bytes < 0 || q.Records > q.WindowRecords || q.Aside < 0 {
						t.Errorf("seed %d: queue %+v", 100+seed, q)
					}
				}
			}
			r.finish(want)
			if holds == 0 {
				t.Errorf("seed %d: no partition was ever held: the test shows nothing", 100+seed)
			}
		})
	}
}

// A journal that does not answer holds the source: what is read meanwhile is bounded by the window and by the results that may wait.
func TestSlowJournalHoldsTheSourceNotTheHeap(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 30), 2, 20_000)
	want := plainLoop(t, plan, in, 500)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, func(c *Config, s *sourcetest.Config) {
			c.FetchSize, c.CreditRecords, c.EpochBytes, c.EpochRecords = 50, 400, 4000, 100
		})
		release := make(chan struct{})
		r.journal.Inject(controltest.Fault{Op: controltest.OpCommit, Call: 2, Do: func() { <-release }})
		var mu sync.Mutex
		processed := 0
		r.cfg.Hooks.At = func(_ context.Context, p Point) error {
			if p.Name == AfterStep {
				mu.Lock()
				processed++
				mu.Unlock()
			}
			return nil
		}
		var before, after int
		time.AfterFunc(time.Minute, func() {
			mu.Lock()
			before = processed
			mu.Unlock()
		})
		time.AfterFunc(time.Hour, func() {
			mu.Lock()
			after = processed
			mu.Unlock()
			close(release)
		})
		r.finish(want)
		if before == 0 || before != after || before*50 > 4000 {
			t.Errorf("%d parts of up to 50 records were processed in the first minute of the journal's silence, %d after an hour", before, after)
		}
	})
}

// Nothing is read, and no record reaches a partition, before the state of every partition is there.
func TestNothingIsReadBeforeTheStateIsRestored(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 31), 3, 90)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in)
		r.cfg.UntilRecords = 40
		if _, err := r.run(); err != nil {
			t.Fatal(err)
		}
		r.cfg.UntilRecords = 0
		opened := r.log.Opened()
		restored := time.Time{}
		for call := range 3 {
			r.journal.Inject(controltest.Fault{Op: controltest.OpLoadBlobs, Call: call + 1, Do: func() {
				<-time.After(5 * time.Second)
				restored = time.Now()
				if n := r.log.Opened(); n != opened {
					t.Errorf("the source was opened %d times while state was loaded", n-opened)
				}
			}})
		}
		r.cfg.Hooks.At = func(_ context.Context, p Point) error {
			if (p.Name == AfterPoll || p.Name == BeforeStep) && (restored.IsZero() || time.Now().Before(restored)) {
				t.Errorf("%s before the state was restored", p.Name)
			}
			return nil
		}
		began := time.Now()
		r.finish(want)
		if time.Since(began) < 15*time.Second {
			t.Errorf("ended after %v: the delay did not happen", time.Since(began))
		}
		r.journal.AllFired(t)
	})
}

// The idle policy of a flow: so many empty answers in a row take a partition out of the merged watermark, as a recorded and
// committed decision; a record brings it back and moves nothing backwards.
func TestIdlePolicyIsARecordedDecision(t *testing.T) {
	t.Parallel()
	plan := *parse(t, wideFlow)
	plan.IdleAfterPolls = 3
	in := randomInput(seeded(t, 32), 2, 60)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &plan, input{in[0], nil}, func(c *Config, s *sourcetest.Config) { s.Bounded = false })
		ctx, stop := context.WithCancel(context.Background())
		var marks []record.EventTime
		r.cfg.OnProgress = func(p Progress) { marks = append(marks, p.Watermark) }
		for i := range 3 {
			time.AfterFunc(time.Duration(i+1)*10*time.Second, r.log.AnswerEmpty)
		}
		time.AfterFunc(time.Minute, func() { r.log.Append(1, in[0][0]) })
		time.AfterFunc(2*time.Minute, stop)
		result, err := Run(ctx, r.cfg)
		if err == nil {
			t.Fatal("not interrupted")
		}
		idle := map[int32]int{}
		for _, d := range read(t, r.journal, result).decisions {
			if d.Kind == partitions.DecisionIdle {
				idle[d.Partition]++
			}
		}
		if idle[0] != 1 || idle[1] != 1 {
			t.Errorf("idle decisions by partition: %v", idle)
		}
		if len(marks) < 3 {
			t.Errorf("%d commits: the data, the decisions and the record that came back make at least three", len(marks))
		}
		for i := 1; i < len(marks); i++ {
			if marks[i] < marks[i-1] {
				t.Errorf("the merged watermark went back: %v", marks)
			}
		}
	})
}
