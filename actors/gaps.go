package actors

import (
	"context"
	"fmt"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// A partition that is moved to where its log has nothing can never be moved back, since a journal does not go back. So the log is asked before a gap
// is accepted: its end may have moved since the partition was blocked, in both directions.

// logSeen is how the log stood when a gap was about to be accepted. Extents are there only if the source can be asked.
type logSeen struct {
	sources.Observation
	err error
}

// lookForGaps asks the log if a gap of a blocked partition waits to be accepted; nil if none does.
func (e *engine) lookForGaps(ctx context.Context, pending []control.Intervention, blocked map[int32]blockedAt) *logSeen {
	for _, i := range pending {
		if _, is := blocked[i.Partition]; !is || i.Kind != control.AcceptGap {
			continue
		}
		seen := &logSeen{}
		if by, can := e.cfg.Source.(sources.Observer); can {
			ctx, cancel := context.WithTimeout(ctx, observeTimeout)
			defer cancel()
			if seen.Observation, seen.err = by.Observe(ctx); seen.err != nil {
				e.log.Debug("the log was not asked; the gap waits", "run", e.cfg.RunID, "partition", i.Partition, "code", codeName(seen.err), "cause", seen.err.Error())
			}
		}
		return seen
	}
	return nil
}

// judgeGap says whether a log can be read on at the position that a gap is to be accepted to. Neither an outcome nor ready: the log has not said.
func (s *supervisor) judgeGap(i control.Intervention, b blockedAt, log *logSeen) (o settlement, ready bool) {
	another := log != nil && log.ID != "" && s.header.SourceID != "" && log.ID != s.header.SourceID
	if log == nil || log.err != nil || another || log.Unanswered[i.Partition] != nil {
		return o, false
	}
	if e, has := log.Extents[i.Partition]; has {
		first := e.Start
		if codes.Of(b.cause) == codes.PoisonBatch && b.block.Known && b.block.Have.Cmp(first) > 0 {
			first = b.block.Have
		}
		return within(i, first, e)
	}
	// The log cannot be asked. The one place that it has named is known to be there.
	if !b.block.Known {
		return dismissed("partition %d was not moved: its log held nothing that would tell where it goes on, so %s may lie behind what comes next, and a partition never goes back. "+
			"Once it holds a record again, --retry meets that one and names it; a shard that is closed gets none, and a process that is started with --accept-gap --reason ends it where it stands", i.Partition, i.To), false
	}
	if i.To != b.block.Have {
		return dismissed("partition %d was not moved: its log names %s to read on at, and cannot say whether it has %s. Accept the gap to that position; if it is gone too by now, --retry names the next", i.Partition, b.block.Have, i.To), false
	}
	return o, true
}

// within holds a position against what the log has. first is where the log can be read on.
func within(i control.Intervention, first record.Position, e sources.Extent) (o settlement, ready bool) {
	has := fmt.Sprintf("partition %d was not moved: its log has positions from %s to before %s now", i.Partition, e.Start, e.End)
	cure := fmt.Sprintf("name a position from %s to %s", first, e.End)
	if first.Cmp(i.From) <= 0 {
		cure = fmt.Sprintf("name a position after %s, up to %s", i.From, e.End)
	}
	switch {
	case e.End.Cmp(i.From) <= 0:
		return dismissed("%s, and the run stands at %s already: there is nothing to read on at. Restore the records and --retry, or begin a new run", has, i.From), false
	case i.To.Cmp(e.End) > 0:
		return dismissed("%s, so %s lies beyond its end, and a partition never goes back; %s", has, i.To, cure), false
	case i.To.Cmp(first) < 0:
		return dismissed("%s and can be read on from %s, so %s would be met by the same; %s", has, first, i.To, cure), false
	}
	return o, true
}
