package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/fixture"
)

// TestNoOutputReplacesAnInput: also through a link or another spelling, and the store's own files.
func TestNoOutputReplacesAnInput(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "a.log")
	must(t, dir, strings.Fields("run flow.yaml --log a.log --run-id first --store sqlite:w.db --until-n 5")...)
	if err := os.Symlink("snapshot.jsonl", filepath.Join(dir, "link.jsonl")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{
		"run flow.yaml --log a.log --run-id x --store sqlite:w.db --emit w.db",
		"run flow.yaml --log a.log --run-id x --store sqlite:w.db --emit ./w.db",
		"run flow.yaml --log a.log --run-id x --store sqlite:new.db --emit new.db",
		"run flow.yaml --log a.log --run-id x --store sqlite:new.db --emit new.db-wal",
		"run flow.yaml --log a.log --run-id x --store sqlite:w.db --emit a.log",
		"run flow.yaml --log a.log --run-id x --store sqlite:w.db --emit flow.yaml",
		"batch run --flow flow.yaml --snapshot snapshot.jsonl --emit snapshot.jsonl",
		"batch run --flow flow.yaml --snapshot snapshot.jsonl --emit link.jsonl",
		"batch run --flow flow.yaml --log a.log --emit a.log",
		"batch run --flow flow.yaml --log a.log --emit flow.yaml",
		"replay build --snapshot snapshot.jsonl --faults faults.json --out faults.json",
		"replay build --snapshot snapshot.jsonl --out snapshot.jsonl",
		"replay faults --snapshot snapshot.jsonl --out snapshot.jsonl",
		"replay generate --snapshot both.jsonl --faults both.jsonl",
	} {
		refused(t, dir, 3, []string{"CONFIG_INVALID"}, strings.Fields(c)...)
	}
	for name, want := range map[string][]byte{"snapshot.jsonl": fixture.Snapshot, "flow.yaml": fixture.Flow, "faults.json": fixture.Schedule} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s was changed (%v)", name, err)
		}
	}
	must(t, dir, strings.Fields("run flow.yaml --log a.log --run-id first --store sqlite:w.db")...)
}

// TestOneDocumentAlways: with --json there is one document on stdout, whatever happens.
func TestOneDocumentAlways(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	for _, c := range []string{
		"run flow.yaml --nope --json", "batch run --fetch x --json", "--nope --json", "version --json --json=maybe", "--json", "batch --json", "replay --json", "runs --json",
		"lint --json", "parity --json --partitions 0", "frobnicate --json",
	} {
		r := weir(t, dir, "", strings.Fields(c)...)
		if e, ok := parse(t, r.stdout)["error"].(map[string]any); r.code != 2 || !ok || e["code"] != "USAGE" {
			t.Errorf("%s: exit %d, %q", c, r.code, r.stdout)
		}
	}
}

// TestAnAnswerThatNobodyGotIsAnError: standard output on a full disk.
func TestAnAnswerThatNobodyGotIsAnError(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	needs(t, err == nil, "/dev/full, which stands for a full disk")
	defer full.Close()
	dir := fixtureDir(t)
	for _, c := range []string{"version", "plan flow.yaml", "lint flow.yaml", "canon", "canon --hash", "schema", "batch run --flow flow.yaml --snapshot snapshot.jsonl", "parity", "parity --json"} {
		cmd := command(t, dir, strings.Fields(c)...)
		cmd.Stdin = strings.NewReader("[1]")
		cmd.Stdout = full
		var errs bytes.Buffer
		cmd.Stderr = &errs
		_ = cmd.Run()
		if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(errs.String(), "OUTPUT_UNWRITABLE") {
			t.Errorf("%s: exit %d, %s", c, cmd.ProcessState.ExitCode(), errs.String())
		}
	}
}

func TestRunIDsHaveTheirOwnFiles(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, id := range []string{"a/b", "a:b", "a_b", "a.b", "..", ".", "a%2Fb", "ü", "a b"} {
		name := fileName(id)
		if other, ok := seen[name]; ok || strings.ContainsAny(name, "/: ") || strings.HasPrefix(name, ".") {
			t.Errorf("%q is kept as %q, like %q", id, name, other)
		}
		seen[name] = id
	}
}
