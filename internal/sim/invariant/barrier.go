package invariant

import (
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// RestoreBarrier: no record is asked for and none is processed before every partition has its state, and then the log is opened exactly where
// the journal stands.
type RestoreBarrier struct{ processes map[string]*restoring }

type restoring struct {
	state    control.RunState
	restored bool
	number   uint64
}

// NewRestoreBarrier makes the checker.
func NewRestoreBarrier() *RestoreBarrier { return &RestoreBarrier{processes: map[string]*restoring{}} }

// Name is restore-barrier.
func (*RestoreBarrier) Name() string { return "restore-barrier" }

// See implements Checker.
func (c *RestoreBarrier) See(e Entry, r *Report) {
	p := c.processes[e.Process]
	if p == nil {
		p = &restoring{}
		c.processes[e.Process] = p
	}
	switch ev := e.Event.(type) {
	case Opened:
		p.state, p.restored = ev.State, false
	case Restored:
		p.restored, p.number = true, ev.Incarnation
	case SourceOpened:
		if !p.restored {
			r.Add("%s opened the log before its state was restored", e.Process)
		}
		for n, at := range ev.From {
			var want record.Position
			if cut, ok := p.state.Cuts[n]; ok {
				want = cut.Next
			}
			if at != want {
				r.Add("%s reads partition %d from %s; its state stands at %s", e.Process, n, at, want)
			}
		}
	case PollBegan:
		if !p.restored {
			r.Add("%s asked for records before its state was restored", e.Process)
		}
	case Stepped:
		if !p.restored || p.number != ev.Incarnation {
			r.Add("%s processes partition %d in incarnation %d before its state is restored", e.Process, ev.Partition, ev.Incarnation)
		}
	}
}

// End implements Checker.
func (*RestoreBarrier) End(*Report) {}
