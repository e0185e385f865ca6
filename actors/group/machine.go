package group

// Phase is where the engine of one partition stands in this process.
type Phase string

// The phases.
//
//	           assigned              revoked                ended
//	┌────────┐ ────────▶ ┌─────────┐ ──────▶ ┌──────────┐ ───────▶ absent
//	│ ABSENT │           │ RUNNING │         │ DRAINING │
//	└────────┘ ◀──────── └─────────┘         └──────────┘
//	    ▲  revoked, lost   │  ▲   │ lost           │ deadline, lost
//	    │                  │  │   ▼                ▼
//	    │     ended itself ▼  │ due            ┌──────────┐  ended
//	    │              ┌─────────┐             │ STOPPING │ ───────▶ absent
//	    └───────────── │ WAITING │             └──────────┘
//	                   └─────────┘
//
// A partition whose log has an end is FINISHED after it, and absent once it is revoked or lost.
const (
	Absent   Phase = "ABSENT"   // not ours, and nothing of it is under way
	Running  Phase = "RUNNING"  // its engine runs, or waits for the lease
	Waiting  Phase = "WAITING"  // its engine has failed, and is started again after a pause
	Draining Phase = "DRAINING" // its engine processes what it has in hand and commits
	Stopping Phase = "STOPPING" // its engine was told to end at once
	Finished Phase = "FINISHED" // its log has ended and everything is committed
)

// event is what happens to a partition.
type event uint8

const (
	assigned event = iota
	revoked
	lost
	deadline  // what is drained has no more time
	ended     // the engine has ended by a failure, or as it was told
	exhausted // the engine has ended because the log has
	committed // the engine has committed an epoch
	due       // the pause is over
)

// action is what the machine wants done.
type action uint8

const (
	start   action = iota // an engine
	drain                 // tell the engine to end in order
	kill                  // tell the engine to end at once
	pause                 // begin a pause, after which due comes
	forget                // end the pause
	release               // whoever waits until the partition is gone waits no longer
)

// machine is the life of one partition in this process. It starts nothing itself.
type machine struct {
	phase Phase
	// again: it was assigned again while its engine was ending.
	again bool
	// failures in a row without a commit in between.
	failures int
}

func newMachine() machine { return machine{phase: Absent} }

// step takes an event and says what to do, in order.
func (m *machine) step(e event) []action {
	switch m.phase {
	case Absent:
		return m.absent(e)
	case Running:
		return m.running(e)
	case Waiting, Finished:
		return m.resting(e)
	case Draining, Stopping:
		return m.ending(e)
	}
	return nil
}

func (m *machine) absent(e event) []action {
	switch e {
	case assigned:
		m.phase, m.failures = Running, 0
		return []action{start}
	case revoked, lost:
		return []action{release}
	case deadline, ended, exhausted, committed, due:
	}
	return nil
}

func (m *machine) running(e event) []action {
	switch e {
	case revoked:
		m.phase = Draining
		return []action{drain}
	case lost:
		m.phase = Stopping
		return []action{kill}
	case ended:
		m.phase = Waiting
		m.failures++
		return []action{pause}
	case exhausted:
		m.phase = Finished
	case committed:
		m.failures = 0
	case assigned, deadline, due:
	}
	return nil
}

func (m *machine) resting(e event) []action {
	switch e {
	case revoked, lost:
		was := m.phase
		m.phase = Absent
		if was == Waiting {
			return []action{forget, release}
		}
		return []action{release}
	case due:
		if m.phase == Waiting {
			m.phase = Running
			return []action{start}
		}
	case assigned, deadline, ended, exhausted, committed:
	}
	return nil
}

func (m *machine) ending(e event) []action {
	switch e {
	case assigned:
		m.again = true
	case revoked:
		m.again = false
	case lost, deadline:
		m.again = m.again && e == deadline
		if m.phase == Draining {
			m.phase = Stopping
			return []action{kill}
		}
	case ended, exhausted:
		m.phase = Absent
		if !m.again {
			return []action{release}
		}
		m.again = false
		return append([]action{release}, m.absent(assigned)...)
	case committed, due:
	}
	return nil
}
