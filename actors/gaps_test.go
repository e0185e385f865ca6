package actors

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// A log that cannot be asked and did not say where it goes on, as an empty shard: no place is taken, however it is written. Once it has said, that one is.
func TestAGapIntoTheUnknown(t *testing.T) {
	t.Parallel()
	in := randomInput(seeded(t, 91), 2, 60)
	synctest.Test(t, func(t *testing.T) {
		r, o := obeying(t, in)
		lose := func(known bool) {
			r.log.FailAt(0, record.Offset(10), &sources.Fault{Partition: 0, Need: record.Offset(10), After: record.Offset(14), Known: known, Err: codes.New(codes.OffsetLost, "injected")})
		}
		lose(false)
		stop := r.start()
		<-time.After(time.Minute)
		for _, to := range []int64{11, 14, 1 << 40} {
			i := r.ask(accept(0, 10, to))
			<-time.After(time.Minute)
			if got := r.outcome(i.ID); got.Outcome != control.Dismissed || !strings.Contains(got.Note, "--retry") || o.of(0).Block == nil {
				t.Errorf("to %d: %+v", to, got)
			}
		}
		lose(true)
		r.ask(control.Intervention{Partition: 0, Kind: control.RetryBlocked})
		<-time.After(time.Minute)
		i := r.ask(accept(0, 10, 14))
		<-time.After(time.Minute)
		if got := r.outcome(i.ID); got.Outcome != control.Applied || len(r.decided(partitions.DecisionLossAccepted)) != 1 {
			t.Errorf("%+v", got)
		}
		result, err := stop()
		if p := result.Partitions[0]; !errors.Is(err, ErrInterrupted) || p.Next != record.Offset(int64(len(in[0]))) {
			t.Errorf("%v, %+v", err, p)
		}
	})
}
