package partitions

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

// planOf compiles a flow. The text is the part of the file that differs from the usual one.
func planOf(t testing.TB, text string) *flow.Plan {
	t.Helper()
	const usual = "flow: weir/1\nname: test\nid: id\nkey: key\ntime: {field: at, unit: ms}\n"
	return parsePlan(t, usual+text)
}

func parsePlan(t testing.TB, src string) *flow.Plan {
	t.Helper()
	plan, err := flow.Parse("test.yaml", []byte(src), nil)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

const emaFlow = "operators: [{name: ema3, type: ema, input: x, period: 3}]\noutputs: [ema3]\n"

// millis is an event time.
func millis(n int64) record.EventTime { return record.EventTime(n) * 1_000_000 }

// logOf numbers records as a dense log.
func logOf(values ...string) []record.Record {
	records := make([]record.Record, len(values))
	for i, v := range values {
		records[i] = record.Record{Position: record.Offset(int64(i)), Arrival: record.NoTime, Key: []byte("k"), Value: []byte(v)}
	}
	return records
}

// harness runs a machine the way an actor does, with a journal of what stands.
type harness struct {
	plan       *flow.Plan
	partition  int32
	m          *Machine
	stand      standing
	rows       []string
	quarantine []string
	decisions  []string
	eff        Effects
	// stops is how many steps there are from one stop of a key to the next, 0 is as many as ever.
	stops int
}

func newHarness(plan *flow.Plan, partition int32) *harness {
	return &harness{plan: plan, partition: partition, m: New(plan, partition), stand: standing{}}
}

func (h *harness) step(t testing.TB, ev Event) {
	t.Helper()
	if err := h.try(t, ev); err != nil {
		t.Fatal(err)
	}
}

// try steps and takes the effects.
func (h *harness) try(t testing.TB, ev Event) error {
	t.Helper()
	if err := h.m.Step(ev, &h.eff); err != nil {
		return err
	}
	h.rows = append(h.rows, showRows(t, h.eff.Rows, len(h.plan.Outputs))...)
	for _, q := range h.eff.Quarantine {
		h.quarantine = append(h.quarantine, showQuarantined(q))
	}
	for _, d := range h.eff.Decisions {
		h.decisions = append(h.decisions, fmt.Sprintf("%s %s: %s", d.Position, d.Kind, d.Detail))
	}
	h.eff.Reset()
	return nil
}

func showQuarantined(q Quarantined) string {
	return fmt.Sprintf("%s %s id=%q at=%s key=%q value=%q: %s", q.Position, q.Reason, q.EventID, q.EventTime, q.Key, q.Value, q.Detail)
}

// deliver hands the records over in one batch whose memory is overwritten afterwards: the machine must keep nothing of it.
func (h *harness) deliver(t testing.TB, records []record.Record) {
	t.Helper()
	if err := h.tryDeliver(t, records); err != nil {
		t.Fatal(err)
	}
}

func (h *harness) tryDeliver(t testing.TB, records []record.Record) error {
	t.Helper()
	b := &record.Batch{Partition: h.partition, Next: h.m.Next(), Records: make([]record.Record, len(records))}
	for i, r := range records {
		r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
		b.Records[i] = r
		b.Next = r.Position.Next()
	}
	err := h.try(t, Deliver{Batch: b})
	for _, r := range b.Records {
		for _, mem := range [][]byte{r.Key, r.Value} {
			for i := range mem {
				mem[i] = 0xaa
			}
		}
	}
	return err
}

// cut takes a cut into the journal and checks its books.
func (h *harness) cut(t testing.TB) Cut {
	t.Helper()
	c := h.m.Cut()
	for _, name := range c.Delete {
		if _, ok := h.stand[name]; !ok {
			t.Fatalf("blob %q is deleted and does not stand", name)
		}
		delete(h.stand, name)
	}
	for _, b := range c.Put {
		h.stand[b.Name] = bytes.Clone(b.Data)
	}
	if count, sum := h.stand.account(); count != h.m.ledger.count || sum != h.m.ledger.sum {
		t.Fatalf("%d blobs stand, the ledger says %d", count, h.m.ledger.count)
	}
	return c
}

// load hands out the blobs that stand, in the random order of a map.
func (h *harness) load(yield func(StateBlob) error) error {
	for name, data := range h.stand {
		mem := bytes.Clone(data)
		if err := yield(StateBlob{Name: name, Data: mem}); err != nil {
			return err
		}
		clear(mem)
	}
	return nil
}

// crash gives the machine up and restores the one of the last cut, which must be the same one when nothing happened since.
func (h *harness) crash(t testing.TB) {
	t.Helper()
	m, err := Restore(h.plan, h.partition, h.load)
	if err != nil {
		t.Fatal(err)
	}
	h.m = m
	h.stopEvery(h.stops)
	h.eff.Reset()
}

func (h *harness) stopEvery(steps int) {
	if h.stops = steps; steps > 0 && h.m.past != nil {
		h.m.past.stopEvery = steps
	}
}

// cutAndCrash restores at once and checks that nothing got lost.
func (h *harness) cutAndCrash(t testing.TB) {
	t.Helper()
	c := h.cut(t)
	before := h.m
	h.crash(t)
	sameState(t, "restored machine", h.m.FullState(), before.FullState())
	if h.m.Next() != c.Next || h.m.Counts() != c.Counts || h.m.Watermark() != c.Watermark || h.m.finished != c.Finished {
		t.Fatalf("restored at %s, watermark %s, %+v; the cut is at %s, %s, %+v", h.m.Next(), h.m.Watermark(), h.m.Counts(), c.Next, c.Watermark, c.Counts)
	}
}

func (h *harness) finish(t testing.TB, through record.EventTime) {
	t.Helper()
	h.step(t, EndOfSource{Through: through})
}

// showRows writes rows as "time id key value…".
func showRows(t testing.TB, rows Rows, width int) []string {
	t.Helper()
	var out []string
	data := rows.Data
	var row Row
	for range rows.Count {
		var err error
		if data, err = DecodeRow(data, width, &row); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s %s %s", row.Time, row.ID, row.Key)
		for _, v := range row.Values {
			if v.OK {
				line += fmt.Sprintf(" %v", v.F)
			} else {
				line += " null"
			}
		}
		out = append(out, line)
	}
	if len(data) != 0 {
		t.Fatalf("%d bytes after %d rows", len(data), rows.Count)
	}
	return out
}

// values are the last columns of rows as canonical JSON.
func values(rows []string) []byte {
	var list []any
	for _, r := range rows {
		v := r[strings.LastIndexByte(r, ' ')+1:]
		if v == "null" {
			list = append(list, nil)
			continue
		}
		list = append(list, record.ParseFloat([]byte(v)))
	}
	b, err := record.AppendJSON(nil, list)
	if err != nil {
		panic(err)
	}
	return b
}

// same compares lists line by line.
func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Fatalf("%s: %d lines, want %d; missing %s", what, len(got), len(want), want[i])
		case i >= len(want):
			t.Fatalf("%s: %d lines, want %d; too many: %s", what, len(got), len(want), got[i])
		case got[i] != want[i]:
			t.Fatalf("%s: line %d is\n%s\nwant\n%s", what, i, got[i], want[i])
		}
	}
}

// sameRun compares everything that can be seen of two machines, and their states.
func sameRun(t testing.TB, where string, got, want *harness) {
	t.Helper()
	same(t, where+": rows", got.rows, want.rows)
	same(t, where+": set aside", got.quarantine, want.quarantine)
	same(t, where+": decisions", got.decisions, want.decisions)
	if got.m.Counts() != want.m.Counts() {
		t.Fatalf("%s: counts %+v, want %+v", where, got.m.Counts(), want.m.Counts())
	}
	if got.m.Watermark() != want.m.Watermark() || got.m.MaxEventTime() != want.m.MaxEventTime() || got.m.Next() != want.m.Next() {
		t.Fatalf("%s: watermark %s, next %s, want %s, %s", where, got.m.Watermark(), got.m.Next(), want.m.Watermark(), want.m.Next())
	}
	sameState(t, where, got.m.FullState(), want.m.FullState())
}
