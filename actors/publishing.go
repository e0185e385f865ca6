package actors

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sources"
)

func validateSinks(p *sinks.Publisher, check func(bad bool, format string, args ...any)) {
	if p == nil {
		return
	}
	check(len(p.Sinks) == 0, "There is a Publisher without sinks: leave it out.")
	names := map[string]bool{}
	for _, s := range p.Sinks {
		check(s.Sink == nil, "The sink %q is nil.", s.Name)
		check(names[s.Name], "Two sinks have the name %q: each needs one of its own.", s.Name)
		names[s.Name] = true
	}
}

// openSinks opens the sinks of the run, and brings them to where the journal stands: a target that was added to the run, or has lost rows, gets them
// from the journal.
func (in *incarnation) openSinks() error {
	to := sinks.Target{RunID: in.cfg.RunID, Partitions: in.partitions}
	if in.owned = in.lease.Load(); in.owned != nil {
		to.Token = uint64(in.owned.Token)
	}
	rows, entries := to, to
	rows.Outputs, rows.Revised = sinks.OutputsOf(in.cfg.Plan), in.cfg.Plan.Revised
	entries.Entries = true
	rows.Sequence, entries.Sequence = sinks.SequenceOf(in.cfg.Plan, false, in.origin), sinks.SequenceOf(in.cfg.Plan, true, in.origin)
	var err error
	in.publication, err = in.openPublisher(in.cfg.Publisher, rows, in.history, func(c partitions.Counts) int64 { return c.Outputs })
	if err == nil {
		in.late, err = in.openPublisher(in.cfg.Late, entries, in.lateHistory, func(c partitions.Counts) int64 { return c.Late })
	}
	return err
}

