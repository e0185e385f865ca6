package replay

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weirstream/weir/sources/snapshot"
)

// goldenLogHash is the hash of the golden log. It must never change: it says that the log is the same, byte for byte, at every build.
const goldenLogHash = "sha256:be9ebb09075810940604843225292b8ac0565679f1677ceefae049201ff5100c"

func goldenSchedule(t testing.TB) *Schedule {
	t.Helper()
	src, err := os.ReadFile("testdata/fault_schedule.json")
	if err != nil {
		t.Fatal(err)
	}
	s, err := ParseSchedule("fault_schedule.json", src)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestGoldenLog(t *testing.T) {
	t.Parallel()
	s := goldenSchedule(t)
	out := filepath.Join(t.TempDir(), "arrivals.log")
	built, err := Build(t.Context(), BuildConfig{Snapshot: "testdata/snapshot.jsonl", Fields: snapshot.DefaultFields(), Schedule: s, Seed: s.Seed, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Built{Arrivals: 23, FaultsApplied: 7, LogHash: goldenLogHash}); built != want {
		log, _ := os.ReadFile(out)
		t.Fatalf("built %+v, want %+v\n%s", built, want, log)
	}
}
