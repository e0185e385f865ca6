//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// fullScript runs weir with a folder on a full disk of its own, makes room once it has said that a sink is down, and leaves what was published in a folder
// that stays.
const fullScript = `set -e
mount -t tmpfs -o size=1m tmpfs "$1" && mkdir "$1/out"
head -c 2m /dev/zero > "$1/fill" 2>/dev/null || true
cd "$2"; disk=$1; shift 2
"$@" 2> full.err & pid=$!
tail -n +1 -F --pid=$pid full.err 2>/dev/null | grep -q -m1 "a sink is down" || true
rm "$disk/fill"
code=0; wait $pid || code=$?
cp -r "$disk/out" left
exit $code`

// TestFilesOnAFullDisk: a disk without room is an outage. The run waits, says which folder it is, and everything is there once when there is room.
func TestFilesOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, disk := logDir(t), t.TempDir()
	needs(t, exec.Command("unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", disk).Run() == nil, "unshare with user namespaces and tmpfs, to play a full disk")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lines, columns := filepath.Join(disk, "out"), "parquet:"+filepath.Join(disk, "out")
	args := append([]string{"-Urm", "bash", "-c", fullScript, "bash", disk, dir, self}, logArgs("full", "sqlite:full.db", "--sink", "jsonl:"+lines, "--sink", columns)...)
	cmd := exec.Command("unshare", args...)
	cmd.Env = append(os.Environ(), asWeir+"=1")
	out, err := cmd.CombinedOutput()
	said, readErr := os.ReadFile(filepath.Join(dir, "full.err"))
	if err != nil || readErr != nil {
		t.Fatalf("%v, %v\n%s%s", err, readErr, out, said)
	}
	for _, words := range []string{"a sink is down", "SINK_UNAVAILABLE", lines, "is the disk full", "no space left on device"} {
		if !strings.Contains(string(said), words) {
			t.Errorf("it does not say %q:\n%s", words, said)
		}
	}
	must(t, dir, logArgs("roomy", "sqlite:roomy.db", "--sink", "jsonl:.")...)
	want := len(rowsBelow(t, filepath.Join(dir, "roomy", "*.jsonl")))
	if got := len(rowsBelow(t, filepath.Join(dir, "left", "full", "*.jsonl"))); got != want || want == 0 {
		t.Errorf("%d rows of %d are there", got, want)
	}
	n := int64(0)
	for _, text := range published(t, filepath.Join(dir, "left", "full", "*.parquet")) {
		in, err := parquet.OpenFile(strings.NewReader(string(text)), int64(len(text)))
		if err != nil {
			t.Fatal(err)
		}
		n += in.NumRows()
	}
	if n != int64(want) {
		t.Errorf("the files of Parquet have %d rows of %d", n, want)
	}
}

// rowsBelow are the lines of files.
func rowsBelow(t *testing.T, pattern string) (lines []string) {
	t.Helper()
	for _, text := range published(t, pattern) {
		for line := range strings.Lines(string(text)) {
			lines = append(lines, line)
		}
	}
	return lines
}