// originOf names what the rows of a run are computed from, for its sinks: a fresh store that meets what another has published does not take it for its own. What
// a log holds that goes by its hash, and how it is dealt, says all. Of any other, rows also depend on where it began and on what was decided meanwhile, which
// stands in the journal alone, so the name is the run's beginning there. The log's identity does not belong to it: the journal holds that against the run, and
// it may come to be known while the run is under way, as it does when brokers are upgraded.
func originOf(info sources.Info, state control.RunState) string {
	switch {
	case info.Hashed:
		return fmt.Sprintf("%s in %d", info.ID, len(info.Partitions))
	case !state.Created.IsZero():
		return "begun " + state.Created.UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	return info.ID // a journal that does not tell
}

// openPublisher opens sinks; stands is what of the counts of a partition its journal holds for them.
func (in *incarnation) openPublisher(p *sinks.Publisher, to sinks.Target, history func(context.Context, int32, func(sinks.Rows) error) error,
	stands func(partitions.Counts) int64) (*sinks.Publication, error) {
	if p == nil {
		return nil, nil
	}
	committed := make(map[int32]int64, len(in.partitions))
	for _, n := range in.partitions {
		committed[n] = stands(in.state.Cuts[n].Counts)
	}
	with := *p
	with.History = history
	with.OnRefused = func(sink string, err error) { in.tellRefused(control.EffectPublish, sink, err) }
	return with.Open(in.ctx, to, committed)
}

// tellRefused tells of an effect that this owner may not do any more, or was refused by a sink.
func (in *incarnation) tellRefused(effect, target string, err error) {
	if l := in.owned; l != nil && in.cfg.OnRefused != nil {
		in.cfg.OnRefused(control.Refusal{RunID: in.cfg.RunID, Lease: l.Name, Owner: l.Owner, Token: l.Token, Effect: effect, Target: target, Detail: err.Error()})
	}
}

// history numbers the rows of a partition that the journal holds.
func (in *incarnation) history(ctx context.Context, partition int32, fn func(sinks.Rows) error) error {
	from := int64(0)
	return in.cfg.Journal.Outputs(ctx, in.cfg.RunID, partition, func(rows partitions.Rows) error {
		r := sinks.Rows{Partition: partition, From: from, Rows: rows}
		from = r.End()
		return fn(r)
	})
}

// publish makes the rows of an epoch visible in every sink that is not part of the journal. It waits for a sink that is down, and is cut off when the
// incarnation ends: nothing is lost by that, since the next one reads back what stands.
func (in *incarnation) publish(ctx context.Context, c control.Commit) error {
	return in.publishing(ctx, in.publication, rowsOf(c), (*sinks.Publication).Publish)
}

// join hands the rows of an epoch to the sinks that are part of the journal, just before it commits.
func (in *incarnation) join(ctx context.Context, c control.Commit) error {
	return in.publishing(ctx, in.publication, rowsOf(c), (*sinks.Publication).Join)
}

// rowsOf numbers the rows of an epoch.
func rowsOf(c control.Commit) (batches []sinks.Rows) {
	for _, p := range c.Partitions {
		if n := int64(p.Rows.Count); n > 0 {
			batches = append(batches, sinks.Rows{Partition: p.Cut.Partition, From: p.Cut.Counts.Outputs - n, Rows: p.Rows})
		}
	}
	return batches
}

// publishLate makes the late events of an epoch visible.
func (in *incarnation) publishLate(ctx context.Context, c control.Commit) error {
	if in.late == nil {
		return nil
	}
	var batches []sinks.Rows
	for _, p := range c.Partitions {
		if r := sinks.LateEntries(in.cfg.RunID, p.Cut.Partition, p.Cut.Counts.Late, p.Quarantine); r.Count > 0 {
			batches = append(batches, r)
		}
	}
	return in.publishing(ctx, in.late, batches, (*sinks.Publication).Publish)
}

// lateFirst says whether late events are published before the journal commits them: what a kill leaves out behind it could not be found out where a
// sink does not tell what stands, nor once the run has ended.
func (in *incarnation) lateFirst(c control.Commit) bool {
	return in.late != nil && (c.Status == control.RunFinished || slices.ContainsFunc(in.cfg.Late.Sinks, func(s sinks.Named) bool { return !s.Sink.Features().ReadBack }))
}

// lateHistory gives the late events of a partition that the journal holds.
func (in *incarnation) lateHistory(ctx context.Context, partition int32, fn func(sinks.Rows) error) error {
	const most = 512
	e := sinks.NewEntries(in.cfg.RunID, partition, 0)
	err := in.cfg.Journal.Quarantine(ctx, in.cfg.RunID, func(q partitions.Quarantined) error {
		if q.Partition != partition || q.Reason != partitions.ReasonLate {
			return nil
		}
		if e.Add(&q); e.Count < most {
			return nil
		}
		rows := e.Rows
		e = sinks.NewEntries(in.cfg.RunID, partition, rows.End())
		return fn(rows)
	})
	if err != nil || e.Count == 0 {
		return err
	}
	return fn(e.Rows)
}

func (in *incarnation) publishing(ctx context.Context, to *sinks.Publication, batches []sinks.Rows, do func(*sinks.Publication, context.Context, []sinks.Rows) error) error {
	if to == nil || len(batches) == 0 {
		return nil
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(in.ctx, func() { cancel(context.Cause(in.ctx)) })()
	return do(to, within, batches)
}

// journalFirst says whether the journal takes an epoch before the sinks do. The rows of a partition are the same however often they are computed,
// but for one thing: an operator's choice, which stands only once it is in the journal. Rows that follow from one that was then forgotten could
// not be taken back.
func (in *incarnation) journalFirst(c control.Commit) bool {
	if in.publication == nil {
		return false
	}
	for _, s := range in.cfg.Publisher.Sinks {
		if !s.Sink.Features().ReadBack {
			return false // what it lacks after a kill could not be found out
		}
	}
	for _, p := range c.Partitions {
		for _, d := range p.Decisions {
			if d.Chosen() {
				return true
			}
		}
	}
	return false
}

// closeSinks gives the sinks up.
func (in *incarnation) closeSinks() {
	for _, p := range []*sinks.Publication{in.publication, in.late} {
		if p == nil {
			continue
		}
		if err := protect(p.Close); err != nil {
			in.log.Debug("closing the sinks", "cause", err.Error())
		}
	}
}
