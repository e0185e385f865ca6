package sim

import (
	"bufio"
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/internal/sim/invariant"
)

var (
	oneSeed = flag.Int64("sim.seed", -1, "play this seed alone")
	most    = flag.Int("sim.seeds", 300, "how many seeds are played; -short plays 60 of them")
	lines   = flag.Int("sim.lines", 150, "how many lines of the history of a failing seed are printed")
)

// kept are the seeds that found something once.
//
//go:embed testdata/seeds.txt
var kept []byte

// keptSeeds reads them: one a line, with what it found behind it.
func keptSeeds(t *testing.T) (all []uint64) {
	t.Helper()
	for in := bufio.NewScanner(bytes.NewReader(kept)); in.Scan(); {
		line, _, _ := strings.Cut(in.Text(), "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		n, err := strconv.ParseUint(line, 10, 64)
		if err != nil {
			t.Fatalf("testdata/seeds.txt: %v", err)
		}
		all = append(all, n)
	}
	return all
}

// judge plays a scenario and shows its history to all checkers.
func judge(t *testing.T, sc *Scenario, m Mutant) (*Played, []invariant.Violation) {
	t.Helper()
	truth, err := sc.Truth()
	if err != nil {
		t.Fatalf("%s: %v", sc, err)
	}
	var played *Played
	synctest.Test(t, func(t *testing.T) {
		if played, err = Play(sc, m); err != nil {
			t.Fatalf("%s: %v", sc, err)
		}
	})
	found := invariant.Check(played.Entries, invariant.All(truth, sc.Limits(truth))...)
	if played.Forked != nil {
		found = append(found, invariant.Check(played.Forked, invariant.NewSameAsUndisturbed(truth), invariant.NewNoLoss(truth), invariant.NewNoDuplicate(truth))...)
	}
	return played, found
}

// A run survives whatever a seed lets go wrong, and every kind of fault has taken place. A failing seed is run again with
//
//	go test ./internal/sim -run TestSeeds -sim.seed=N -sim.lines=100000
//
// and, once mended, kept in testdata/seeds.txt.
func TestSeeds(t *testing.T) {
	t.Parallel()
	if *oneSeed >= 0 {
		playAll(t, []uint64{uint64(*oneSeed)}, map[string]int{})
		return
	}
	seeds, n := keptSeeds(t), *most
	if testing.Short() {
		n = min(n, 60)
	}
	for s := range uint64(n) {
		if !slices.Contains(seeds, s) {
			seeds = append(seeds, s)
		}
	}
	faults := map[string]int{}
	playAll(t, seeds, faults)
	// In which order goroutines run decides whether a fault that was planned takes place. What has not by now gets more chances.
	for next := uint64(n); n >= 60 && len(missing(faults)) > 0 && next < uint64(3*n); next += 30 {
		more := make([]uint64, 30)
		for i := range more {
			more[i] = next + uint64(i)
		}
		playAll(t, more, faults)
		seeds = append(seeds, more...)
	}
	if kinds := missing(faults); n >= 60 && len(kinds) > 0 {
		t.Errorf("no fault of the kinds %q in %d seeds", kinds, len(seeds))
	}
	total := 0
	for _, kind := range slices.Sorted(maps.Keys(faults)) {
		t.Logf("%6d %s", faults[kind], kind)
		total += faults[kind]
	}
	t.Logf("%6d faults of %d kinds in %d seeds", total, len(faults), len(seeds))
}

// playAll plays seeds side by side and counts their faults.
func playAll(t *testing.T, seeds []uint64, faults map[string]int) {
	t.Helper()
	var mu sync.Mutex
	t.Run("seeds", func(t *testing.T) {
		for _, seed := range seeds {
			t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				sc := Draw(seed)
				played, found := judge(t, sc, Sound)
				complain(t, sc, played, found)
				mu.Lock()
				defer mu.Unlock()
				Count(played.Entries, faults)
			})
		}
	})
}

// missing are the kinds of fault that have not taken place.
func missing(faults map[string]int) (kinds []string) {
	for _, kind := range Kinds() {
		if faults[kind] == 0 {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// complain fails the test with what was found.
func complain(t *testing.T, sc *Scenario, played *Played, found []invariant.Violation) {
	t.Helper()
	if len(found)+len(played.Unexpected) == 0 {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nplay it again: go test ./internal/sim -run TestSeeds -sim.seed=%d -sim.lines=100000\n", sc, sc.Seed)
	for _, v := range found {
		fmt.Fprintln(&b, v)
	}
	for _, u := range played.Unexpected {
		fmt.Fprintln(&b, u)
	}
	t.Errorf("%s%s", b.String(), invariant.Text(played.Entries, *lines))
}

// The same seed gives the same scenario, and another one another.
func TestDrawIsAFunctionOfTheSeed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		a, b := Draw(seed), Draw(seed)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("seed %d gives two scenarios: %s and %s", seed, a, b)
		}
		if reflect.DeepEqual(a.Log, Draw(seed+1).Log) {
			t.Errorf("seeds %d and %d give one log", seed, seed+1)
		}
		for _, name := range []string{"p0.0", "p1.3", "last"} {
			s1, k1 := a.drawProcess(name)
			s2, k2 := b.drawProcess(name)
			if s1 != s2 || !slices.Equal(k1, k2) {
				t.Errorf("seed %d gives %s two fates", seed, name)
			}
		}
	}
}
