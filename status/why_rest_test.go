package status

import (
	"slices"
	"testing"
	"time"
)

// Once everything is read and nothing moves, the newest events wait for the flow's lateness. The partition that is last is not called silent for that, unless
// it really lags.
func TestLatenessBesideASilentPartition(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plant func(s *Snapshot)
		want  []string
	}{
		"a short log, read to its end": {func(*Snapshot) {}, []string{WhyLateness, WhySilent}},
		"one that has stopped long before the others": {func(s *Snapshot) {
			s.Partitions[0].Watermark, s.Partitions[0].MaxEventTime = eventTime("2026-01-05T13:00:00Z"), eventTime("2026-01-05T13:00:09Z")
		}, []string{WhySilent, WhyLateness}},
		"one without any event": {func(s *Snapshot) {
			s.Partitions[0].Watermark, s.Partitions[0].MaxEventTime = NoEventTime, NoEventTime
		}, []string{WhyNeverRead, WhyLateness}},
		"another that moves":            {func(s *Snapshot) { s.Partitions[2].WatermarkSince = ago(time.Second) }, []string{WhySilent}},
		"another that has more to read": {func(s *Snapshot) { lagging(&s.Partitions[2], 5) }, []string{WhySilent}},
		"another that is idle, and last": {func(s *Snapshot) {
			s.Partitions[2].Input, s.Partitions[2].Watermark = "IDLE", eventTime("2026-01-05T13:00:00Z")
		}, []string{WhyLateness, WhySilent, WhyIdle}},
		"something else": {func(s *Snapshot) { s.Partitions[1].Held = &Held{Keys: 1, Records: 1} }, []string{WhySilent, WhyKeysHeld}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := healthy()
			for i := range s.Partitions {
				s.Partitions[i].WatermarkSince = ago(10 * time.Second)
			}
			c.plant(&s)
			apart := Report{Run: s.Run}
			for i := range s.Partitions {
				part := s
				part.Partitions, part.Holders = s.Partitions[i:i+1], []int32{int32(i)}
				apart.Runs = append(apart.Runs, part)
			}
			for _, reasons := range [][]Reason{Why(s), (Report{Run: s.Run, Runs: []Snapshot{s}}).Why(), apart.Why()} {
				var got []string
				for _, r := range reasons {
					got = append(got, r.Code)
				}
				if got = slices.Compact(got); !slices.Equal(got, c.want) { // of parts, each tells of its own events
					t.Errorf("%v, want %v", got, c.want)
				}
			}
		})
	}
}
