package partitions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/watermark"
)

// model is the machine as its rules read, slow and simple: it sorts everything that waits at each record, keeps every record that it
// ever accepted, and forgets an event id by asking its generation. Only the watermark is the real one.
type model struct {
	plan    *flow.Plan
	wm      *watermark.Partition
	span    record.EventTime
	ids     map[string]int64
	waiting []made
	ever    []made // accepted so far
	ops     map[string][]operators.Operator
	ticked  record.EventTime
	rows    []string
	aside   []string
	counts  Counts
	// published says how often the result of a key at a time was.
	published map[string]int
}

func newModel(plan *flow.Plan) *model {
	m := &model{plan: plan, wm: watermark.NewPartition(plan.Lateness, plan.GapHold), ids: map[string]int64{}, ops: map[string][]operators.Operator{}, ticked: record.NoTime, published: map[string]int{}}
	m.span = max(1_000_000, record.EventTime((plan.DedupeHorizon+7)/8))
	return m
}

func floorDiv(a, b record.EventTime) int64 {
	n := int64(a / b)
	if a%b < 0 {
		n--
	}
	return n
}

func (m *model) alive(generation int64) bool {
	return m.wm.Watermark() == record.NoTime || record.EventTime(generation+1)*m.span > m.wm.Watermark()-record.EventTime(m.plan.DedupeHorizon)
}

func (m *model) set(r made, reason string) {
	id := r.id
	if r.bad != "" {
		id = ""
		if string(r.Value) == `{"id":1}` {
			id = "1"
		}
		if strings.HasPrefix(string(r.Value), `{"id":"a"`) {
			id = "a"
		}
	}
	m.aside = append(m.aside, fmt.Sprintf("%s %s id=%q", r.Position, reason, id))
}

func (m *model) deliver(r made) {
	m.counts.Records++
	revision := r.revision
	if m.plan.RevisionField == "" {
		revision = 0
	}
	if r.bad != "" {
		m.counts.Omitted++
		m.set(r, r.bad)
		return
	}
	if m.plan.SelectField != "" && !slices.Contains(m.plan.SelectValues, r.key) {
		m.counts.Filtered++
		return
	}
	generation, known := m.ids[r.id]
	skew := record.EventTime(m.plan.MaxFutureSkew)
	switch {
	case known && m.alive(generation):
		m.counts.Duplicates++
		if revision > 0 {
			m.revise(r)
		}
		return
	case skew > 0 && r.at > r.Arrival+skew:
		m.counts.Future++
		m.set(r, ReasonFuture)
		return
	}
	if g := floorDiv(r.at, m.span); m.alive(g) {
		m.ids[r.id] = g
	}
	if r.at < m.wm.Watermark() {
		m.counts.Late++
		m.set(r, ReasonLate)
	} else {
		m.counts.Consumed++
		if revision > 0 {
			m.set(r, ReasonRevised)
		}
		m.waiting = append(m.waiting, r)
		m.ever = append(m.ever, r)
	}
	if m.plan.SequenceField != "" && r.sequence > 0 {
		m.wm.Sequence(r.key, r.sequence, r.at)
	}
	m.wm.Observe(r.at)
	m.release(m.wm.Watermark())
}

func (m *model) release(w record.EventTime) {
	if m.plan.ClockEvery > 0 {
		m.ticks(w)
		return
	}
	slices.SortFunc(m.waiting, func(a, b made) int {
		if a.at != b.at {
			return int(max(-1, min(1, a.at-b.at)))
		}
		return strings.Compare(a.id, b.id)
	})
	for len(m.waiting) > 0 && m.waiting[0].at < w {
		r := m.waiting[0]
		m.waiting = m.waiting[1:]
		m.row(r.at, r.id, r.key, operators.Value{F: r.x, OK: !r.gap})
	}
}

// ticks ticks every instant that w has reached, looking at all records ever accepted.
func (m *model) ticks(w record.EventTime) {
	every := record.EventTime(m.plan.ClockEvery)
	first := record.MaxTime
	for _, r := range m.ever {
		first = min(first, r.at)
	}
	if first == record.MaxTime || first >= w {
		return
	}
	next := record.EventTime(floorDiv(first, every)+1) * every
	if m.ticked != record.NoTime {
		next = m.ticked + every
	}
	for ; next <= w; next += every {
		m.tick(next, every)
		m.ticked = next
	}
}

