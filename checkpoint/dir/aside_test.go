package dir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
)

// other is a second process on the same folder.
func other(t testing.TB, s *Store) *Store { return openOwned(t, s.path) }

func place(t testing.TB) *Store { return openOwned(t, filepath.Join(t.TempDir(), "checkpoints")) }

// at calls do when the store comes to a step, once.
func at(s *Store, step string, do func()) {
	s.hook = func(name string) error {
		if name == step {
			s.hook = nil
			do()
		}
		return nil
	}
}

func older(t testing.TB, s *Store, name string, d time.Duration) {
	t.Helper()
	file := filepath.Join(s.path, folder, name)
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, time.Time{}, info.ModTime().Add(-d)); err != nil {
		t.Fatal(err)
	}
}

func asides(t testing.TB, s *Store) (all []checkpoint.Aside) {
	t.Helper()
	if err := s.Aside(t.Context(), func(a checkpoint.Aside) error { all = append(all, a); return nil }); err != nil {
		t.Fatal(err)
	}
	return all
}

func readable(t testing.TB, s *Store, name, text string) {
	t.Helper()
	if b, err := checkpoint.GetBytes(t.Context(), s, name, 1000); err != nil || string(b) != text {
		t.Errorf("%q, %v", b, err)
	}
}

// A collector is stopped between its look at the age and the rename, for long. Whatever was done to the blob meanwhile, it is not lost, and its time
// aside begins no earlier than the rename.
func TestStoppedBeforeTheRename(t *testing.T) {
	t.Parallel()
	for what, meanwhile := range map[string]func(t *testing.T, s *Store, name string){
		"nothing":   func(*testing.T, *Store, string) {},
		"touched":   func(t *testing.T, s *Store, name string) { touched(t, s, name, true) },
		"written":   func(t *testing.T, s *Store, name string) { put(t, s, "x") },
		"set aside": func(t *testing.T, s *Store, name string) { setAside(t, s, name, true) },
		"set aside and written": func(t *testing.T, s *Store, name string) {
			setAside(t, s, name, true)
			put(t, s, "x")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := place(t)
			name := put(t, s, "x")
			older(t, s, name, 2*time.Hour)
			var renamed time.Time
			at(s, "judged", func() {
				meanwhile(t, other(t, s), name)
				renamed = time.Now()
			})
			if _, err := s.SetAside(t.Context(), name, time.Hour); err != nil {
				t.Fatal(err)
			}
			for _, a := range asides(t, s) {
				if what != "set aside" && what != "set aside and written" && a.Since.Before(renamed) {
					t.Errorf("aside since %s, and it was taken at %s", a.Since, renamed)
				}
			}
			readable(t, s, name, "x")
			touched(t, s, name, true)
		})
	}
}

func touched(t *testing.T, s *Store, name string, want bool) {
	t.Helper()
	if stands, err := s.Touch(t.Context(), []checkpoint.Info{{Name: name, Size: 1}}); err != nil || stands[0] != want {
		t.Errorf("stands %v, %v; want %v", stands, err, want)
	}
}

func setAside(t *testing.T, s *Store, name string, want bool) {
	t.Helper()
	if done, err := s.SetAside(t.Context(), name, 0); err != nil || done != want {
		t.Errorf("set aside %v, %v; want %v", done, err, want)
	}
}

// A process that is killed or stopped before it could say when a blob was set aside: the time is given by whoever sees it first, and by one of them
// only.
func TestTimeAsideIsGivenAfterwards(t *testing.T) {
	t.Parallel()
	s := place(t)
	name := put(t, s, "x")
	killed := errors.New("killed")
	s.hook = func(step string) error {
		if step == "unstamped" {
			return killed
		}
		return nil
	}
	if _, err := s.SetAside(t.Context(), name, 0); !errors.Is(err, killed) {
		t.Fatal(err)
	}
	s.hook = nil
	touched(t, s, name, false)
	seen := time.Now()
	var byOther []checkpoint.Aside
	at(s, "unstamped", func() { byOther = asides(t, other(t, s)) })
	if mine := asides(t, s); len(mine) != 0 {
		t.Errorf("two give it a time: %v", mine)
	}
	again := asides(t, s)
	if len(byOther) != 1 || len(again) != 1 || again[0] != byOther[0] || again[0].Since.Before(seen) {
		t.Errorf("%v, %v", byOther, again)
	}
	readable(t, s, name, "x")
}

