//go:build unix

package drill

import (
	"os"
	"path/filepath"
	"testing"
)

// A drill that was killed leaves its folder, which the next one clears away; those of drills that run, or are kept, and what only looks like one stay.
func TestFoldersOfDeadDrills(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	folder := func(keep bool) (string, func()) {
		t.Helper()
		dir, remove, err := Folder(keep)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "drill.db"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir, remove
	}
	there := func(dir string) bool {
		_, err := os.Lstat(dir)
		return err == nil
	}
	dead := filepath.Join(tmp, folderPrefix+"dead")
	elsewhere := t.TempDir()
	link, open := filepath.Join(tmp, folderPrefix+"link"), filepath.Join(tmp, folderPrefix+"open")
	for _, dir := range []string{dead, open, elsewhere} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, runningFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	kept, keep := folder(true)
	running, remove := folder(false)
	last, removeLast := folder(false)
	removeLast()
	removeLast()
	keep()
	if there(dead) || there(last) {
		t.Errorf("left behind: dead %v, ended %v", there(dead), there(last))
	}
	for _, dir := range []string{kept, running, open, link, filepath.Join(elsewhere, runningFile)} {
		if !there(dir) {
			t.Errorf("%s is removed", dir)
		}
	}
	remove()
	if there(running) {
		t.Errorf("%s is left behind", running)
	}
}
