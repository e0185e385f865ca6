package snapshot

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

func eventRow(id string, second int, x string) string {
	return fmt.Sprintf(`{"event_id":%q,"event_time":"2026-01-05T14:30:%02dZ","instrument":"1","x":%q}`, id, second, x)
}

// delivers reads a source whole, as "id value" for each record.
func delivers(t *testing.T, s sources.Source, max int) ([]string, error) {
	t.Helper()
	r, err := s.Open(t.Context(), map[int32]record.Position{0: {}})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	got, err := drain(t, r, max, record.Position{})
	for i, line := range got {
		f := strings.SplitN(line, " ", 3)
		got[i] = f[0] + " " + f[2]
	}
	return got, err
}

func TestCorrections(t *testing.T) {
	t.Parallel()
	a, b, c := eventRow("a", 10, "old"), eventRow("b", 20, "old"), eventRow("c", 30, "old")
	path := write(t, "x.jsonl", []byte(b+"\n"+a+"\n"+c+"\n")) // not in order
	for _, test := range []struct {
		name string
		by   Corrections
		want []string
	}{
		{"none", Corrections{}, []string{"a " + a, "b " + b, "c " + c}},
		{"dropped", Corrections{Drop: map[string]bool{"b": true, "c": false}}, []string{"a " + a, "c " + c}},
		{"all dropped", Corrections{Drop: map[string]bool{"a": true, "b": true, "c": true}}, nil},
		{"replaced in place", Corrections{Replace: map[string][]byte{"b": []byte(eventRow("b", 20, "new"))}},
			[]string{"a " + a, "b " + eventRow("b", 20, "new"), "c " + c}},
		{"kept though dropped", Corrections{Drop: map[string]bool{"b": true}, Replace: map[string][]byte{"b": []byte(eventRow("b", 20, "new"))}},
			[]string{"a " + a, "b " + eventRow("b", 20, "new"), "c " + c}},
		{"moved to the front", Corrections{Replace: map[string][]byte{"c": []byte(eventRow("c", 1, "new"))}},
			[]string{"c " + eventRow("c", 1, "new"), "a " + a, "b " + b}},
		{"moved to the end", Corrections{Replace: map[string][]byte{"a": []byte(eventRow("a", 59, "new"))}},
			[]string{"b " + b, "c " + c, "a " + eventRow("a", 59, "new")}},
		{"same time, order of ids", Corrections{Replace: map[string][]byte{"a": []byte(eventRow("a", 20, "new")), "c": []byte(eventRow("c", 20, "new"))}},
			[]string{"a " + eventRow("a", 20, "new"), "b " + b, "c " + eventRow("c", 20, "new")}},
		{"of other snapshots", Corrections{Drop: map[string]bool{"z": true}, Replace: map[string][]byte{"y": []byte(eventRow("y", 1, "new"))}},
			[]string{"a " + a, "b " + b, "c " + c}},
	} {
		for _, max := range []int{1, 0} {
			got, err := delivers(t, Corrected(New(Config{Path: path}), test.by), max)
			if err != nil || !slices.Equal(got, test.want) {
				t.Errorf("%s: got %q, %v\nwant %q", test.name, got, err, test.want)
			}
		}
	}
}

// TestCorrectingIsCorrectingTheFile compares with a snapshot that was written corrected.
func TestCorrectingIsCorrectingTheFile(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		by := Corrections{Drop: map[string]bool{}, Replace: map[string][]byte{}}
		var before, after []string
		for i := range 200 {
			id := fmt.Sprintf("e%d", i)
			value := eventRow(id, rng.IntN(60), "old")
			before = append(before, value)
			kept := rng.IntN(4) > 0
			by.Drop[id] = !kept
			if rng.IntN(4) == 0 {
				value, kept = eventRow(id, rng.IntN(60), "new"), true
				by.Replace[id] = []byte(value)
			}
			if kept {
				after = append(after, value)
			}
		}
		src := New(Config{Path: write(t, "before.jsonl", []byte(strings.Join(before, "\n"))), Memory: 4 << 10})
		got, err := delivers(t, Corrected(src, by), 1+rng.IntN(50))
		want, wantErr := delivers(t, New(Config{Path: write(t, "after.jsonl", []byte(strings.Join(after, "\n")))}), 0)
		if err != nil || wantErr != nil || !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v, %v\ngot  %q\nwant %q", seed, err, wantErr, got, want)
		}
	}
}

func TestARevisionThatIsNoRowIsRefused(t *testing.T) {
	t.Parallel()
	src := New(Config{Path: "testdata/snapshot.jsonl"})
	for value, says := range map[string]string{
		`{}`:                     "is missing",
		`not JSON`:               "expected an object",
		eventRow("other", 1, ""): "is one of event",
	} {
		_, err := delivers(t, Corrected(src, Corrections{Replace: map[string][]byte{"fixture.event.0.1": []byte(value)}}), 0)
		if !codes.Has(err, codes.SnapshotInvalid) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "fixture.event.0.1") {
			t.Errorf("%s: got %v, want %q", value, err, says)
		}
	}
}

func TestTheIDOfACorrectedSnapshotDependsOnEveryCorrection(t *testing.T) {
	t.Parallel()
	src := New(Config{Path: "testdata/snapshot.jsonl"})
	seen := map[string]int{}
	for i, by := range []Corrections{
		{},
		{Drop: map[string]bool{"a": true}},
		{Drop: map[string]bool{"b": true}},
		{Replace: map[string][]byte{"a": []byte("1")}},
		{Replace: map[string][]byte{"a": []byte("2")}},
		{Drop: map[string]bool{"a": true}, Replace: map[string][]byte{"a": []byte("1")}},
	} {
		info, err := Corrected(src, by).Info(t.Context())
		if err != nil || !info.Bounded || !slices.Equal(info.Partitions, []int32{0}) {
			t.Fatalf("got %+v, %v", info, err)
		}
		if other, twice := seen[info.ID]; twice {
			t.Errorf("corrections %d and %d have one id", other, i)
		}
		seen[info.ID] = i
	}
}
