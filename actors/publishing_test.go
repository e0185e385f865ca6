package actors

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sources/sourcetest"
)

// shelf is a target that keeps the encoded rows of each partition. at is called between any two steps.
type shelf struct {
	mu     sync.Mutex
	rows   map[int32][]byte
	ends   map[int32]int64
	tokens []uint64
	at     func(step string) error
	silent bool
}

func newShelf() *shelf {
	return &shelf{rows: map[int32][]byte{}, ends: map[int32]int64{}, at: func(string) error { return nil }}
}

func (s *shelf) Features() sinks.Features {
	return sinks.Features{Once: !s.silent, ReadBack: !s.silent}
}

func (s *shelf) Open(_ context.Context, to sinks.Target) (sinks.Writer, error) {
	if err := s.at("open"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = append(s.tokens, to.Token)
	at := map[int32]int64{}
	for _, p := range to.Partitions {
		if !s.silent {
			at[p] = s.ends[p]
		}
	}
	return &shelfWriter{s, sinks.NewProgress(len(to.Outputs), at)}, nil
}

type shelfWriter struct {
	s *shelf
	*sinks.Progress
}

func (w *shelfWriter) Close() error { return nil }

func (w *shelfWriter) Publish(_ context.Context, batches []sinks.Rows) error {
	rest, err := w.Rest(batches)
	if err == nil {
		err = w.s.at("write")
	}
	if err != nil {
		return w.Fail(err)
	}
	w.s.mu.Lock()
	for _, r := range rest {
		w.s.rows[r.Partition] = append(w.s.rows[r.Partition], r.Data...)
		w.s.ends[r.Partition] = r.End()
	}
	w.s.mu.Unlock()
	if err := w.s.at("written"); err != nil {
		return w.Fail(err)
	}
	w.Done(rest)
	return nil
}

// holds compares with the reference: every row once, and in order.
func (s *shelf) holds(t *testing.T, want *published) {
	t.Helper()
	for p, rows := range want.rows {
		if !bytes.Equal(s.rows[p], rows) {
			t.Errorf("partition %d: the target holds %d bytes of rows, want %d, or others", p, len(s.rows[p]), len(rows))
		}
	}
}

func publisher(s ...*shelf) *sinks.Publisher {
	p := &sinks.Publisher{}
	for i, one := range s {
		p.Sinks = append(p.Sinks, sinks.Named{Name: string(rune('a' + i)), Sink: one})
	}
	return p
}

// Whatever fails, before a publication, within it, or between it and the journal: each row is in the target once.
func TestRowsArePublishedOnceWhateverFails(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 21), 3, 60)
	want := plainLoop(t, plan, in, 7)
	for _, where := range []string{"open", "write", "written", string(BeforeCommit), string(AfterCommit), "commit fails", "answer lost"} {
		for how, cause := range map[string]error{"down": codes.New(codes.SinkUnavailable, "down"), "boom": errBoom} {
			t.Run(where+"/"+how, func(t *testing.T) {
				t.Parallel()
				hits := 0
				for n := 1; n == hits+1; n++ {
					synctest.Test(t, func(t *testing.T) {
						r := newRig(t, plan, in, small)
						target, other := newShelf(), newShelf()
						r.cfg.Publisher = publisher(target, other)
						seen := new(int)
						target.at = func(step string) error {
							if step != where {
								return nil
							}
							if *seen++; *seen == n {
								return cause
							}
							return nil
						}
						switch where {
						case string(BeforeCommit), string(AfterCommit):
							r.cfg.Hooks, seen = every(Failpoint(where), n, func(context.Context) error { return cause })
						case "commit fails":
							r.journal.Inject(controltest.FailCommit(n))
						case "answer lost":
							r.journal.Inject(controltest.LoseAnswer(n))
						}
						r.finish(want)
						target.holds(t, want)
						other.holds(t, want)
						if *seen >= n || len(r.journal.Pending()) == 0 && r.journal.Fired() > 0 {
							hits++
						}
					})
					if where == "open" && n == 1 {
						break // it is opened once where nothing fails
					}
				}
				if hits == 0 {
					t.Error("nothing failed")
				}
			})
		}
	}
}

// A sink that does not tell gets what was not committed again, and nothing else.
func TestASinkThatDoesNotTellGetsTheOpenEpochAgain(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 22), 2, 60)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small)
		target := newShelf()
		target.silent = true
		r.cfg.Publisher = publisher(target)
		r.journal.Inject(controltest.FailCommit(2))
		r.finish(want)
		r.journal.AllFired(t)
		longer := 0
		for p, rows := range want.rows {
			if len(target.rows[p]) < len(rows) {
				t.Errorf("partition %d lacks rows", p)
			}
			longer += len(target.rows[p]) - len(rows)
		}
		if longer <= 0 {
			t.Error("nothing was published twice; the test is about that")
		}
	})
}

