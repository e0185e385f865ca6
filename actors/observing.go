package actors

import (
	"context"
	"slices"
	"time"

	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sources"
)

// A run without an end looks at its log every so often, apart from reading: whether it is another one by now, or has partitions that the run does
// not know; those begin with the next incarnation, each at the beginning of its log, and hold the merged watermark from then on. What the log is about
// to remove although the run needs it is told before it happens.

const (
	// DefaultObserveEvery is how often a log without an end is looked at.
	DefaultObserveEvery = 10 * time.Second
	observeTimeout      = 10 * time.Second
	// riskHorizon is how near a loss has to be to be told, riskWindow how long what was seen counts.
	riskHorizon = time.Hour
	riskWindow  = time.Hour
)

// RetentionRisk tells, with every look at the log, that it is about to remove what a partition still needs, or once with Over that it is not any more.
type RetentionRisk struct {
	Partition int32
	Risk      backpressure.Risk
	Over      bool
}

// observing is what the run actor knows of its log beside what it reads.
type observing struct {
	timer     *time.Timer
	armed     bool
	retention map[int32]*backpressure.Retention
	risky     map[int32]bool
}

// watchLog begins to look at a log without an end.
func (s *supervisor) watchLog() {
	if s.cur.bounded || !s.e.cfg.unbounded() || s.e.cfg.HandOn || s.observing.armed {
		return
	}
	s.observing.armed = true
	s.observing.timer = after(s.e.cfg.ObserveEvery, s.e.run, toRun(observeDue{}))
}

// look asks the log, by the reader if that can tell, or else by the source.
func (s *supervisor) look() {
	s.observing.armed = false
	if s.phase != running {
		return // the next incarnation asks anyway, and looks on
	}
	in, m := s.cur, observed{stamp: s.cur.stamp()}
	in.workers.Go(func() {
		m.err = protect(func() (err error) {
			ctx, cancel := context.WithTimeout(in.ctx, observeTimeout)
			defer cancel()
			m.seen, err = in.observe(ctx)
			return err
		})
		shell.Send(in.run, toRun(m))
	})
}

func (in *incarnation) observe(ctx context.Context) (sources.Observation, error) {
	for _, by := range []any{in.source, in.cfg.Source} {
		if o, ok := by.(sources.Observer); ok {
			return o.Observe(ctx)
		}
	}
	info, err := in.cfg.Source.Info(ctx)
	return sources.Observation{Info: info}, err
}

// observed takes what was seen.
func (s *supervisor) observed(m observed) {
	s.watchLog()
	if s.phase != running {
		return
	}
	if m.err != nil {
		s.e.log.Debug("the log was not looked at", "run", s.e.cfg.RunID, "code", codeName(m.err), "cause", m.err.Error())
		return
	}
	h := s.header
	added := slices.DeleteFunc(slices.Clone(m.seen.Partitions), func(p int32) bool { return slices.Contains(h.Partitions, p) })
	another := h.SourceID != "" && m.seen.ID != "" && h.SourceID != m.seen.ID
	if len(added) > 0 || another {
		s.e.log.Info("the log has changed; the run opens it again", "run", s.e.cfg.RunID, "added", added, "another", another)
		s.restart()
		return
	}
	for p, e := range m.seen.Extents {
		s.assess(p, e)
	}
}

// assess says whether what a partition needs next is about to be removed.
func (s *supervisor) assess(p int32, e sources.Extent) {
	start, ok := e.Start.Int64()
	next, known := s.state.Cuts[p].Next.Int64()
	end, counts := e.Stable.Int64()
	if _, blocked := s.blocked[p]; blocked || !ok || !known || !counts {
		return // lost already, or positions that do not count records
	}
	r := s.observing.retention[p]
	if r == nil {
		r = backpressure.NewRetention(riskHorizon, riskWindow)
		s.observing.retention[p] = r
	}
	risk, is := r.Look(time.Now(), start, next, end)
	was := s.observing.risky[p]
	if !is && !was {
		return
	}
	s.observing.risky[p] = is
	if is && !was {
		s.e.log.Warn("the log is about to remove what the run needs", "run", s.e.cfg.RunID, "partition", p, "code", codes.RetentionAtRisk.Name, "start", start, "next", next, "end", end,
			"left", risk.Left, "removed_per_second", risk.Removed, "read_per_second", risk.Read, "in", risk.In.String())
	}
	if s.e.cfg.OnRetention != nil {
		s.e.cfg.OnRetention(RetentionRisk{Partition: p, Risk: risk, Over: !is})
	}
}
