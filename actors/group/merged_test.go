package group

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

type rows []control.RunInfo

func (r rows) Runs(context.Context) ([]control.RunInfo, error) {
	if r == nil {
		return nil, errors.New("the store is away")
	}
	return r, nil
}

// Snapshot says nothing of a row: none of these has a cut.
func (r rows) Snapshot(_ context.Context, id string, fn func(control.JournalView) error) error {
	return fn(bare{})
}

type bare struct{ control.JournalView }

func (bare) State() control.RunState { return control.RunState{} }

func row(id string, mark record.EventTime) control.RunInfo {
	return control.RunInfo{Header: control.RunHeader{RunID: id}, Status: control.RunOpen, Watermark: mark}
}

func finished(id string) control.RunInfo {
	r := row(id, record.MaxTime)
	r.Status = control.RunFinished
	return r
}

func TestMerged(t *testing.T) {
	t.Parallel()
	var m Merged
	two, three := []int32{0, 1}, []int32{0, 1, 2}
	for i, c := range []struct {
		rows       rows
		partitions []int32
		want       record.EventTime
	}{
		{rows{}, two, record.NoTime},
		{rows{row("r/0", 50)}, two, record.NoTime}, // partition 1 holds it
		{rows{row("r/0", 50), row("r/1", record.NoTime)}, two, record.NoTime},
		{rows{row("r/0", 50), row("r/1", 40), row("r", 1), row("rr/0", 2), row("r/x", 3), row("r/01", 4), row("r/-1", 5)}, two, 40},
		{rows{row("r/0", 50), row("r/1", 60)}, two, 50},
		{rows{row("r/0", 55), row("r/1", 60)}, three, 50}, // one is added: it holds
		{rows{row("r/0", 70), row("r/1", 60), row("r/2", 10)}, three, 50},
		{rows{row("r/0", 70), row("r/1", 60), row("r/2", 58)}, three, 58},
		{rows{row("r/0", 70), finished("r/1"), row("r/2", 80)}, three, 70},
		{rows{row("r/0", 90), row("r/1", 95), row("r/2", 80)}, two, 80}, // a row that nobody asked for holds too
	} {
		got, err := m.Read(t.Context(), c.rows, "r", c.partitions)
		if err != nil || got != c.want {
			t.Errorf("%d: %s, %v, want %s", i, got, err, c.want)
		}
	}
	if _, err := m.Read(t.Context(), rows(nil), "r", two); err == nil {
		t.Error("no error")
	}
}

// part is the machine of one partition whose cuts go into a journal, as the run of that partition.
type part struct {
	t       *testing.T
	journal *controltest.Memory
	machine *partitions.Machine
	id      string
	n       int32
	epoch   uint64
}

func newPart(t *testing.T, journal *controltest.Memory, plan *flow.Plan, n int32) *part {
	t.Helper()
	p := &part{t: t, journal: journal, machine: partitions.New(plan, n), id: RunID("r", n), n: n}
	if _, err := journal.OpenRun(t.Context(), control.RunHeader{RunID: p.id, Fingerprint: plan.Fingerprint, Source: "log", Partitions: []int32{n}}); err != nil {
		t.Fatal(err)
	}
	return p
}

// step takes an event and commits.
func (p *part) step(ev partitions.Event) {
	p.t.Helper()
	var eff partitions.Effects
	if err := p.machine.Step(ev, &eff); err != nil {
		p.t.Fatal(err)
	}
	cut := p.machine.Cut()
	p.epoch++
	c := control.Commit{RunID: p.id, Epoch: p.epoch, Status: control.RunOpen, Watermark: cut.Watermark,
		Partitions: []control.PartitionCommit{{Cut: cut, Rows: eff.Rows, Quarantine: eff.Quarantine, Decisions: eff.Decisions}}}
	if p.machine.Finished() {
		c.Status, c.Watermark = control.RunFinished, record.MaxTime
	}
	if err := p.journal.Commit(p.t.Context(), c); err != nil {
		p.t.Fatal(err)
	}
}

