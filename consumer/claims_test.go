package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/record"
)

// B18, B19: a record that kills the process is claimed by one term after the other, each claim is counted, and it is given up.
func TestARecordThatKills(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 3)
		var claims []int
		for range 6 {
			kill, dead := context.WithCancel(t.Context())
			cfg := w.config(func(ctx context.Context, d Delivery) Outcome {
				if string(d.Value) == "0:1" {
					claims = append(claims, d.Claims)
					dead()
					<-ctx.Done()
				}
				return Ack()
			})
			cfg.Kill, cfg.MaxClaims, cfg.Quarantine, cfg.Standby = kill, 3, true, true
			stop := w.start(w.consumer(cfg))
			after(time.Minute)
			_, err := stop()
			if !errors.Is(err, ErrKilled) {
				wantNil(t, err)
			}
			dead()
			synctest.Wait()
		}
		// In the first two terms it was not the oldest one; the second one went on record by record, each committed before the next.
		w.want("claims", fmt.Sprint(claims), "[0 0 1 2 3]")
		w.want("committed", w.committed("r"), "0=3")
		if q := w.quarantine("r"); len(q) != 1 || q[0].Position != record.Offset(1) || !strings.Contains(q[0].Detail, "3 terms") {
			t.Errorf("%+v", q)
		}
	})
}

// A record that is on probation and whose retry is refused, or waits, does not keep the others from going on.
func TestProbationEndsWithARefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 10)
		for life := range 3 {
			kill, dead := context.WithCancel(t.Context())
			cfg := w.config(func(ctx context.Context, d Delivery) Outcome {
				switch {
				case string(d.Value) != "0:0":
					return Ack()
				case life == 0:
					dead()
					<-ctx.Done()
					return Ack()
				case life == 1:
					return Retry("refused")
				}
				return RetryAfter(time.Minute, "waits")
			})
			cfg.Kill, cfg.MaxClaims, cfg.Standby, cfg.Retry = kill, 5, true, w.back()
			c := w.consumer(cfg)
			stop := w.start(c)
			after(30 * time.Second)
			if s := c.Status(); life > 0 && (len(s) != 1 || s[0].InFlight != 10 || s[0].Running != 0) {
				t.Errorf("life %d: %+v", life, s)
			}
			_, err := stop()
			if !errors.Is(err, ErrKilled) {
				wantNil(t, err)
			}
			dead()
			synctest.Wait()
		}
		if n := w.times("0:9#1"); n != 2 {
			t.Errorf("the last record was handled %d times", n)
		}
	})
}
