package group

import (
	"context"
	"errors"
	"testing"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

type rows []control.RunInfo

func (r rows) Runs(context.Context) ([]control.RunInfo, error) {
	if r == nil {
		return nil, errors.New("the store is away")
	}
	return r, nil
}

func row(id string, mark record.EventTime) control.RunInfo {
	return control.RunInfo{Header: control.RunHeader{RunID: id}, Status: control.RunOpen, Watermark: mark}
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
		{rows{row("r/0", 70), row("r/1", record.MaxTime), row("r/2", 80)}, three, 70},
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
