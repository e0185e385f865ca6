package actors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/sourcetest"
)

// seconds is a partition with an event for each second.
func seconds(p, n int) (out []record.Record) {
	for i := range n {
		out = append(out, record.Record{Key: fmt.Appendf(nil, "k%d", p), Arrival: record.NoTime,
			Value: fmt.Appendf(nil, `{"event_id":"%d-%d","instrument":"k%d","t":%d,"close":1,"volume":1,"seq":%d,"revision":0}`, p, i, p, i*1000, i)})
	}
	return out
}

const (
	skewBound  = 60 * time.Second
	skewWindow = 10 // records, and seconds
)

// aligning is a run with a slow partition, 1, and a fast one, 0, which says how far they were apart and how much waited.
type aligning struct {
	*rig
	mu sync.Mutex
	// done is the number of records of each that were processed.
	done [2]int64
	// apart is the most that the fast one was ahead, in seconds, while the slow one had more to read.
	apart, aside int64
	told         []string
}

func newAligning(t *testing.T, fast, slow int, tune ...func(*Config, *sourcetest.Config)) *aligning {
	a := &aligning{}
	a.rig = newRig(t, parse(t, wideFlow), input{seconds(0, fast), seconds(1, slow)}, append([]func(*Config, *sourcetest.Config){func(c *Config, s *sourcetest.Config) {
		c.FetchSize, c.CreditRecords, c.MaxSkew = 5, skewWindow, skewBound
	}}, tune...)...)
	a.cfg.Hooks.At = func(ctx context.Context, p Point) error {
		switch {
		case p.Name == BeforeStep && p.Partition == 1:
			<-time.After(100 * time.Millisecond)
		case p.Name == AfterStep:
			a.mu.Lock()
			defer a.mu.Unlock()
			n, _ := p.Position.Int64()
			a.done[p.Partition] = min(n+5, int64([]int{fast, slow}[p.Partition]))
			if a.done[1] < int64(slow) {
				a.apart = max(a.apart, a.done[0]-a.done[1])
			}
		}
		return nil
	}
	a.cfg.OnBackpressure = func(p int32, tr backpressure.Transition) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if tr.Reason == backpressure.TimeAhead || tr.Reason == backpressure.TimeAligned {
			a.told = append(a.told, fmt.Sprintf("%d %s %d of %d", p, tr.Reason, tr.Measured, tr.Threshold))
		}
	}
	a.cfg.OnProgress = func(p Progress) {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, q := range p.Queues {
			a.aside = max(a.aside, q.Aside+q.Records)
		}
	}
	return a
}

// held says what is wrong with how the fast partition was held.
func (a *aligning) held() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.apart > int64(skewBound/time.Second)+skewWindow:
		return fmt.Errorf("the fast partition was %d s ahead, with a bound of %s and a window of %d s", a.apart, skewBound, skewWindow)
	case a.aside > 3*skewWindow:
		return fmt.Errorf("%d records of one partition waited or were under way, with windows of %d", a.aside, skewWindow)
	case len(a.told) == 0:
		return errors.New("no partition was held")
	}
	return nil
}

// One slow partition and one fast one: the fast one is held, in words, and stays within the bound; what comes out is the same.
func TestASlowPartitionHoldsAFastOne(t *testing.T) {
	t.Parallel()
	in := input{seconds(0, 600), seconds(1, 600)}
	want := plainLoop(t, parse(t, wideFlow), in, 7)
	t.Run("held", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			a := newAligning(t, 600, 600)
			a.finish(want)
			if err := a.held(); err != nil {
				t.Error(err)
			}
			if len(a.told) < 2 || !strings.HasPrefix(a.told[0], "0 EVENT_TIME_AHEAD 6") || !strings.HasSuffix(a.told[0], " of 60000") || !strings.HasPrefix(a.told[1], "0 EVENT_TIME_ALIGNED") {
				t.Errorf("told %q", a.told)
			}
		})
	})
	// The controls: without a bound, or with a source that does not pause, the same test is red.
	for name, tune := range map[string]func(*aligning){
		"without a bound": func(a *aligning) { a.cfg.MaxSkew = 0 },
		"a source that does not pause": func(a *aligning) {
			a.cfg.Source = unpaused{a.log}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := newAligning(t, 600, 600)
				tune(a)
				a.finish(want)
				if a.held() == nil {
					t.Error("the test does not notice")
				}
			})
		})
	}
}

// unpaused is a source whose pauses are lost, as those of a client that was not paused again after a rebalance.
type unpaused struct{ *sourcetest.Log }

func (u unpaused) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	r, err := u.Log.Open(ctx, from)
	return deaf{r}, err
}

type deaf struct{ sources.Reader }

func (deaf) Pause(...int32) {}

