package dir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/checkpointtest"
	"github.com/weirstream/weir/codes"
)

func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// storeID is the store that the folders of the tests belong to.
const storeID = "0123456789abcdef0123456789abcdef"

func openOwned(t testing.TB, path string) *Store {
	t.Helper()
	s, err := OpenOwned(path, storeID)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func files(t testing.TB, path string) []os.DirEntry {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(path, folder))
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

func TestConformance(t *testing.T) {
	t.Parallel()
	checkpointtest.Run(t, func(t testing.TB) checkpointtest.Place {
		path := filepath.Join(t.TempDir(), "a", "b")
		return checkpointtest.Place{
			Open:  func(t testing.TB) checkpoint.Blobs { return openOwned(t, path) },
			Owner: storeID,
			Older: func(t testing.TB, name string, d time.Duration) {
				file := filepath.Join(path, folder, name)
				info, err := os.Stat(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Chtimes(file, time.Time{}, info.ModTime().Add(-d)); err != nil {
					t.Fatal(err)
				}
			},
			Damage: func(t testing.TB, name string, change func([]byte) []byte) {
				file := filepath.Join(path, folder, name)
				b, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, change(b), 0o600); err != nil {
					t.Fatal(err)
				}
			},
			Left: func(t testing.TB) (n int) {
				for _, f := range files(t, path) {
					if checkpoint.CheckName(f.Name()) != nil && f.Name() != asideFolder {
						n++
					}
				}
				return n
			},
		}
	})
}

func put(t testing.TB, s *Store, text string) string {
	t.Helper()
	info, err := checkpoint.PutBytes(t.Context(), s, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return info.Name
}

// Whatever the umask leaves, nobody else reads what is stored.
func TestModes(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "artifacts")
	name := put(t, open(t, path), "x")
	for at, want := range map[string]os.FileMode{filepath.Dir(path): 0o700, path: 0o700, filepath.Join(path, folder): 0o700, filepath.Join(path, folder, name): 0o600} {
		info, err := os.Stat(at)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", at, info.Mode().Perm(), err, want)
		}
	}
}

func TestFoldersThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	file := filepath.Join(base, "file")
	linked := filepath.Join(base, "linked")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.MkdirAll(linked, 0o700), os.Symlink(base, filepath.Join(linked, folder))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "below"), linked} {
		s, err := Open(path)
		if !codes.Has(err, codes.OutputUnwritable) || !strings.Contains(err.Error(), path) || s != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// A step that fails leaves no blob and no temporary file, and the message has no path.
func TestStepsThatFail(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"written", "synced"} {
		path := t.TempDir()
		s := open(t, path)
		s.hook = func(at string) error {
			if at == step {
				return unwritable(&os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC})
			}
			return nil
		}
		_, err := checkpoint.PutBytes(t.Context(), s, []byte("x"))
		if !codes.Has(err, codes.OutputUnwritable) || !strings.Contains(err.Error(), "no space left") || strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", step, err)
		}
		if left := files(t, path); len(left) != 0 {
			t.Errorf("%s: left behind %v", step, left)
		}
	}
}
