package status

import "time"

// State is what a partition does. The package's documentation has the order.
type State string

// The states.
const (
	Stopped        State = "STOPPED"
	Finished       State = "FINISHED"
	Standby        State = "STANDBY"
	Blocked        State = "BLOCKED"
	Backoff        State = "BACKOFF"
	Starting       State = "STARTING"
	WaitsForCommit State = "WAITS_FOR_COMMIT"
	Paused         State = "PAUSED"
	WaitsForCredit State = "WAITS_FOR_CREDIT"
	Processing     State = "PROCESSING"
	Idle           State = "IDLE"
	Reading        State = "READING"
)

// States are all there are, in the order in which the first that holds is the state.
func States() []State {
	return []State{Stopped, Finished, Standby, Blocked, Backoff, Starting, WaitsForCommit, Paused, WaitsForCredit, Processing, Idle, Reading}
}

// Facts are what the state of a partition is made of.
type Facts struct {
	Phase Phase
	Wait  Wait
	// Finished, Blocked and Idle are of the partition's input; Withheld, Held, Aside and Busy of the way to it.
	Finished, Blocked, Idle, Withheld, Held, Aside, Busy bool
}

// State is the one state that the facts make.
func (f Facts) State() State {
	switch {
	case f.Finished:
		return Finished
	case f.Phase == PhaseStopped:
		return Stopped
	case f.Wait == WaitLease:
		return Standby
	case f.Phase == PhaseRecoveryBlocked, f.Blocked:
		return Blocked
	case f.Wait == WaitBackoff:
		return Backoff
	case f.Phase != PhaseRunning:
		return Starting
	case f.Withheld:
		return WaitsForCommit
	case f.Held:
		return Paused
	case f.Aside:
		return WaitsForCredit
	case f.Busy:
		return Processing
	case f.Idle:
		return Idle
	}
	return Reading
}

// Account keeps how long something was in each state. The sum over all states is the time since it began, to the nanosecond. A moment before
// the last one counts as the last one, so that a clock that is set back takes nothing away.
type Account struct {
	began, since, last time.Time
	state              State
	spent              map[State]time.Duration
}

// NewAccount begins in a state.
func NewAccount(s State, at time.Time) *Account {
	return &Account{began: at, since: at, last: at, state: s, spent: map[State]time.Duration{}}
}

// To is in state s from a moment on.
func (a *Account) To(s State, at time.Time) {
	a.reach(at)
	if s != a.state {
		a.state, a.since = s, a.last
	}
}

// reach moves the account on to a moment, in the state that stands.
func (a *Account) reach(at time.Time) {
	if d := at.Sub(a.last); d > 0 {
		a.spent[a.state] += d
		a.last = at
	}
}

// State is the present one, and since when.
func (a *Account) State() (s State, since time.Time) { return a.state, a.since }

// Spent is the time in each state up to a moment; a state that never was is absent. Began is when the account did.
func (a *Account) Spent(at time.Time) (spent map[State]time.Duration, began time.Time) {
	a.reach(at)
	spent = make(map[State]time.Duration, len(a.spent))
	for s, d := range a.spent {
		spent[s] = d
	}
	return spent, a.began
}