// Bringing back is stopped between its two steps: the blob is in both places, and neither a purge nor another bringing back harms it.
func TestStoppedWhileBringingBack(t *testing.T) {
	t.Parallel()
	s := place(t)
	name := put(t, s, "x")
	setAside(t, s, name, true)
	a := asides(t, s)[0]
	at(s, "linked", func() {
		o := other(t, s)
		readable(t, o, name, "x")
		if err := errors.Join(o.Purge(t.Context(), a), o.BringBack(t.Context(), a), o.Purge(t.Context(), a)); err != nil {
			t.Error(err)
		}
	})
	if err := s.BringBack(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	readable(t, s, name, "x")
	if left := asides(t, s); len(left) != 0 {
		t.Errorf("%v", left)
	}
}

// A reader meets a blob that is set aside between its look and the opening.
func TestSetAsideWhileItIsOpened(t *testing.T) {
	t.Parallel()
	s := place(t)
	name := put(t, s, "x")
	at(s, "found", func() { setAside(t, other(t, s), name, true) })
	readable(t, s, name, "x")
	touched(t, s, name, true)
	// And again and again: it ends.
	s.hook = func(step string) error {
		if step == "found" {
			setAside(t, other(t, s), name, true)
		}
		return nil
	}
	if _, _, err := s.Get(t.Context(), name); !codes.Has(err, codes.StoreUnavailable) {
		t.Errorf("%v", err)
	}
}

// A blob that is set aside between the look of Touch and its effect does not stand.
func TestSetAsideWhileItIsTouched(t *testing.T) {
	t.Parallel()
	s := place(t)
	name := put(t, s, "x")
	at(s, "seen", func() { setAside(t, other(t, s), name, true) })
	touched(t, s, name, false)
	put(t, s, "x")
	touched(t, s, name, true)
}

// Tickets are names of files, and nothing that leads elsewhere.
func TestTickets(t *testing.T) {
	t.Parallel()
	s := place(t)
	name := put(t, s, "x")
	for _, ticket := range []string{"", "x", "..", "../" + name, name, name + ".1", name + ".x.y", name + ".1./../../" + name, name + ".1.a/b", name + ".1.a\x00", strings.Repeat("a", 64) + ".1.x"} {
		a := checkpoint.Aside{Info: checkpoint.Info{Name: name}, Ticket: ticket}
		for what, err := range map[string]error{"Purge": s.Purge(t.Context(), a), "BringBack": s.BringBack(t.Context(), a)} {
			if !codes.Has(err, codes.NameInvalid) {
				t.Errorf("%s of %q: %v", what, ticket, err)
			}
		}
	}
	readable(t, s, name, "x")
}

// A folder is one store's, from its first moment on, also when two stores come at once.
func TestOwnedFolders(t *testing.T) {
	t.Parallel()
	const second = "fedcba9876543210fedcba9876543210"
	path := filepath.Join(t.TempDir(), "a", "checkpoints")
	s := openOwned(t, path)
	put(t, s, "x")
	openOwned(t, path)
	if _, err := OpenOwned(path, second); !codes.Has(err, codes.ConfigInvalid) || !strings.Contains(err.Error(), storeID) || !strings.Contains(err.Error(), path) {
		t.Errorf("another store: %v", err)
	}
	plain := filepath.Join(t.TempDir(), "artifacts")
	put(t, open(t, plain), "x")
	if _, err := OpenOwned(plain, storeID); !codes.Has(err, codes.ConfigInvalid) || !strings.Contains(err.Error(), MarkFile) {
		t.Errorf("a folder of artefacts: %v", err)
	}
	if owner, err := open(t, plain).Owner(t.Context()); owner != "" || err != nil {
		t.Errorf("%q, %v", owner, err)
	}

	for range 20 {
		path := filepath.Join(t.TempDir(), "raced")
		won := make(chan string, 2)
		for _, id := range []string{storeID, second} {
			go func() {
				s, err := OpenOwned(path, id)
				switch {
				case err == nil:
					won <- id
					_ = s.Close()
				case codes.Has(err, codes.ConfigInvalid):
					won <- ""
				default:
					won <- err.Error()
				}
			}()
		}
		first, other := <-won, <-won
		if mark, err := readMark(filepath.Join(path, MarkFile)); err != nil || mark != first+other {
			t.Errorf("%q and %q of two stores opened it, and it is marked %q: %v", first, other, mark, err)
		}
	}
}

func TestFoldersThatAreNotTrusted(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	n := 0
	fresh := func() string {
		n++
		path := filepath.Join(base, fmt.Sprint(n))
		s, err := OpenOwned(path, storeID)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	target := fresh()
	for what, spoil := range map[string]func(path string) error{
		"open to others":           func(path string) error { return os.Chmod(path, 0o770) },
		"blobs open to others":     func(path string) error { return os.Chmod(filepath.Join(path, folder), 0o707) },
		"a link":                   func(path string) error { return errors.Join(os.RemoveAll(path), os.Symlink(target, path)) },
		"a file":                   func(path string) error { return errors.Join(os.RemoveAll(path), os.WriteFile(path, nil, 0o600)) },
		"a linked folder of blobs": func(path string) error { return relink(filepath.Join(path, folder), filepath.Join(target, folder)) },
		"a linked mark":            func(path string) error { return relink(filepath.Join(path, MarkFile), filepath.Join(target, MarkFile)) },
		"a mark that others write": func(path string) error { return os.Chmod(filepath.Join(path, MarkFile), 0o666) },
		"an empty mark":            func(path string) error { return os.WriteFile(filepath.Join(path, MarkFile), nil, 0o600) },
		"half a mark": func(path string) error {
			return os.WriteFile(filepath.Join(path, MarkFile), []byte(storeID[:9]), 0o600)
		},
		"a large mark": func(path string) error { return os.WriteFile(filepath.Join(path, MarkFile), make([]byte, 5000), 0o600) },
		"a mark of two lines": func(path string) error {
			return os.WriteFile(filepath.Join(path, MarkFile), []byte(storeID+"\n\n"), 0o600)
		},
		"a folder for a mark": func(path string) error {
			return errors.Join(os.Remove(filepath.Join(path, MarkFile)), os.Mkdir(filepath.Join(path, MarkFile), 0o700))
		},
		"something aside, no mark": func(path string) error {
			return errors.Join(os.Remove(filepath.Join(path, MarkFile)), os.Mkdir(filepath.Join(path, folder, asideFolder), 0o700))
		},
	} {
		path := fresh()
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		if s, err := OpenOwned(path, storeID); !codes.Has(err, codes.ConfigInvalid) || s != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func relink(at, to string) error { return errors.Join(os.RemoveAll(at), os.Symlink(to, at)) }

// What is not weir's is named and left alone, wherever it stands.
func TestStrangers(t *testing.T) {
	t.Parallel()
	s := place(t)
	name := put(t, s, "x")
	setAside(t, s, put(t, s, "y"), true)
	if strange, err := s.Strangers(); err != nil || len(strange) != 0 {
		t.Errorf("%v, %v", strange, err)
	}
	ticket := asides(t, s)[0].Ticket
	for _, at := range []string{"notes", filepath.Join(folder, "copy"), filepath.Join(folder, asideFolder, "z")} {
		if err := os.WriteFile(filepath.Join(s.path, at), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	linked := filepath.Join(folder, asideFolder, strings.Replace(ticket, ".", ".1", 1))
	if err := os.Symlink("elsewhere", filepath.Join(s.path, linked)); err != nil {
		t.Fatal(err)
	}
	strange, err := s.Strangers()
	if err != nil || len(strange) != 4 {
		t.Errorf("%v, %v", strange, err)
	}
	if all := asides(t, s); len(all) != 1 || all[0].Ticket != ticket {
		t.Errorf("%v", all)
	}
	if err := s.List(context.Background(), func(i checkpoint.Info) error {
		if i.Name != name {
			t.Errorf("%s is listed", i.Name)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for _, at := range strange {
		if _, err := os.Lstat(filepath.Join(s.path, at)); err != nil {
			t.Error(err)
		}
	}
}
