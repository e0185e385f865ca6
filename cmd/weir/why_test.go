package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/status"
)

// Many partitions that wait for the same are named in a line, data is escaped, and every text says who, since when and what ends it.
func TestWhyForPeople(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0).UTC()
	since := now.Add(-time.Hour)
	s := status.Snapshot{Run: "r\x1b[31m", Live: true, At: now, Phase: status.PhaseRunning, Watermark: status.NoEventTime, Holders: []int32{}}
	for n := range int32(10) {
		p := status.Partition{Partition: n, Watermark: status.NoEventTime, MaxEventTime: status.NoEventTime, WatermarkSince: &since, Input: "ACTIVE"}
		if n == 9 {
			p.Watermark = status.EventTime{T: record.EventTime(now.UnixNano())}
			p.Gap = &status.Gap{Key: "k\u202e\x07\nforged: line", First: 1, Last: 2, At: p.Watermark, Since: &since, Open: 1}
		} else {
			s.Holders = append(s.Holders, n)
		}
		s.Partitions = append(s.Partitions, p)
	}
	var out bytes.Buffer
	a := &app{stdout: &out}
	if err := a.showWhy(status.Report{Run: s.Run, At: now, Runs: []status.Snapshot{s}}); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, words := range []string{"NO_EVENT_YET: partition 0 holds", "NO_EVENT_YET: partition 2 holds", "NO_EVENT_YET: and so are 6 more partitions: 3, 4, 5, 6, 7, 8\n", "OPEN_GAP: partition 9",
		"    held by   partition 9\n", "    since     2027-01-15T07:00:00Z (1h0m0s)\n", "    ends by   "} {
		if !strings.Contains(text, words) {
			t.Errorf("it lacks %q:\n%s", words, text)
		}
	}
	if strings.ContainsAny(text, "\x1b\x07\u202e") || strings.Contains(text, "\nforged") {
		t.Errorf("data is not escaped:\n%q", text)
	}
}