// A partition that has nothing to read holds nobody: it is silent, at its end, blocked, or idle.
func TestWhoHasNothingToReadHoldsNobody(t *testing.T) {
	t.Parallel()
	for name, tune := range map[string]func(*aligning){
		"at the end of its log": func(*aligning) {},
		"answered empty now and then": func(a *aligning) {
			a.log = input{seconds(0, 600), seconds(1, 20)}.log(sourcetest.Config{MaxWait: 200 * time.Millisecond})
			a.cfg.Source = a.log
		},
		"blocked": func(a *aligning) {
			a.cfg.StayBlocked = true
			a.log.FailAt(1, record.Offset(10), &sources.Fault{Partition: 1, Need: record.Offset(10), Err: codes.New(codes.PoisonBatch, "injected")})
		},
		"idle": func(a *aligning) {
			a.log.Append(1, record.Record{Headers: []record.Header{{Key: "weir-control", Value: []byte("idle")}}})
		},
		"ended by a record": func(a *aligning) {
			a.log.Append(1, record.Record{Headers: []record.Header{{Key: "weir-control", Value: []byte("end")}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := newAligning(t, 600, 20, awake)
				tune(a)
				stop := a.start()
				<-time.After(30 * time.Second)
				result, _ := stop()
				if next := result.Partitions[0].Next; next != record.Offset(600) {
					t.Errorf("the other partition stands at %s", next)
				}
			})
		})
	}
	t.Run("a slow one that comes back holds again", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			a := newAligning(t, 100, 0, awake)
			stop := a.start()
			<-time.After(time.Minute)
			a.log.Append(1, seconds(1, 500)...)
			<-time.After(2 * time.Second)
			a.log.Append(0, seconds(0, 600)[100:]...)
			<-time.After(time.Second)
			a.mu.Lock()
			if a.done[0] > 100+skewWindow {
				t.Errorf("%d records of the fast partition while the slow one is at %d", a.done[0], a.done[1])
			}
			a.mu.Unlock()
			<-time.After(5 * time.Minute)
			if result, err := stop(); !errors.Is(err, ErrInterrupted) || result.Counts.Records != 1100 {
				t.Errorf("%v, %d records", err, result.Counts.Records)
			}
		})
	})
}

// Whatever the bound, the windows, the order of answers and the failures: everything comes, and comes out the same.
func TestStormsOfHeldPartitions(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	for seed := range uint64(15) {
		rng := seeded(t, 300+seed)
		in := randomInput(rng, 2+rng.IntN(5), 400)
		want := plainLoop(t, plan, in, 50)
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, in, func(c *Config, s *sourcetest.Config) {
				c.FetchSize, c.EpochRecords = 1+rng.IntN(30), int64(1+rng.IntN(100))
				c.CreditRecords, c.CreditBytes = int64(1+rng.IntN(50)), int64(1+rng.IntN(20_000))
				c.MaxSkew = time.Duration(1+rng.IntN(60_000)) * time.Millisecond
				c.StayBlocked = true
				s.Rand = rng
			})
			for range 3 {
				r.log.FailAt(int32(rng.IntN(len(in))), record.Offset(rng.Int64N(80)), codes.New(codes.SourceFailure, "injected"))
			}
			r.finish(want)
		})
	}
}

// A disk that fills up holds the source, with its numbers, and one that is freed releases it.
func TestADiskThatFillsUpHoldsTheSource(t *testing.T) {
	t.Parallel()
	in := input{seconds(0, 50), seconds(1, 50)}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, parse(t, wideFlow), in, awake)
		var mu sync.Mutex
		free, fails := int64(5000), false
		var told []string
		r.cfg.MinFreeDisk = 1000
		r.cfg.FreeDisk = func() (int64, error) {
			mu.Lock()
			defer mu.Unlock()
			if fails {
				return 0, errBoom
			}
			return free, nil
		}
		set := func(n int64, broken bool) {
			mu.Lock()
			free, fails = n, broken
			mu.Unlock()
			<-time.After(time.Minute)
		}
		r.cfg.OnBackpressure = func(p int32, tr backpressure.Transition) {
			mu.Lock()
			defer mu.Unlock()
			if tr.Reason == backpressure.DiskLow || tr.Reason == backpressure.DiskFreed {
				told = append(told, fmt.Sprintf("%d %s %d of %d", p, tr.Reason, tr.Measured, tr.Threshold))
			}
		}
		stop := r.start()
		set(5000, false)
		set(900, false)
		set(1500, false)
		set(1500, true)
		polls := r.log.Polls()
		for p := range in {
			r.log.Append(int32(p), seconds(p, 60)[50:]...)
		}
		<-time.After(time.Minute)
		if n := r.log.Polls() - polls; n > 1 { // one was under way
			t.Errorf("the source answered %d times while the disk is low", n)
		}
		set(2000, false)
		if result, err := stop(); !errors.Is(err, ErrInterrupted) || result.Counts.Records != 120 {
			t.Errorf("%v, %d records", err, result.Counts.Records)
		}
		if got := strings.Join(told, ", "); got != "0 DISK_LOW 900 of 1000, 1 DISK_LOW 900 of 1000, 0 DISK_FREED 2000 of 2000, 1 DISK_FREED 2000 of 2000" {
			t.Errorf("told %s", got)
		}
	})
}