// While a sink is down nothing is committed and the source is held, within the bound; then everything comes.
func TestASinkThatIsDownHoldsTheRun(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 23), 2, 4000)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small, func(c *Config, _ *sourcetest.Config) { c.EpochBytes = 4 << 10 })
		target := newShelf()
		began := time.Now()
		target.at = func(step string) error {
			if step != "open" && time.Since(began) < 2*time.Minute || step == "open" && time.Since(began) > 0 && time.Since(began) < 2*time.Minute {
				return codes.New(codes.SinkUnavailable, "down")
			}
			return nil
		}
		var states []sinks.State
		r.cfg.Publisher = publisher(target)
		r.cfg.Publisher.OnState = func(s sinks.State) { states = append(states, s) }
		withheld := 0
		r.cfg.OnWithheld = func(_ int32, on bool) {
			if on && time.Since(began) < 2*time.Minute {
				withheld++
			}
		}
		result := r.finish(want)
		target.holds(t, want)
		if len(states) < 2 || states[0].Err == nil || states[len(states)-1].Err != nil {
			t.Errorf("states: %v", states)
		}
		if withheld == 0 || result.Incarnations != 1 {
			t.Errorf("held %d times, %d incarnations; want the run to be held and to live", withheld, result.Incarnations)
		}
	})
}

// A target that has lost everything, or was added, is filled from the journal; a stop in between leaves the next start to go on.
func TestATargetIsFilledFromTheJournal(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 24), 3, 80)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small)
		r.cfg.UntilRecords = 40
		if result, err := r.run(); err != nil || result.Status != control.RunOpen {
			t.Fatalf("%v, %s", err, result.Status)
		}
		r.cfg.UntilRecords = 0
		target := newShelf()
		r.cfg.Publisher = publisher(target)
		r.finish(want)
		target.holds(t, want)
	})
}

// The sinks are opened under the token of the lease, and a refusal ends the run with its code.
func TestSinksAreOpenedUnderTheToken(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 25), 2, 40)
	want := plainLoop(t, plan, in, 7)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small)
		r.fence("me")
		target := newShelf()
		r.cfg.Publisher = publisher(target)
		r.finish(want)
		target.holds(t, want)
		if len(target.tokens) != 1 || target.tokens[0] != 1 {
			t.Errorf("tokens %v, want 1 once", target.tokens)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, plan, in, small)
		target := newShelf()
		refused := codes.New(codes.SinkRefused, "no")
		target.at = func(step string) error {
			if step == "write" {
				return refused
			}
			return nil
		}
		r.cfg.Publisher = publisher(target)
		if _, err := r.run(); !errors.Is(err, refused) {
			t.Errorf("%v", err)
		}
	})
}

func TestPublishersAreValidated(t *testing.T) {
	t.Parallel()
	for says, p := range map[string]*sinks.Publisher{
		"without sinks": {}, "is nil": {Sinks: []sinks.Named{{Name: "a"}}}, "Two sinks": {Sinks: []sinks.Named{{Name: "a", Sink: newShelf()}, {Name: "a", Sink: newShelf()}}},
	} {
		c := Config{Publisher: p}
		if err := c.Validate(); !codes.Has(err, codes.ConfigInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
}

// An operator's choice goes to the journal before the rows that follow from it are visible, where a target can tell afterwards what it lacks.
func TestAChoiceIsCommittedBeforeItsRowsArePublished(t *testing.T) {
	t.Parallel()
	silent := newShelf()
	silent.silent = true
	commit := func(kind string) control.Commit {
		p := control.PartitionCommit{Decisions: []partitions.Decision{{Kind: partitions.DecisionGapFilled}, {Kind: kind}}}
		return control.Commit{Partitions: []control.PartitionCommit{{}, p}}
	}
	for kind, want := range map[string]bool{
		partitions.DecisionGapClosed: true, partitions.DecisionLossAccepted: true, partitions.DecisionIdle: false, partitions.DecisionGapExpired: false,
	} {
		for _, sinksOf := range [][]*shelf{{newShelf()}, {newShelf(), silent}} {
			in := newIncarnation(&engine{cfg: Config{Publisher: publisher(sinksOf...)}, ctx: context.Background()}, 1)
			if in.journalFirst(commit(kind)) {
				t.Errorf("%s: without sinks that are open there is no order", kind)
			}
			in.publication = &sinks.Publication{}
			if got := in.journalFirst(commit(kind)); got != (want && len(sinksOf) == 1) {
				t.Errorf("%s with %d sinks: %v", kind, len(sinksOf), got)
			}
		}
	}
	// In a run: when the rows behind an accepted gap are written, the decision stands.
	in := randomInput(seeded(t, 26), 3, 120)
	bad := fullest(in)
	synctest.Test(t, func(t *testing.T) {
		r, _ := obeying(t, in)
		target := newShelf()
		behind := 0
		gapAt(r.log, bad, 20, 25)
		r.cfg.Publisher = publisher(target)
		stop := r.start()
		<-time.After(time.Minute)
		target.at = func(step string) error {
			if step == "write" {
				if behind++; len(r.decided(partitions.DecisionLossAccepted)) != 1 {
					t.Error("rows are written before the choice stands")
				}
			}
			return nil
		}
		r.ask(accept(bad, 20, 25))
		<-time.After(time.Minute)
		if _, err := stop(); !errors.Is(err, ErrInterrupted) {
			t.Error(err)
		}
		if behind == 0 {
			t.Error("no rows came behind the gap")
		}
	})
}
