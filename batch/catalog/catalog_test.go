package catalog_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/batch/catalog"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/sinks/emit"
)

// folders makes both folders with the fixture in them.
func folders(t *testing.T) (flows, snapshots string) {
	t.Helper()
	flows, snapshots = filepath.Join(t.TempDir(), "flows"), filepath.Join(t.TempDir(), "snapshots")
	if err := errors.Join(os.Mkdir(flows, 0o700), os.Mkdir(snapshots, 0o700)); err != nil {
		t.Fatal(err)
	}
	write(t, flows, "ema.yaml", fixture.Flow)
	write(t, snapshots, "fixture.2026-01_a.jsonl", fixture.Snapshot)
	return flows, snapshots
}

func write(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, flows, snapshots string) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Open(flows, snapshots)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestANamedFlowOverANamedSnapshot(t *testing.T) {
	t.Parallel()
	flows, snapshots := folders(t)
	c := open(t, flows, snapshots)
	plan, err := c.Plan("ema")
	if err != nil {
		t.Fatal(err)
	}
	src, err := c.Source("fixture.2026-01_a", plan, "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := batch.Run(t.Context(), batch.Config{Plan: plan, Source: src, Mode: emit.ModeBatch})
	if err != nil || d.ValuesHash != fixture.ValuesHash {
		t.Errorf("%s, %v", d.ValuesHash, err)
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	flows, snapshots := folders(t)
	c := open(t, flows, snapshots)
	for _, name := range []string{"a.csv", "b.ndjson", "c.json", "twice.csv", "twice.jsonl", "Upper.csv", ".hidden.csv", "-dash.csv", "other.txt", "noextension", ".csv", "ü.csv"} {
		write(t, snapshots, name, nil)
	}
	if err := os.Mkdir(filepath.Join(snapshots, "folder.csv"), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := c.Snapshots()
	if want := []string{"a", "b", "c", "fixture.2026-01_a"}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("snapshots %v, %v; want %v", got, err, want)
	}
	if got, err := c.Flows(); err != nil || !reflect.DeepEqual(got, []string{"ema"}) {
		t.Errorf("flows %v, %v", got, err)
	}
	// What is put there later is known at once.
	write(t, flows, "later.yml", fixture.Flow)
	if _, err := c.Plan("later"); err != nil {
		t.Error(err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	flows, snapshots := folders(t)
	c := open(t, flows, snapshots)
	for _, name := range []string{"", ".", "..", "../ema", "/etc/passwd", "a/b", `a\b`, "ema\x00", "EMA", "éma", "-a", "_a", ".a", "a b", "a%2fb", "http://x", "env:X", "file:x", strings.Repeat("a", 101), "a\n", "\xff"} {
		plan, planErr := c.Plan(name)
		src, srcErr := c.Source(name, plan, "")
		for what, err := range map[string]error{"Plan": planErr, "Source": srcErr, "CheckFlow": c.CheckFlow(name), "CheckSnapshot": c.CheckSnapshot(name)} {
			if !codes.Has(err, codes.NameInvalid) {
				t.Errorf("%s(%q): %v, want NAME_INVALID", what, name, err)
			}
		}
		if plan != nil || src != nil {
			t.Errorf("%q gives something", name)
		}
	}
	for name, want := range map[string]string{"nothing": "there is no flow", "ema.yaml": `write "ema"`, "ema.json": `write "ema"`} {
		if err := c.CheckFlow(name); !codes.Has(err, codes.NameUnknown) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	write(t, flows, "ema.json", fixture.Flow)
	if _, err := c.Plan("ema"); !codes.Has(err, codes.NameUnknown) || !strings.Contains(err.Error(), "both ema.yaml and ema.json") {
		t.Errorf("two files: %v", err)
	}
}

// Links may stay inside their folder, as mounted configuration does; out of it none is followed. No message holds a path.
func TestLinksAndOtherFiles(t *testing.T) {
	t.Parallel()
	flows, snapshots := folders(t)
	c := open(t, flows, snapshots)
	outside := filepath.Join(t.TempDir(), "secret.yaml")
	if err := os.WriteFile(outside, fixture.Flow, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		os.Mkdir(filepath.Join(flows, "..data"), 0o700), os.WriteFile(filepath.Join(flows, "..data", "inside.yaml"), fixture.Flow, 0o600),
		os.Symlink("..data/inside.yaml", filepath.Join(flows, "inside.yaml")),
		os.Symlink(outside, filepath.Join(flows, "absolute.yaml")), os.Symlink("../../secret.yaml", filepath.Join(flows, "relative.yaml")),
		os.Symlink("/dev/zero", filepath.Join(flows, "device.yaml")), os.Mkdir(filepath.Join(flows, "folder.yaml"), 0o700),
		os.Symlink("loop.yaml", filepath.Join(flows, "loop.yaml")), os.Symlink("..data/nothing", filepath.Join(flows, "broken.yaml")),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Plan("inside"); err != nil {
		t.Errorf("a link inside: %v", err)
	}
	for name, code := range map[string]*codes.Code{
		"absolute": codes.FileMissing, "relative": codes.FileMissing, "device": codes.FileMissing, "folder": codes.FileMissing, "loop": codes.FileMissing, "broken": codes.NameUnknown,
	} {
		_, err := c.Plan(name)
		if !codes.Has(err, code) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %s", name, err, code.Name)
		}
		if err != nil && (strings.Contains(err.Error(), flows) || strings.Contains(err.Error(), outside)) {
			t.Errorf("%s: the message holds a path: %v", name, err)
		}
	}
	if got, err := c.Flows(); err != nil || !reflect.DeepEqual(got, []string{"ema", "inside"}) {
		t.Errorf("flows %v, %v", got, err)
	}
}

func TestBadContentNamesNoPath(t *testing.T) {
	t.Parallel()
	flows, snapshots := folders(t)
	c := open(t, flows, snapshots)
	write(t, flows, "bad.yaml", []byte("flow: weir/1\nnonsense: 1\n"))
	write(t, flows, "large.yaml", make([]byte, 5<<20))
	write(t, snapshots, "bad.jsonl", []byte(`{"instrument":"1"`))
	for _, name := range []string{"bad", "large"} {
		if _, err := c.Plan(name); !codes.Has(err, codes.FlowInvalid) || strings.Contains(err.Error(), flows) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plan, err := c.Plan("ema")
	if err != nil {
		t.Fatal(err)
	}
	src, err := c.Source("bad", plan, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.Info(t.Context()); !codes.Has(err, codes.SnapshotInvalid) || strings.Contains(err.Error(), snapshots) || !strings.Contains(err.Error(), "bad.jsonl") {
		t.Errorf("%v", err)
	}
	if err := os.Remove(filepath.Join(snapshots, "bad.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, err := src.Info(t.Context()); !codes.Has(err, codes.FileMissing) || strings.Contains(err.Error(), snapshots) {
		t.Errorf("gone: %v", err)
	}
}

func TestFoldersThatAreMissing(t *testing.T) {
	t.Parallel()
	flows, snapshots := folders(t)
	gone := filepath.Join(t.TempDir(), "gone")
	for _, c := range [][2]string{{gone, snapshots}, {flows, gone}, {filepath.Join(flows, "ema.yaml"), snapshots}} {
		if _, err := catalog.Open(c[0], c[1]); !codes.Has(err, codes.FileMissing) {
			t.Errorf("%v: %v", c, err)
		}
	}
}
