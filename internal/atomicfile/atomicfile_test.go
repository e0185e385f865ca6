package atomicfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
)

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestCommitReplacesInOneStepAndDiscardLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	for _, text := range []string{"first", "second, longer"} {
		f, err := Create(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if before, _ := os.ReadFile(path); string(before) == text {
			t.Fatal("visible before Commit")
		}
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
		f.Discard()
		if got, _ := os.ReadFile(path); string(got) != text {
			t.Fatalf("got %q, want %q", got, text)
		}
	}
	f, err := Create(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("never"))
	f.Discard()
	if got, _ := os.ReadFile(path); string(got) != "second, longer" {
		t.Fatalf("Discard changed the file: %q", got)
	}
	if names := entries(t, dir); len(names) != 1 {
		t.Fatalf("left behind: %v", names)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
}

func TestTwoAtOnceDoNotMeet(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out")
	a, err := Create(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Create(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	a.Write([]byte("a"))
	b.Write([]byte("b"))
	for _, f := range []*File{b, a} {
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := os.ReadFile(path); string(got) != "a" {
		t.Fatalf("got %q", got)
	}
}

func TestALinkStaysAndWhatItPointsToIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := os.WriteFile(real, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	f, err := Create(link, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("new"))
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(real); string(got) != "new" {
		t.Fatalf("got %q", got)
	}
	if target, err := os.Readlink(link); err != nil || target != real {
		t.Fatalf("the link became %q, %v", target, err)
	}
}

func TestADeviceIsWrittenAndNotReplaced(t *testing.T) {
	t.Parallel()
	f, err := Create(os.DevNull, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("gone"))
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Fatalf("the device was replaced: %v, %v", info, err)
	}
}

func TestEveryErrorNamesThePathAndHasTheCode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Join(dir, "missing", "out"), filepath.Join(file, "out")} {
		_, err := Create(path, 0o600)
		if !codes.Has(err, codes.OutputUnwritable) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if _, err := Spool(filepath.Join(dir, "missing")); !codes.Has(err, codes.OutputUnwritable) {
		t.Errorf("spool: got %v", err)
	}
}

func TestAFullDiskIsAClearError(t *testing.T) {
	t.Parallel()
	const full = "/dev/full"
	if _, err := os.Stat(full); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("CI lacks /dev/full, which stands for a full disk")
		}
		t.Skip("this system has no /dev/full to stand for a full disk")
	}
	f, err := Create(full, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Discard()
	_, err = f.Write([]byte("x"))
	if !codes.Has(err, codes.OutputUnwritable) || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), full) {
		t.Fatalf("got %v", err)
	}
}

func TestASpoolHasNoName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := Spool(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("abc"), 0); err != nil {
		t.Fatal(err)
	}
	if names := entries(t, dir); len(names) != 0 {
		t.Fatalf("names in the folder: %v", names)
	}
}

func TestWriteIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"older", "", "newer"} {
		if err := Write(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("got %q, %v, want %q", got, err, text)
		}
	}
	if err := Write(filepath.Join(dir, "missing", "file"), nil, 0o600); !codes.Has(err, codes.OutputUnwritable) {
		t.Errorf("got %v", err)
	}
	if names := entries(t, dir); len(names) != 1 {
		t.Errorf("names in the folder: %v", names)
	}
}