func (m *model) tick(at, every record.EventTime) {
	type cell struct {
		last made
		ok   bool
	}
	cells := map[string]cell{}
	for _, r := range m.ever {
		if r.at >= at {
			continue
		}
		c := cells[r.key]
		if r.at >= at-every && (!c.ok || r.at > c.last.at || r.at == c.last.at && r.id > c.last.id) {
			c = cell{last: r, ok: true}
		}
		cells[r.key] = c
	}
	var ids []string
	for key := range cells {
		ids = append(ids, key+"@"+at.String())
	}
	slices.Sort(ids)
	for _, id := range ids {
		key := strings.TrimSuffix(id, "@"+at.String())
		c := cells[key]
		m.row(at, id, key, operators.Value{F: c.last.x, OK: c.ok && !c.last.gap})
	}
}

func (m *model) row(at record.EventTime, id, key string, x operators.Value) {
	if !x.OK {
		x = operators.Gap
	}
	ops, ok := m.ops[key]
	if !ok {
		ops = m.fresh()
		m.ops[key] = ops
	}
	values := m.step(ops, at, x)
	m.publish(at, id, key, values)
}

func (m *model) publish(at record.EventTime, id, key string, values []operators.Value) {
	line := fmt.Sprintf("%s %s %s", at, id, key) + m.show(values)
	if m.plan.Revised {
		name := fmt.Sprint(key, at)
		line += fmt.Sprintf(" %d", m.published[name])
		m.published[name]++
	}
	m.rows = append(m.rows, line)
	m.counts.Outputs++
}

func (m *model) show(values []operators.Value) (line string) {
	for _, o := range m.plan.Outputs[:m.plan.Results()] {
		if v := values[o.Node]; v.OK {
			line += fmt.Sprintf(" %v", v.F)
		} else {
			line += " null"
		}
	}
	return line
}

func (m *model) fresh() (ops []operators.Operator) {
	for _, n := range m.plan.Nodes {
		ops = append(ops, n.New())
	}
	return ops
}

func (m *model) step(ops []operators.Operator, at record.EventTime, x operators.Value) []operators.Value {
	values := make([]operators.Value, len(ops))
	for i, n := range m.plan.Nodes {
		in := x
		if n.From >= 0 {
			in = values[n.From]
		}
		values[i] = ops[i].Step(at, in)
	}
	return values
}

func (m *model) end() {
	if m.plan.ClockEvery > 0 && m.wm.MaxEventTime() != record.NoTime {
		every := record.EventTime(m.plan.ClockEvery)
		m.ticks(record.EventTime(floorDiv(m.wm.MaxEventTime(), every)+1) * every)
		return
	}
	m.release(record.MaxTime)
}

// The machine does what the model does, however the log is cut into batches, and however often it is cut down and restored.
func TestMachineAgainstModel(t *testing.T) {
	t.Parallel()
	eachCase(t, 700, func(t *testing.T, text string, log []made, rng *rand.Rand) {
		plan := planOf(t, text)
		m := newModel(plan)
		h := newHarness(plan, 0)
		for from := 0; from < len(log); {
			to := min(len(log), from+1+rng.IntN(60))
			for _, r := range log[from:to] {
				m.deliver(r)
			}
			h.deliver(t, recordsOf(log[from:to]))
			from = to
			if rng.IntN(4) == 0 {
				h.cutAndCrash(t)
			}
			if h.m.Watermark() != m.wm.Watermark() {
				t.Fatalf("watermark %s, the rule says %s", h.m.Watermark(), m.wm.Watermark())
			}
		}
		m.end()
		h.finish(t, record.NoTime)
		same(t, "rows", h.rows, m.rows)
		var aside []string
		for _, q := range h.quarantine {
			line, _, _ := strings.Cut(q, " at=")
			aside = append(aside, line)
		}
		same(t, "set aside", aside, m.aside)
		if h.m.Counts() != m.counts {
			t.Fatalf("counts %+v, the rules say %+v", h.m.Counts(), m.counts)
		}
		if m.counts.Consumed == 0 || m.counts.Outputs == 0 {
			t.Fatalf("nothing happened: %+v", m.counts)
		}
	})
}
