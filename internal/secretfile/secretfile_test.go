package secretfile

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestModes(t *testing.T) {
	t.Parallel()
	for mode := fs.FileMode(0); mode <= 0o777; mode++ {
		others, group := mode&0o007 != 0, mode&0o070
		if got, want := open(mode, false), others || group != 0; got != want {
			t.Errorf("our own file of mode %04o: open %v", mode, got)
		}
		if got, want := open(mode, true), others || group&^0o040 != 0; got != want {
			t.Errorf("a file of root of mode %04o: open %v", mode, got)
		}
	}
}

// Whoever runs this owns the file: its group may not read it.
func TestOwnFiles(t *testing.T) {
	t.Parallel()
	for mode, want := range map[fs.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o440: true, 0o604: true, 0o644: true} {
		t.Run(fmt.Sprintf("%04o", mode), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := Open(info); got != want {
				t.Errorf("open %v, want %v", got, want)
			}
		})
	}
}
