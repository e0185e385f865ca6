package kinesis_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/kinesis"
)

// Kinesis that takes nothing is told at once, tried again in growing pauses, and given up after StallTimeout; once it has taken something, the next
// trouble is told anew.
func TestTroubleIsToldAndBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := record.Record{Key: []byte("k"), Value: []byte("v")}
		var told []time.Duration
		began := time.Now()
		s := &stream{fail: func(call int) string {
			if call == 3 {
				return ""
			}
			return "InternalFailure"
		}}
		p := producer(t, s, func(c *kinesis.Config) {
			c.Buffer, c.StallTimeout = 1, 30*time.Second
			c.OnTrouble = func(cause error) {
				if !strings.Contains(cause.Error(), "InternalFailure") {
					t.Errorf("the cause is %v", cause)
				}
				told = append(told, time.Since(began))
			}
		})
		if err := p.Produce(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		after := time.Since(began)
		err := p.Produce(t.Context(), one)
		if took := time.Since(began) - after; !codes.Has(err, codes.SourceFailure) || took < 30*time.Second || took > 36*time.Second || s.calls > 20 {
			t.Errorf("after %v and %d calls: %v", took, s.calls, err)
		}
		if len(told) != 2 || told[0] != 0 || told[1] != after {
			t.Errorf("told after %v", told)
		}
	})
}
