package board

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/status"
)

// A key that waits for a record that cannot be read is told with what waits behind it, since when, and not as what holds the watermark.
func TestAHeldKeyIsAReason(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(s *stage) {
			plan, err := flow.Parse("flow.yaml", []byte(ticks+"hold_key: true\n"), nil)
			if err != nil {
				t.Fatal(err)
			}
			s.cfg.Plan = plan
		})
		defer s.stop()
		s.put(0, 1)
		s.put(1, 1)
		s.log.Append(0, record.Record{Key: []byte("k0"), Value: []byte("poison"), Arrival: record.NoTime})
		s.put(0, 2, 3)
		s.pass(time.Minute)
		p := s.look().Partitions[0]
		if h := p.Held; h == nil || h.Keys != 1 || h.Records != 2 || h.Key != "" || h.Position != "1" || h.Since == nil {
			t.Errorf("%+v", p.Held)
		}
		r, ok := s.why()[status.WhyKeysHeld]
		if !ok || r.Holds || p.Gap != nil || s.look().Partitions[1].Held != nil {
			t.Errorf("%+v", s.why())
		}
	})
}
