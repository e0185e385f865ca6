package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/internal/sim/invariant"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/emit"
	"github.com/weirstream/weir/sources/sourcetest"
)

const runID = "run"

// Scenario is everything that a seed chooses.
type Scenario struct {
	Seed uint64
	// Flow is the source of the flow, Log what stands in each partition.
	Flow string
	Log  map[int32][]record.Record
	// Bounded: the log has an end, otherwise the run is told how many records there are.
	Bounded bool
	// Owners is the number of slots, in each of which one process runs at a time.
	Owners int
	// Intruder: the second slot begins with one that does not stand by.
	Intruder bool
	// Twin: the first process of the second slot has the owner id of the first one's, by mistake.
	Twin bool
	TTL  time.Duration
	// Window is the credit of a partition in records, EpochBytes the bound of its results.
	Window, EpochBytes int64
	CheckpointEvery    time.Duration
	Keep               int
	// Pace is how long the log takes for one record, roughly; Rough how likely a call fails in one way; Quiet when faults begin no more.
	Pace time.Duration
	// Lag is how long the store takes for a commit, roughly.
	Lag   time.Duration
	Rough float64
	Quiet time.Duration
	// Drift is by how much the store's clock is fast, Offset how far it is from that of the processes.
	Drift  float64
	Offset time.Duration
	// Timetable is what happens at given times.
	Timetable []happening
}

// happening is something that befalls a slot, or the store, at a time.
type happening struct {
	at   time.Duration
	kind string
	slot int
	span time.Duration
}

// settings are those of one process.
type settings struct {
	fetch, batch int
	every        time.Duration
	records      int64
	skew         time.Duration
}

// strike befalls a process at its n-th passing of a failpoint.
type strike struct {
	at   actors.Failpoint
	n    int
	how  string
	stop time.Duration
}

// Draw makes the scenario of a seed.
func Draw(seed uint64) *Scenario {
	rng := draw(seed, "scenario", 0)
	s := &Scenario{
		Seed: seed, Bounded: rng.IntN(2) == 0, Owners: 1 + rng.IntN(3), Intruder: rng.IntN(4) == 0,
		TTL: time.Duration(500+rng.IntN(3500)) * time.Millisecond, Window: int64(4 + rng.IntN(60)),
		EpochBytes: []int64{150, 600, 4000, flow.EpochBytes}[rng.IntN(4)], CheckpointEvery: time.Duration(200+rng.IntN(3000)) * time.Millisecond,
		Keep: []int{0, 2, 5}[rng.IntN(3)], Rough: []float64{0, 0.004, 0.015, 0.04}[rng.IntN(4)],
	}
	if rng.IntN(2) == 0 {
		s.Drift, s.Offset = 0.2*(rng.Float64()-0.5), time.Duration(rng.IntN(240)-120)*time.Second
	}
	s.Twin = s.Owners > 1 && rng.IntN(10) == 0
	s.Flow, s.Log = drawInput(rng)
	s.revise(draw(seed, "revisions", 0))
	reading := time.Duration((2 + 6*rng.Float64()) * float64(s.TTL))
	s.Pace = reading / time.Duration(s.total())
	s.Quiet = time.Duration((1 + 2*rng.Float64()) * float64(reading))
	if rng.IntN(3) == 0 {
		// A log that gives at once what there is, and a journal that cannot keep up.
		s.Pace, s.Lag = s.Pace/100, time.Duration(rng.Float64()*float64(s.TTL)/4)
	}
	for range rng.IntN(7) {
		s.Timetable = append(s.Timetable, s.drawHappening(rng, reading))
	}
	return s
}

func (s *Scenario) drawHappening(rng *rand.Rand, reading time.Duration) happening {
	h := happening{at: time.Duration(rng.Float64() * float64(reading)), slot: rng.IntN(s.Owners)}
	switch rng.IntN(7) {
	case 0:
		h.kind, h.span = stallShort, s.part(rng, 0.1, 0.9)
	case 1, 2:
		h.kind, h.span = stallLong, s.part(rng, 1.1, 4)
	case 3:
		h.kind = killed
	case 4:
		h.kind = interrupted
	case 5:
		h.kind, h.span = outage, s.part(rng, 0.1, 2.5)
	case 6:
		h.kind, h.span = clockJump, s.part(rng, 0.1, 2)
	}
	return h
}