// event delivers one record at a second of event time.
func (p *part) event(second int64) {
	p.t.Helper()
	at := p.machine.Next()
	value := fmt.Appendf(nil, `{"event_id":"%s-%d","k":"a","t":%d,"x":1}`, p.id, second, second*1000)
	p.step(partitions.Deliver{Batch: &record.Batch{Partition: p.n, Next: at.Next(), Records: []record.Record{{Position: at, Key: []byte("a"), Value: value, Arrival: record.NoTime}}}})
}

// A partition that is idle by a decision in its row does not hold what is merged, until its next record; then it holds it where it is.
func TestMergedOverIdlePartitions(t *testing.T) {
	t.Parallel()
	plan, err := flow.Parse("flow.yaml", []byte(testFlow), nil)
	if err != nil {
		t.Fatal(err)
	}
	journal := controltest.NewMemory()
	a, b := newPart(t, journal, plan, 0), newPart(t, journal, plan, 1)
	var m Merged
	// The lateness is two seconds: an event at 10 closes event time up to 8.
	expect := func(what string, kept, fresh int64) {
		t.Helper()
		for name, c := range map[string]struct {
			m    *Merged
			want int64
		}{"kept": {&m, kept}, "fresh": {&Merged{}, fresh}} {
			got, err := c.m.Read(t.Context(), journal, "r", []int32{0, 1})
			if want := record.EventTime(c.want * int64(time.Second)); err != nil || got != want {
				t.Errorf("%s, %s: %s, %v, want %s", what, name, got, err, want)
			}
		}
	}
	a.event(10)
	b.event(5)
	expect("both", 3, 3)
	b.step(partitions.IdleConfirmed{Reason: "closed"})
	expect("one is idle", 8, 8)
	a.event(20)
	expect("the other one goes on", 18, 18)
	a.step(partitions.IdleConfirmed{Reason: "closed too"})
	expect("all are idle", 18, 3)
	a.event(30)
	b.event(16)
	expect("both are back", 18, 14)
	b.event(40)
	expect("and go on", 28, 28)
	b.step(partitions.EndOfSource{Through: record.EventTime(40 * time.Second)})
	a.event(50)
	expect("one has ended", 48, 48)
}

// A row that cannot be read is no reason to let event time go on.
func TestMergedOverADamagedRow(t *testing.T) {
	t.Parallel()
	plan, err := flow.Parse("flow.yaml", []byte(testFlow), nil)
	if err != nil {
		t.Fatal(err)
	}
	journal := controltest.NewMemory()
	a := newPart(t, journal, plan, 0)
	a.event(10)
	cut := a.machine.Cut()
	cut.Put = []partitions.StateBlob{{Name: partitions.CoreBlob, Data: []byte("damaged, and long enough")}}
	c := control.Commit{RunID: a.id, Epoch: 2, Status: control.RunOpen, Watermark: cut.Watermark, Partitions: []control.PartitionCommit{{Cut: cut}}}
	if err := journal.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if at, err := new(Merged).Read(t.Context(), journal, "r", nil); !codes.Has(err, codes.JournalCorrupt) || at != record.NoTime {
		t.Errorf("%s, %v", at, err)
	}
}

func TestRunIDs(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]int32{"a/b/0": 0, "a/b/17": 17, "a/b": -1, "a/b/": -1, "a/b/+1": -1, "a/b/007": -1, "a/b/4294967296": -1, "x/1": -1} {
		got, ok := PartitionOf("a/b", id)
		if ok != (want >= 0) || ok && (got != want || RunID("a/b", got) != id) {
			t.Errorf("%s: %d, %v", id, got, ok)
		}
	}
	for id, want := range map[string]bool{"a/0": true, "a/b/17": true, "a": false, "a/": false, "a/007": false, "a/x": false, "/1": true, "7": false} {
		if IsPart(id) != want {
			t.Errorf("%q is a part: %v", id, !want)
		}
	}
}
