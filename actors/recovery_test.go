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
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/sourcetest"
)

// told keeps what OnState said.
type told struct {
	mu   sync.Mutex
	all  []StateChange
	last StateChange
}

func (o *told) state(s StateChange) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all, o.last = append(o.all, s), s
}

func (o *told) now() StateChange {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// of is what was told last of a partition.
func (o *told) of(p int32) PartitionResult {
	for _, r := range o.now().Result.Partitions {
		if r.Partition == p {
			return r
		}
	}
	return PartitionResult{Partition: -1}
}

// unending makes a run that stays when it is blocked, under a lease, over a log without an end.
func unending(c *Config, s *sourcetest.Config) {
	s.Bounded, s.ID = false, "first"
	c.StayBlocked = true
}

func staying(t *testing.T, in input, tune ...func(*Config, *sourcetest.Config)) (*rig, *told) {
	r := newRig(t, parse(t, wideFlow), in, append([]func(*Config, *sourcetest.Config){unending}, tune...)...)
	r.fence("a")
	o := &told{}
	r.cfg.OnState = o.state
	return r, o
}

// start runs a run until stop, which returns its end.
func (r *rig) start() (stop func() (Result, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	type end struct {
		result Result
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		result, err := Run(ctx, r.cfg)
		ended <- end{result, err}
	}()
	return func() (Result, error) {
		cancel()
		e := <-ended
		r.settled(e.result)
		return e.result, e.err
	}
}

// quiet says that the source is asked for nothing, and opened by nobody, for an hour.
func (r *rig) quiet() {
	r.t.Helper()
	<-time.After(time.Minute)
	polls, opened := r.log.Polls(), r.log.Opened()
	<-time.After(time.Hour)
	if p, o := r.log.Polls(), r.log.Opened(); p != polls || o != opened {
		r.t.Errorf("in an hour the source answered %d times and was opened %d times", p-polls, o-opened)
	}
}

// What cannot be read of one partition blocks that partition; what was read of it is committed, the others read to the end of their log and
// beyond, and the run stays, and stays owner.
func TestAPartitionThatCannotBeReadIsBlocked(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 80), 3, 120)
	bad := fullest(in)
	for name, c := range map[string]struct {
		tune       func(r *rig)
		code       *codes.Code
		need, have record.Position
		known      bool
	}{
		"records lost": {func(r *rig) {
			r.at(AfterPoll, 2, func() { r.log.Truncate(bad, record.Offset(33)) })
		}, codes.OffsetLost, record.Position{}, record.Offset(33), true},
		"a batch that cannot be read": {func(r *rig) {
			r.log.FailAt(bad, record.Offset(20), &sources.Fault{Partition: bad, Need: record.Offset(20), After: record.Offset(25), Known: true,
				Err: codes.New(codes.PoisonBatch, "injected")})
		}, codes.PoisonBatch, record.Offset(20), record.Offset(25), true},
		"a batch that cannot be read, and nobody knows where it ends": {func(r *rig) {
			r.log.FailAt(bad, record.Offset(20), &sources.Fault{Partition: bad, Need: record.Offset(20), Err: codes.New(codes.PoisonBatch, "injected")})
		}, codes.PoisonBatch, record.Offset(20), record.Position{}, false},
		"and a commit fails": {func(r *rig) {
			r.log.FailAt(bad, record.Offset(20), &sources.Fault{Partition: bad, Need: record.Offset(20), Err: codes.New(codes.PoisonBatch, "injected")})
			r.log.FailAt(bad, record.Offset(20), &sources.Fault{Partition: bad, Need: record.Offset(20), Err: codes.New(codes.PoisonBatch, "injected")})
			r.journal.Inject(controltest.FailCommit(1))
		}, codes.PoisonBatch, record.Offset(20), record.Position{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, o := staying(t, in)
				c.tune(r)
				var last Progress
				r.cfg.OnProgress = func(p Progress) { last = p }
				stop := r.start()
				r.quiet()
				got := o.of(bad)
				b := got.Block
				if o.now().State != StateRunning || b == nil || b.Code() != c.code.Name || b.Partition != bad || b.Since.IsZero() || !strings.Contains(b.Release, "--accept-gap") {
					t.Fatalf("told %+v, block %+v", o.now().State, b)
				}
				if c.need != (record.Position{}) && b.Need != c.need || b.Have != c.have || b.Known != c.known {
					t.Errorf("the block needs %s and has %s (%v)", b.Need, b.Have, b.Known)
				}
				if !r.lease().Valid {
					t.Error("the lease is gone")
				}
				// The others go on.
				more := record.Record{Key: []byte("k"), Value: in[bad][0].Value}
				for p := range in {
					r.log.Append(int32(p), more)
				}
				<-time.After(time.Minute)
				result, err := stop()
				if !codes.Has(err, c.code) || errors.Is(err, ErrInterrupted) {
					t.Errorf("ended with %v", err)
				}
				if len(last.Blocked) != 1 || last.Blocked[0].Block != b || last.Blocked[0].Next != b.Need {
					t.Errorf("told with the last commit: %+v", last.Blocked)
				}
				for _, p := range result.Partitions {
					want, status := record.Offset(int64(len(in[p.Partition]))+1), PartitionRead
					if p.Partition == bad {
						want, status = b.Need, PartitionBlocked
					}
					if p.Next != want || p.Status != status {
						t.Errorf("partition %d is %s at %s, want %s at %s", p.Partition, p.Status, p.Next, status, want)
					}
				}
			})
		})
	}
}

