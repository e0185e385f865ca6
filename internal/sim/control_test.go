package sim

import (
	"slices"
	"testing"

	"github.com/weirstream/weir/internal/sim/invariant"
)

// Negative controls: with one defect put into the world, the checker that is there for it finds it within a few seeds.
func TestMutants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mutant  Mutant
		checker invariant.Checker
		within  uint64
	}{
		{FenceOff, invariant.NewStaleSilent(), 200},
		{FrozenClock, invariant.NewStaleSilent(), 200},
		{DedupeOff, invariant.NewNoDuplicate(nil), 5},
		{PointerFirst, invariant.NewCheckpointWhole(), 5},
		{JournalFirst, invariant.NewNoLoss(nil), 200},
		{BlindRetry, invariant.NewUnknownOnce(), 200},
		{SameToken, invariant.NewFenceIncreases(), 10},
		{Flipped, invariant.NewRestoreEqualsCut(nil), 10},
		{Deaf, invariant.NewPausedSilent(), 60},
		{Leaky, invariant.NewJournalMonotone(nil), 10},
		{Wide, invariant.NewMemoryBounded(invariant.Limits{}), 200},
		{Ahead, invariant.NewWatermarkMonotone(), 10},
		{Beyond, invariant.NewRestoreBarrier(), 10},
	} {
		t.Run(string(c.mutant), func(t *testing.T) {
			t.Parallel()
			for seed := range c.within {
				_, found := judge(t, Draw(seed), c.mutant)
				caught := func(v invariant.Violation) bool { return v.Checker == c.checker.Name() }
				if i := slices.IndexFunc(found, caught); i >= 0 {
					t.Logf("seed %d: %s", seed, found[i])
					return
				}
			}
			t.Errorf("%s has not found it in %d seeds", c.checker.Name(), c.within)
		})
	}
}
