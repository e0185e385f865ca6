package actors

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// A partition that fails again and again is taken out of a run without a limit of records, so that it does not stop the others: the next
// incarnation neither restores nor reads it. Its cut stays, and so does the merged watermark, which no record of it has passed.

// ofPartition says of which partition a failure is: that of the actor.
func (c cause) ofPartition() (int32, bool) {
	name, ok := strings.CutPrefix(c.actor, partitionPrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(name, 10, 32)
	return int32(n), err == nil
}

// unbounded says whether the run has no limit of records: what one partition lacks does not keep it from its end.
func (c *Config) unbounded() bool { return c.MaxRecords == 0 && c.UntilRecords == 0 }

// block takes a partition out, or ends the run when none is left.
func (s *supervisor) block(p int32, f Failure, n int) {
	s.blocked[p] = blockedAt{place: f.place(), cause: f.Cause, tries: n, block: blockOf(p, f.Cause)}
	s.blockedChanged = true
	maps.DeleteFunc(s.counts, func(c cause, _ int) bool { q, ok := c.ofPartition(); return ok && q == p })
	if len(s.blocked) == len(s.all) && !(s.cur.stays() && s.recovering()) {
		s.over(gaveUp(f, n, s.state.Epoch))
		return
	}
	// What it was handed comes in no later incarnation.
	s.standing, s.reached = nil, recordsOf(s.state)
	s.e.log.Error("a partition is blocked; the others go on", "run", s.e.cfg.RunID, "partition", p, "next", s.state.Cuts[p].Next, "failed", n,
		"at", f.place(), "code", codeName(f.Cause), "cause", f.Cause.Error())
}

// blockedAt is why a partition is not read.
type blockedAt struct {
	place string
	cause error
	tries int
	block *Block
}

// blockedEnd is the end of a run that has gone on without some partitions: the cause of the first of them.
func (s *supervisor) blockedEnd() error {
	var names []string
	all := slices.Sorted(maps.Keys(s.blocked))
	for _, p := range all {
		names = append(names, strconv.Itoa(int(p)))
	}
	first := s.blocked[all[0]]
	return codes.New(codeOr(first.cause, codes.Internal), "blocked partitions: %s; the others went on to epoch %d, and the run can be resumed; %s failed %d times without getting further: %w",
		strings.Join(names, ", "), s.state.Epoch, first.place, first.tries, first.cause)
}

// blockedResults are the blocked partitions of a state, in ascending order.
func blockedResults(s control.RunState, blocked map[int32]blockedAt) (out []PartitionResult) {
	for _, p := range slices.Sorted(maps.Keys(blocked)) {
		out = append(out, partitionResult(s, p, blocked))
	}
	return out
}