// What concerns the whole run stands it still: nothing is read, nothing ends, the lease stays.
func TestARunThatIsBlockedStandsStill(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 81), 2, 60)
	for name, c := range map[string]struct {
		tune func(r *rig)
		code *codes.Code
	}{
		"the log was recreated while it was read": {func(r *rig) { r.at(AfterPoll, 2, func() { r.log.Recreate("second") }) }, codes.TopicRecreated},
		"the leases have gone back": {func(r *rig) {
			r.cfg.Journal = regressed{r.journal}
		}, codes.FenceRegression},
		"records lost, and the source does not say of which partition": {func(r *rig) {
			r.log.FailAt(0, record.Offset(3), codes.New(codes.OffsetLost, "injected"))
		}, codes.OffsetLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, o := staying(t, in)
				c.tune(r)
				stop := r.start()
				r.quiet()
				s := o.now()
				if s.State != StateBlocked || s.Block == nil || s.Block.Partition != -1 || s.Block.Code() != c.code.Name || s.Block.Release == "" || !r.lease().Valid {
					t.Errorf("told %s, block %+v, lease %+v", s.State, s.Block, r.lease())
				}
				if _, err := stop(); !codes.Has(err, c.code) || errors.Is(err, ErrInterrupted) {
					t.Errorf("ended with %v", err)
				}
				if r.lease().Valid {
					t.Error("the lease was not given back")
				}
			})
		})
	}
}

// State of one partition that is damaged leaves that partition out; the others are restored and read.
func TestDamagedStateBlocksItsPartition(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 82), 3, 120)
	first := func(t *testing.T) *rig {
		r, _ := staying(t, in)
		r.cfg.UntilRecords = 60
		if _, err := r.run(); err != nil {
			t.Fatal(err)
		}
		r.journal.Inject(controltest.Fault{Op: controltest.OpLoadBlobs, Call: 2, Err: codes.New(codes.JournalCorrupt, "injected")})
		return r
	}
	t.Run("the others go on", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := first(t)
			o := &told{}
			r.cfg.UntilRecords, r.cfg.OnState = 0, o.state
			stop := r.start()
			r.quiet()
			result, err := stop()
			if !codes.Has(err, codes.JournalCorrupt) || errors.Is(err, ErrInterrupted) {
				t.Errorf("ended with %v", err)
			}
			for _, p := range result.Partitions {
				if all := record.Offset(int64(len(in[p.Partition]))); (p.Next == all) != (p.Status == PartitionRead) || (p.Status == PartitionRead) != (p.Partition != 1) {
					t.Errorf("%+v, of %s", p, all)
				}
			}
			if b := o.of(1).Block; b == nil || b.Code() != codes.JournalCorrupt.Name || !strings.Contains(b.Release, "--retry") {
				t.Errorf("block %+v", b)
			}
		})
	})
	t.Run("a run with a limit ends", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			r := first(t)
			r.cfg.UntilRecords = 100
			if _, err := r.run(); !codes.Has(err, codes.JournalCorrupt) {
				t.Errorf("ended with %v", err)
			}
		})
	})
}

// Runs with an end, of their own or of their log, and runs that are not to stay, end at once as ever, with what they have.
func TestWhatDoesNotStay(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 83), 2, 60)
	for name, tune := range map[string]func(*rig){
		"a number of records":       func(r *rig) { r.cfg.MaxRecords = 60 },
		"until a number of records": func(r *rig) { r.cfg.UntilRecords = 60 },
		"not to stay":               func(r *rig) { r.cfg.StayBlocked = false },
		"a log with an end": func(r *rig) {
			r.log = in.log(sourcetest.Config{Bounded: true})
			r.cfg.Source = r.log
		},
	} {
		for _, code := range []*codes.Code{codes.OffsetLost, codes.TopicRecreated} {
			t.Run(name+", "+code.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r, _ := staying(t, in)
					tune(r)
					r.at(AfterPoll, 2, func() {
						if code == codes.OffsetLost {
							r.log.Truncate(fullest(in), record.Offset(int64(len(in[fullest(in)]))-1))
						} else {
							r.log.Recreate("second")
						}
					})
					began := time.Now()
					if _, err := r.run(); !codes.Has(err, code) || time.Since(began) > time.Second {
						t.Errorf("ended with %v after %v", err, time.Since(began))
					}
				})
			})
		}
	}
}
