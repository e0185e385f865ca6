package backpressure

import (
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
)

// Machine is the state of one run, or of one partition where each is to be blocked on its own. Not safe for concurrent use.
//
// A block does not survive the process by itself: the caller records every transition, and reports the blocks that stand to a new
// machine (Causes, then Block) before anything is read.
type Machine struct {
	config Config
	row    causes
	gauges [gauges]standing
	blocks [blocks]standing

	// history is a ring; next is where the next transition goes, seen how many there were in all.
	history []Transition
	seen    int
}

// standing is what is known of one cause.
type standing struct {
	on       bool
	since    time.Time
	measured int64
	// threshold and detail are those of the report, for blocks; a gauge has its band.
	threshold int64
	detail    string
}

// New makes a machine that is FLOWING. The error is that of Validate.
func New(c Config) (*Machine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Machine{config: c}, nil
}

// State is what the run may do now.
func (m *Machine) State() State { return stateOf[m.row] }

// Over says whether a gauge is over its threshold, and not back yet.
func (m *Machine) Over(g Gauge) bool { return m.gauges[g].on }

// Measure takes the value of a gauge. It returns the transition when one happened: a threshold was crossed.
func (m *Machine) Measure(g Gauge, value int64, at time.Time) (Transition, bool) {
	band, s, table := m.config.bands()[g], &m.gauges[g], &gaugeTable[g]
	s.measured = value
	if band.off() {
		return Transition{}, false
	}
	stop, again := value >= band.High, value <= band.Low
	high, low := band.High, band.Low
	if table.falling {
		stop, again = again, stop
		high, low = low, high
	}
	switch {
	case !s.on && stop:
		s.on, s.since = true, at
		return m.step(table.on, Transition{At: at, Reason: table.enter, Measured: value, Threshold: high}), true
	case s.on && again:
		s.on = false
		e := table.off
		if e == back && m.sourceOver() {
			// Another gauge of the source is still over: the state stays, the change is told.
			e = over
		}
		return m.step(e, Transition{At: at, Reason: table.leave, Measured: value, Threshold: low}), true
	}
	return Transition{}, false
}

func (m *Machine) sourceOver() bool {
	return m.gauges[UnfinishedLag].on || m.gauges[BytesInFlight].on || m.gauges[FreeDisk].on || m.gauges[EventTimeLead].on
}

// Block reports that recovery is not possible without an operator. The reason is one of RetentionLost, RetentionNear, TopicRecreated
// and FenceRegression, any other is an INTERNAL error; detail names the place (topic, partition, positions with all their digits).
// A block that stands already takes the new values, without a transition.
func (m *Machine) Block(reason Reason, measured, threshold int64, detail string, at time.Time) (Transition, bool, error) {
	i, known := blockOf(reason)
	if !known {
		return Transition{}, false, codes.New(codes.Internal, "backpressure: %q does not block recovery", reason)
	}
	s := &m.blocks[i]
	was := s.on
	if !was {
		s.since = at
	}
	s.on, s.measured, s.threshold, s.detail = true, measured, threshold, detail
	if was {
		return Transition{}, false, nil
	}
	return m.step(block, Transition{At: at, Reason: reason, Measured: measured, Threshold: threshold, Detail: detail}), true, nil
}

// Recover takes an operator's choice about one block, the only way out of RECOVERY_BLOCKED. The caller has recorded it. When other
// blocks stand the state stays. A choice that does not fit is a CHOICE_REFUSED error and changes nothing.
func (m *Machine) Recover(c Choice, at time.Time) (Transition, error) {
	i, err := m.check(c)
	if err != nil {
		return Transition{}, err
	}
	s := &m.blocks[i]
	s.on = false
	e := settled
	if slices.ContainsFunc(m.blocks[:], func(s standing) bool { return s.on }) {
		e = block
	}
	t := Transition{At: at, Reason: OperatorChoice, Measured: s.measured, Threshold: s.threshold, Detail: s.detail, Choice: c}
	return m.step(e, t), nil
}

const maxText = 1000

func (m *Machine) check(c Choice) (int, error) {
	i, known := blockOf(c.Settles)
	switch {
	case !known || !m.blocks[i].on:
		return 0, codes.New(codes.ChoiceRefused, "no block %q stands; %s", c.Settles, m.standingBlocks())
	case !slices.Contains(blockTable[i].choices, c.Kind):
		return 0, codes.New(codes.ChoiceRefused, "the choice %q does not end the block; it ends %s", c.Kind, blockRelease(i))
	case strings.TrimSpace(c.Who) == "":
		return 0, codes.New(codes.ChoiceRefused, "the choice does not say who made it; name the operator")
	case strings.TrimSpace(c.Why) == "":
		return 0, codes.New(codes.ChoiceRefused, "the choice does not say why it was made; give the reason")
	case len(c.Who) > maxText || len(c.Why) > maxText:
		return 0, codes.New(codes.ChoiceRefused, "who (%d bytes) and why (%d bytes) may have %d bytes each; shorten them", len(c.Who), len(c.Why), maxText)
	}
	return i, nil
}

func (m *Machine) standingBlocks() string {
	var names []string
	for i := range m.blocks {
		if m.blocks[i].on {
			names = append(names, string(blockTable[i].reason))
		}
	}
	if len(names) == 0 {
		return "nothing blocks recovery, so there is nothing to choose"
	}
	return "name one of " + strings.Join(names, ", ")
}

// step moves along the table and keeps the transition.
func (m *Machine) step(e event, t Transition) Transition {
	t.From = m.State()
	m.row = transitions[m.row][e]
	t.To = m.State()
	t.Release = m.release()
	if len(m.history) < m.config.History {
		m.history = append(m.history, t)
	} else {
		m.history[m.seen%m.config.History] = t
	}
	m.seen++
	return t
}

// release says what must happen until the run flows: every cause has to end.
func (m *Machine) release() string {
	var parts []string
	for _, c := range m.Causes() {
		parts = append(parts, c.Release)
	}
	return strings.Join(parts, ", and ")
}

// Causes are the reasons that stand, the gravest first: why the run is in its state and, after that one, which state would follow.
func (m *Machine) Causes() []Cause {
	var out []Cause
	for i, s := range m.blocks {
		if s.on {
			out = append(out, Cause{
				Reason: blockTable[i].reason, Since: s.since, Measured: s.measured, Threshold: s.threshold,
				Detail: s.detail, Release: blockRelease(i),
			})
		}
	}
	bands := m.config.bands()
	for _, g := range [...]Gauge{ProcessBuffer, UnfinishedLag, BytesInFlight, FreeDisk, EventTimeLead} {
		s, table := m.gauges[g], &gaugeTable[g]
		if !s.on {
			continue
		}
		c := Cause{Reason: table.enter, Since: s.since, Measured: s.measured, Threshold: bands[g].High, Unit: table.unit, Release: gaugeRelease(g, bands[g])}
		if table.falling {
			c.Threshold = bands[g].Low
		}
		out = append(out, c)
	}
	return out
}

// History are the last transitions, oldest first, and the number of older ones that were dropped.
func (m *Machine) History() (kept []Transition, dropped int) {
	n := len(m.history)
	kept = make([]Transition, 0, n)
	start := 0
	if n == m.config.History {
		start = m.seen % n
	}
	kept = append(append(kept, m.history[start:]...), m.history[:start]...)
	return kept, m.seen - n
}