// part is a stretch of so many ttls.
func (s *Scenario) part(rng *rand.Rand, least, most float64) time.Duration {
	return time.Duration((least + (most-least)*rng.Float64()) * float64(s.TTL))
}

// drawProcess makes the settings and the strikes of a process.
func (s *Scenario) drawProcess(name string) (settings, []strike) {
	rng := draw(s.Seed, name, 0)
	set := settings{fetch: 1 + rng.IntN(30), batch: rng.IntN(20), every: time.Duration(20+rng.IntN(1000)) * time.Millisecond}
	if rng.IntN(2) == 0 {
		set.records = int64(3 + rng.IntN(40))
	}
	if rng.IntN(3) == 0 {
		set.skew = s.part(rng, -0.3, 0.6)
	}
	var strikes []strike
	points, hows := actors.Failpoints(), []string{strikeCrash, strikePanic, strikeError, strikeStop}
	for i := range 1 + rng.IntN(5) {
		k := strike{at: points[rng.IntN(len(points))], how: hows[rng.IntN(len(hows))]}
		if i == 0 {
			// Seed by seed every strike has its turn, so that a few seeds show each.
			turn := int(s.Seed%1000)*7 + rng.IntN(2)*3
			k.at, k.how = points[turn%len(points)], hows[turn/len(points)%len(hows)]
		}
		k.n, k.stop = 1+rng.IntN(often(k.at)), s.part(rng, 0.1, 3)
		strikes = append(strikes, k)
	}
	return set, strikes
}

// often is how often a process passes a failpoint, roughly.
func often(p actors.Failpoint) int {
	switch p {
	case actors.BeforeOpen, actors.AfterRestore:
		return 2
	case actors.OnMessage:
		return 120
	case actors.AfterPoll, actors.BeforeStep, actors.AfterStep:
		return 8
	}
	return 4
}

func (s *Scenario) total() (n int64) {
	for _, recs := range s.Log {
		n += int64(len(recs))
	}
	return n
}

// open makes a log of the records, with holes where positions are missing.
func (s *Scenario) open(cfg sourcetest.Config) *sourcetest.Log {
	cfg.Name, cfg.ID, cfg.Partitions = "log", "log-1", int32(len(s.Log))
	l := sourcetest.New(cfg)
	for p, recs := range s.Log {
		end := int64(0)
		for _, r := range recs {
			at, _ := r.Position.Int64()
			l.Skip(p, at-end)
			l.Append(p, r)
			end = at + 1
		}
	}
	return l
}

// plan compiles the flow as a mutant understands it.
func (s *Scenario) plan(m Mutant) (*flow.Plan, error) {
	src := s.Flow
	if m == DedupeOff {
		src = strings.Replace(src, "id: event_id\n", "id: delivery\n", 1)
	}
	return flow.Parse("flow.yaml", []byte(src), nil)
}

// Truth is what an undisturbed reading of the log gives, once by machines in a loop and once by package batch.
func (s *Scenario) Truth() (*invariant.Truth, error) {
	plan, err := s.plan(Sound)
	if err != nil {
		return nil, err
	}
	t, err := invariant.NewTruth(plan, s.Log)
	if err != nil {
		return nil, err
	}
	doc, err := batch.Run(context.Background(), batch.Config{Plan: plan, Source: s.open(sourcetest.Config{Bounded: true}), Mode: emit.ModeReplay})
	t.Hash, t.Identity = doc.ValuesHash, eventOf
	return t, err
}

// Limits are the bounds that the processes of the scenario are held to.
func (s *Scenario) Limits(t *invariant.Truth) invariant.Limits {
	// A window of records may be processed after the bound is reached.
	return invariant.Limits{Window: s.Window, Results: s.EpochBytes + t.MostIn(s.Window)}
}

func (s *Scenario) String() string {
	return fmt.Sprintf("seed %d: %d partitions, %d records, %d owners, ttl %s, window %d, epochs of %d bytes, pace %s, rough %.3f, quiet after %s, drift %.3f, %d happenings",
		s.Seed, len(s.Log), s.total(), s.Owners, s.TTL, s.Window, s.EpochBytes, s.Pace, s.Rough, s.Quiet, s.Drift, len(s.Timetable))
}
