package emit_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/emit"
)

func plan(outputs ...string) *flow.Plan {
	p := &flow.Plan{Name: "test", Fingerprint: "sha256:0"}
	for i, name := range outputs {
		p.Outputs = append(p.Outputs, flow.Output{Name: name, Node: i})
	}
	return p
}

func row(t int64, id string, values ...operators.Value) *partitions.Row {
	return &partitions.Row{Time: record.EventTime(t), ID: []byte(id), Values: values}
}

func TestGoldenValuesAndTheirHash(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out.json")
	p := plan("ema3")
	w, err := emit.NewWriter(p, path)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range []operators.Value{operators.Gap, operators.Gap, operators.Number(2), operators.Number(3), operators.Number(4), operators.Number(5)} {
		if err := w.Row(row(int64(i), fmt.Sprintf("e%d", i), v)); err != nil {
			t.Fatal(err)
		}
	}
	d := emit.New(p, emit.ModeBatch)
	d.Counts.Consumed = 6
	d.Positions = map[int32]record.Position{0: record.Offset(18), 1: {}}
	d, err = w.Finish(d)
	if err != nil {
		t.Fatal(err)
	}
	const golden = "sha256:9e906a09a1c594964c16291a77cb38b0ffb021e69c230d71d1dd77ebbd6a7877"
	if d.ValuesHash != golden {
		t.Errorf("hash %s", d.ValuesHash)
	}
	want := `{"consumed":6,"duplicates_skipped":0,"events":["e0","e1","e2","e3","e4","e5"],"fence_token":0,"filtered":0,` +
		`"flow":{"fingerprint":"sha256:0","name":"test"},"format":"weir-emit/1","future":0,"late":0,"mode":"batch","omitted":0,` +
		`"positions":{"0":18},"values":[null,null,2.0,3.0,4.0,5.0],"values_hash":"` + golden + `","watermark":null}`
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(file) != want+"\n" {
		t.Errorf("file:\n%s\nwant:\n%s", file, want)
	}
	inMemory, err := record.AppendJSON(nil, d.Document(true))
	if err != nil || string(inMemory) != want {
		t.Errorf("document (%v):\n%s", err, inMemory)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	onlyTarget(t, filepath.Dir(path), "out.json")
}

func TestSeveralOutputsAreObjects(t *testing.T) {
	t.Parallel()
	p := plan("slow", "fast")
	w, err := emit.NewWriter(p, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Row(row(1, "a", operators.Number(1), operators.Gap)); err != nil {
		t.Fatal(err)
	}
	d, err := w.Finish(emit.New(p, emit.ModeReplay))
	if err != nil {
		t.Fatal(err)
	}
	text, err := record.AppendJSON(nil, d.Document(true)["values"])
	if err != nil || string(text) != `[{"fast":null,"slow":1.0}]` {
		t.Errorf("%s, %v", text, err)
	}
	if want := record.Hash(text); d.ValuesHash != want {
		t.Errorf("hash %s, want that of the canonical values %s", d.ValuesHash, want)
	}
}

func TestRowsBeyondKeepAreLeftOutOfMemoryAlone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out.json")
	p := plan("x")
	w, err := emit.NewWriter(p, path)
	if err != nil {
		t.Fatal(err)
	}
	w.Keep = 2
	for i := range 3 {
		if err := w.Row(row(int64(i), fmt.Sprint(i), operators.Number(float64(i)))); err != nil {
			t.Fatal(err)
		}
	}
	d, err := w.Finish(emit.New(p, emit.ModeBatch))
	if err != nil {
		t.Fatal(err)
	}
	if d.Complete || d.Values != nil || d.Rows != 3 {
		t.Errorf("%+v", d)
	}
	file, _ := os.ReadFile(path)
	if !bytes.Contains(file, []byte(`"values":[0.0,1.0,2.0]`)) {
		t.Errorf("%s", file)
	}
	if m := d.Document(true); m["rows"] != int64(3) || m["values"] != nil {
		t.Errorf("%v", m)
	}
}

func TestDiscardLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := emit.NewWriter(plan("x"), filepath.Join(dir, "out.json"))
	if err != nil {
		t.Fatal(err)
	}
	w.Discard()
	onlyTarget(t, dir)
}

func TestUnwritableTargetsAreNamed(t *testing.T) {
	t.Parallel()
	_, err := emit.NewWriter(plan("x"), filepath.Join(t.TempDir(), "missing", "out.json"))
	if !codes.Has(err, codes.OutputUnwritable) {
		t.Errorf("missing folder: %v", err)
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("CI lacks /dev/full, which stands for a full disk")
		}
		t.Skip("this system has no /dev/full to stand for a full disk")
	}
	w, err := emit.NewWriter(plan("x"), "/dev/full")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Row(row(1, "a", operators.Gap)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Finish(emit.New(plan("x"), emit.ModeBatch)); !codes.Has(err, codes.OutputUnwritable) {
		t.Errorf("full disk: %v", err)
	}
}

// TestMergeEqualsSorting: rows dealt to runs at random come back in (event time, event id, run) order.
func TestMergeEqualsSorting(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		type key struct {
			t  int64
			id string
		}
		n := 1 + rng.IntN(8)
		dealt := make([][]key, n)
		var all []key
		for i := range rng.IntN(300) {
			k := key{rng.Int64N(40), fmt.Sprintf("%d-%d", rng.IntN(3), i)}
			all = append(all, k)
			p := rng.IntN(n)
			dealt[p] = append(dealt[p], k)
		}
		order := func(a, b key) int {
			if a.t != b.t {
				return int(a.t - b.t)
			}
			return bytes.Compare([]byte(a.id), []byte(b.id))
		}
		slices.SortFunc(all, order)
		var runs []emit.Run
		for _, keys := range dealt {
			slices.SortFunc(keys, order)
			spool, err := emit.NewSpool("")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(spool.Close)
			for len(keys) > 0 {
				var rows partitions.Rows
				piece := min(len(keys), 1+rng.IntN(20))
				for _, k := range keys[:piece] {
					rows.Append(record.EventTime(k.t), []byte(k.id), []byte("k"), []operators.Value{operators.Number(1)})
				}
				keys = keys[piece:]
				if err := spool.Append(rows); err != nil {
					t.Fatal(err)
				}
			}
			runs = append(runs, spool.Run())
		}
		var got []key
		err := emit.Merge(1, runs, func(r *partitions.Row) error {
			got = append(got, key{int64(r.Time), string(r.ID)})
			return nil
		})
		if err != nil || !slices.Equal(got, all) {
			t.Fatalf("seed %d: %v\n got %v\nwant %v", seed, err, got, all)
		}
	}
}

func TestMergeStopsAtTheFirstError(t *testing.T) {
	t.Parallel()
	damaged := func(yield func([]byte, error) bool) { yield([]byte{1, 2, 3}, nil) }
	if err := emit.Merge(1, []emit.Run{damaged}, nil); !errors.Is(err, partitions.ErrRows) {
		t.Errorf("damaged rows: %v", err)
	}
	broken := errors.New("disk on fire")
	failing := func(yield func([]byte, error) bool) { yield(nil, broken) }
	if err := emit.Merge(1, []emit.Run{failing}, nil); !errors.Is(err, broken) {
		t.Errorf("failing run: %v", err)
	}
}

func onlyTarget(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, names) {
		t.Errorf("the folder holds %v, want %v", got, names)
	}
}
