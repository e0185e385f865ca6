package partitions

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
)

// A late event carries the watermark at that moment, who holds it, and how late it is, also after a restart; what an earlier version wrote is read as far as it goes.
func TestLateVerdict(t *testing.T) {
	t.Parallel()
	h := newHarness(planOf(t, "lateness: 1s\n"+emaFlow), 3)
	deliver := func(m *Machine, at int64, id string, event int64) []Quarantined {
		t.Helper()
		var eff Effects
		value := fmt.Sprintf(`{"id":%q,"key":"k","at":%d,"x":1}`, id, event)
		b := record.Batch{Partition: 3, Next: record.Offset(at + 1), Records: []record.Record{{Position: record.Offset(at), Arrival: record.NoTime, Value: []byte(value)}}}
		if err := m.Step(Deliver{&b}, &eff); err != nil {
			t.Fatal(err)
		}
		return eff.Quarantine
	}
	deliver(h.m, 10, "a", 5_000)
	deliver(h.m, 11, "b", 9_000)
	deliver(h.m, 12, "c", 9_000)
	want := Late{By: 2 * time.Second, Watermark: millis(8_000), Holder: record.Offset(11), HolderTime: millis(9_000), Known: true}
	m := h.m
	h.cutAndCrash(t)
	again := h.m
	for name, m := range map[string]*Machine{"as it was": m, "restored": again} {
		aside := deliver(m, 13, "d", 6_000)
		if len(aside) != 1 {
			t.Fatalf("%s: %d set aside", name, len(aside))
		}
		if got, ok := aside[0].Late(); !ok || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, ok, want)
		}
	}
	old := Quarantined{Reason: ReasonLate, Detail: "event time is 11ms older than the watermark 1970-01-01T00:00:08Z"}
	if got, ok := old.Late(); !ok || got.Known || got.By != 11*time.Millisecond || got.Watermark != want.Watermark {
		t.Errorf("of an earlier version: %+v, %v", got, ok)
	}
	for _, q := range []Quarantined{
		{Reason: ReasonFuture, Detail: old.Detail}, {Reason: ReasonLate}, {Reason: ReasonLate, Detail: "event time is x older than the watermark y"},
		{Reason: ReasonLate, Detail: old.Detail + ", which the record at x holds, with the event time y"},
	} {
		if got, ok := q.Late(); ok {
			t.Errorf("%q is read as %+v", q.Detail, got)
		}
	}
}
