package actors

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// What a sink refuses a stale owner is told once: when it is opened, and when it is written to.
func TestRefusalsAreTold(t *testing.T) {
	t.Parallel()
	plan := parse(t, wideFlow)
	in := randomInput(seeded(t, 41), 2, 60)
	stale := codes.New(codes.StaleFence, "another came")
	for name, c := range map[string]struct {
		step string
		late bool
	}{"opening": {step: "open"}, "writing": {step: "write"}, "a late sink": {step: "write", late: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plan, in, small)
				r.fence("me")
				target := newShelf()
				target.at = func(step string) error {
					if step == c.step {
						return stale
					}
					return nil
				}
				r.cfg.Publisher = publisher(target)
				if c.late {
					r.cfg.Publisher, r.cfg.Late = nil, publisher(target)
				}
				var mu sync.Mutex
				var told []control.Refusal
				r.cfg.OnRefused = func(f control.Refusal) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, f)
				}
				if _, err := r.run(); !codes.Has(err, codes.StaleFence) && !codes.Has(err, codes.StreamFenceStale) {
					t.Errorf("%v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				if len(told) != 1 {
					t.Fatalf("told %d times: %+v", len(told), told)
				}
				want := control.Refusal{RunID: r.cfg.RunID, Lease: control.StreamLease(r.cfg.RunID), Owner: "me", Token: 1, Effect: control.EffectPublish, Target: "a", Detail: told[0].Detail}
				if told[0] != want || want.Detail == "" {
					t.Errorf("told %+v, want %+v", told[0], want)
				}
			})
		})
	}
}
