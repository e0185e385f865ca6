package actors

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/sources/sourcetest"
)

func TestSameAsAPlainLoop(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{"wide": wideFlow, "grid": gridFlow} {
		plan := parse(t, src)
		for seed := range uint64(12) {
			t.Run(fmt.Sprintf("%s/seed %d", name, seed), func(t *testing.T) {
				t.Parallel()
				rng := seeded(t, seed)
				parts := 1 + int(seed)%8
				in := randomInput(rng, parts, 300+rng.IntN(700))
				want := plainLoop(t, plan, in, 100)
				for _, fetch := range []int{1, 3, 64, 1024, 10_000} {
					synctest.Test(t, func(t *testing.T) {
						newRig(t, plan, in, func(c *Config, s *sourcetest.Config) {
							c.FetchSize, c.EpochRecords = fetch, int64(1+rng.IntN(300))
							c.CreditRecords = int64(1 + rng.IntN(2000))
							s.Rand, s.Bounded = rng, rng.IntN(2) == 0
							if !s.Bounded {
								c.MaxRecords = int64(in.total())
							}
						}).finish(want)
					})
				}
			})
		}
	}
}
