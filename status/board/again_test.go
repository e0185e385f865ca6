package board

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/status"
)

// again stops the run and starts it once more, in a process that knows nothing of the one before but the journal.
func (s *stage) again() *stage {
	s.t.Helper()
	s.stop()
	next := newStage(s.t, func(n *stage) {
		n.journal, n.log, n.cfg.Journal, n.cfg.Source = s.journal, s.log, s.journal, s.log
		n.cfg.Fencing.Leases, n.cfg.Interventions = s.journal, s.journal
	})
	next.pass(time.Minute)
	return next
}

// A run that is started again, or taken over, knows before its first commit what its partitions wait for: an open gap, the flow's lateness, the next record of
// one that is confirmed idle.
func TestWhyAfterARestart(t *testing.T) {
	t.Parallel()
	t.Run("an open gap", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, nil)
			s.put(0, 1, 2, 3, 7)
			s.put(1, 1, 2, 5, 6)
			s.pass(time.Minute)
			before := s.why()
			s = s.again()
			after := s.why()
			if r := after[status.WhyGap]; r.Holder != "partition 1" || r.Text != before[status.WhyGap].Text || len(after) != len(before) {
				t.Errorf("before %v, after %v", before, after)
			}
			if p := s.look().Partitions[1]; p.Gap == nil || p.Gap.First != 3 || p.MaxEventTime.T != 1_700_000_006_000_000_000 {
				t.Errorf("%+v", p)
			}
			s.stop()
		})
	})
	t.Run("lateness", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, nil)
			s.put(0, 1, 2, 3)
			s.put(1, 1, 2, 3)
			s.pass(time.Minute)
			s = s.again()
			if why := s.why(); len(why) != 1 || why[status.WhyLateness].Code == "" {
				t.Errorf("%v", why)
			}
			s.put(0, 4)
			s.put(1, 4)
			s.pass(time.Second)
			if p := s.look().Partitions[0]; p.MaxEventTime.T != 1_700_000_004_000_000_000 {
				t.Errorf("after the next commit: %+v", p)
			}
			s.stop()
		})
	})
	t.Run("one that is confirmed idle", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, func(s *stage) { s.cfg.Interventions = s.journal })
			s.put(0, 1, 2, 3, 4)
			s.put(1, 1)
			s.pass(time.Minute)
			_, err := s.journal.Intervene(context.Background(), control.Intervention{RunID: "ticks-1", Partition: 1, Kind: control.ConfirmIdle, Who: "ana", Why: "closed"})
			if err != nil {
				t.Fatal(err)
			}
			s.pass(time.Minute)
			s = s.again()
			why := s.why()
			if _, silent := why[status.WhySilent]; silent || why[status.WhyIdle].Holder != "partition 1" {
				t.Errorf("%v", why)
			}
			s.stop()
		})
	})
}
