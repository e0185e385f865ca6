package actors

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/sourcetest"
)

// Partitions that a log gets while it is read begin at the beginning of their log, whatever was written before they were noticed, and the
// watermark waits for them. (B25)
func TestPartitionsAddedWhileTheRunGoesOn(t *testing.T) {
	t.Parallel()
	in := input{seconds(0, 100), seconds(1, 100)}
	synctest.Test(t, func(t *testing.T) {
		r, _ := staying(t, in)
		var last Progress
		r.cfg.OnProgress = func(p Progress) { last = p }
		r.log.FailInfo(nil, errBoom, nil) // one look fails
		stop := r.start()
		<-time.After(5 * time.Second)
		before := last.Watermark
		for range 2 {
			p := r.log.AddPartition()
			r.log.Append(p, seconds(int(p), 100)[:50]...)
		}
		<-time.After(20 * time.Second)
		for p := range int32(2) {
			r.log.Append(p, seconds(int(p), 200)[100:]...)
		}
		<-time.After(time.Minute)
		if last.Counts.Records != 500 || last.Watermark != before {
			t.Errorf("%d records, watermark %s, was %s: the new partitions are behind it", last.Counts.Records, last.Watermark, before)
		}
		for p := range int32(2) {
			r.log.Append(2+p, seconds(int(2+p), 300)[50:]...)
		}
		<-time.After(time.Minute)
		result, err := stop()
		if !errors.Is(err, ErrInterrupted) || len(result.Failures) != 0 || result.Incarnations != 2 || result.Counts.Records != 1000 || len(result.Partitions) != 4 {
			t.Errorf("%v: %d incarnations, %d records, failures %v", err, result.Incarnations, result.Counts.Records, result.Failures)
		}
		if result.Watermark <= before {
			t.Errorf("the watermark stayed at %s", result.Watermark)
		}
		if n := r.log.Opened(); n != 2 {
			t.Errorf("the source was opened %d times", n)
		}
	})
}

// A log that grows again and again while a store fails now and then loses nothing.
func TestPartitionsAddedAgainAndAgain(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		rng := seeded(t, 400+seed)
		synctest.Test(t, func(t *testing.T) {
			r, _ := staying(t, input{seconds(0, 50)}, func(c *Config, _ *sourcetest.Config) { c.MaxSkew = 20 * time.Second })
			total, fails := int64(50), 0
			var mu sync.Mutex
			draw := seeded(t, 450+seed)
			r.cfg.Hooks.At = func(_ context.Context, p Point) error {
				mu.Lock()
				defer mu.Unlock()
				if (p.Name == BeforeCommit || p.Name == AfterCommit || p.Name == AfterRestore) && fails < 8 && draw.IntN(6) == 0 {
					fails++
					return codes.New(codes.StoreUnavailable, "injected")
				}
				return nil
			}
			stop := r.start()
			for range 6 {
				<-time.After(time.Duration(rng.IntN(20_000)) * time.Millisecond)
				p, n := r.log.AddPartition(), 1+rng.IntN(40)
				r.log.Append(p, seconds(int(p), n)...)
				total += int64(n)
			}
			<-time.After(2 * time.Minute)
			if result, err := stop(); !errors.Is(err, ErrInterrupted) || result.Counts.Records != total || len(result.Partitions) != 7 {
				t.Errorf("seed %d: %v, %d records of %d in %d partitions", seed, err, result.Counts.Records, total, len(result.Partitions))
			}
		})
	}
}

// removing is a log that says what it has, and of which more is removed all the time.
type removing struct {
	*sourcetest.Log
	mu    sync.Mutex
	start int64
}

func (l *removing) Observe(ctx context.Context) (sources.Observation, error) {
	info, err := l.Info(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	return sources.Observation{Info: info, Extents: map[int32]sources.Extent{0: {Start: record.Offset(l.start), Stable: l.End(0), End: l.End(0)}}}, err
}

// A loss is foretold with its numbers, and no more once the run has caught up.
func TestALossIsForetold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := staying(t, input{seconds(0, 5000)})
		log := &removing{Log: r.log}
		r.cfg.Source, r.cfg.FetchSize, r.cfg.CreditRecords = log, 5, 10
		slow := true
		var mu sync.Mutex
		r.cfg.Hooks.At = func(_ context.Context, p Point) error {
			mu.Lock()
			wait := slow
			mu.Unlock()
			if p.Name == BeforeStep && wait {
				<-time.After(5 * time.Second) // one record a second
			}
			return nil
		}
		var told []RetentionRisk
		r.cfg.OnRetention = func(x RetentionRisk) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, x)
		}
		stop := r.start()
		<-time.After(10 * time.Minute)
		if len(told) != 0 {
			t.Fatalf("a log that removes nothing is told as a risk: %+v", told)
		}
		for range 30 { // three records a second
			log.mu.Lock()
			log.start += 15
			log.mu.Unlock()
			<-time.After(5 * time.Second)
		}
		mu.Lock()
		for _, x := range told {
			if x.Over || x.Risk.Next == 0 || x.Risk.Left <= 0 || x.Risk.In <= 0 || x.Risk.In > riskHorizon {
				t.Errorf("told %+v", x)
			}
		}
		if n := len(told); n < 2 || told[n-1].Risk.Next <= told[0].Risk.Next {
			t.Errorf("the numbers do not go on: %+v", told)
		}
		slow = false
		mu.Unlock()
		if n := strings.Count(r.logged.String(), "code=RETENTION_AT_RISK"); n != 1 {
			t.Errorf("the log says it %d times", n)
		}
		<-time.After(10 * time.Minute)
		over := 0
		for _, x := range told {
			if x.Over {
				over++
			}
		}
		if over != 1 || !told[len(told)-1].Over {
			t.Errorf("told %+v", told)
		}
		if result, err := stop(); !errors.Is(err, ErrInterrupted) || result.Counts.Records != 5000 {
			t.Errorf("%v, %d records", err, result.Counts.Records)
		}
	})
}

// A source that says itself that its log has grown ends the incarnation in order: what was read is committed, and nothing has failed.
func TestASourceThatTellsOfNewPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := staying(t, input{seconds(0, 100)})
		r.log.FailAt(0, record.Offset(40), codes.New(codes.PartitionsAdded, "injected"))
		r.log.Append(r.log.AddPartition(), seconds(1, 30)...)
		r.cfg.FetchSize = 50
		stop := r.start()
		<-time.After(time.Second)
		result, err := stop()
		if !errors.Is(err, ErrInterrupted) || len(result.Failures) != 0 || result.Incarnations != 2 || result.Counts.Records != 130 {
			t.Errorf("%v: %d incarnations, %d records, failures %v", err, result.Incarnations, result.Counts.Records, result.Failures)
		}
	})
}
