package actors

import (
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/sources"
)

// TestOriginOf: what names the input of a run changes with whatever may change its rows, and with nothing else.
func TestOriginOf(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 12, 0, 0, 1_234_567, time.FixedZone("", 3600))
	log := sources.Info{Name: "a.log", ID: "sha256:00", Partitions: []int32{0, 1}, Bounded: true, Hashed: true}
	topic := sources.Info{Name: "ticks", ID: "uuid", Partitions: []int32{0}}
	begun := control.RunState{Created: at}
	for _, c := range []struct {
		info  sources.Info
		state control.RunState
		want  string
	}{
		{log, begun, "sha256:00 in 2"},
		{log, control.RunState{}, "sha256:00 in 2"},
		{topic, begun, "begun 2026-11-30T11:00:00.001234Z"},
		{topic, control.RunState{}, "uuid"},
		{sources.Info{Name: "x"}, begun, "begun 2026-11-30T11:00:00.001234Z"},
		{sources.Info{Name: "x"}, control.RunState{}, ""},
	} {
		if got := originOf(c.info, c.state); got != c.want {
			t.Errorf("%+v: %q, want %q", c.info, got, c.want)
		}
	}
	moved, grown, unnamed := log, topic, topic
	moved.Name, grown.Partitions, unnamed.ID = "b.log", []int32{0, 1}, ""
	if originOf(moved, begun) != originOf(log, begun) || originOf(grown, begun) != originOf(topic, begun) {
		t.Error("a log that was moved, or a topic that has grown, is taken for another")
	}
	if originOf(unnamed, begun) != originOf(topic, begun) {
		t.Error("a topic is taken for another since its brokers tell its identity")
	}
}
