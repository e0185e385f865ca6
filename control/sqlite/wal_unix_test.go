//go:build unix

package sqlite

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"testing"
)

// After a power cut any end of PATH-wal may be missing or torn. Whatever is left of it, what stands is a whole number of epochs, and more of the
// file never means fewer of them.
func TestTornWAL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "weir.db")
	// A killed process leaves its WAL behind: with it the last epochs are there.
	steps := stepsUntilLastCommit(t)
	o := child(t, task{Path: path, Workload: damaged, Until: damagedEpochs, KillAtStep: steps, KillAfterMicros: -1}, nil)
	if !o.killed || o.step != "committed" || o.acked != damagedEpochs-1 {
		t.Fatalf("the child was not killed after its last commit:\n%s", o.text)
	}
	file, wal := read(t, path), read(t, path+"-wal")
	if len(wal) < 10*pageSize {
		t.Fatalf("the WAL has %d bytes: it was moved into the file, and the test shows nothing", len(wal))
	}
	const seed = 8
	rng := rand.New(rand.NewPCG(seed, 0))
	try := func(wal []byte) uint64 {
		torn := filepath.Join(t.TempDir(), "torn.db")
		write(t, torn, file)
		write(t, torn+"-wal", wal)
		code, epoch, err := inspectDamage(t, torn)
		if err != nil || code != nil {
			t.Fatalf("seed %d: a WAL of %d bytes: %v, %v", seed, len(wal), code, err)
		}
		return epoch
	}
	if got := try(wal); got != damagedEpochs {
		t.Fatalf("with the whole WAL epoch %d stands", got)
	}
	const frame = pageSize + 24
	last, seen := uint64(0), map[uint64]bool{}
	for n := 0; n <= len(wal); n += frame + rng.IntN(2*frame) {
		epoch := try(wal[:n])
		if epoch < last {
			t.Errorf("seed %d: epoch %d stands with %d bytes of the WAL, %d stood with fewer", seed, epoch, n, last)
		}
		last, seen[epoch] = epoch, true
	}
	if len(seen) < damagedEpochs-1 {
		t.Errorf("only the epochs %v were seen", seen)
	}
	for range 20 { // a sector in the middle was not written
		torn := bytes.Clone(wal)
		at := rng.IntN(len(torn) - 512)
		clear(torn[at : at+512])
		try(torn)
	}
}

// stepsUntilLastCommit counts the steps of a child that commits damagedEpochs, up to and with the last "committed".
func stepsUntilLastCommit(t *testing.T) int {
	t.Helper()
	steps := 0
	s := open(t, Config{Path: filepath.Join(t.TempDir(), "count.db"), Hook: func(string) error { steps++; return nil }})
	defer s.Close()
	if _, err := s.OpenRun(t.Context(), damaged.Header()); err != nil {
		t.Fatal(err)
	}
	for e := uint64(1); e <= damagedEpochs; e++ {
		if err := s.Commit(t.Context(), damaged.Commit(e)); err != nil {
			t.Fatal(err)
		}
	}
	return steps
}
