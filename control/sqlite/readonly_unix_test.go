//go:build unix

package sqlite

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What may not be written is said so at once, when it is opened. Permission bits do not hold for root, so as root the child is somebody
// else.
func TestWithoutPermission(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	exe := testBinaryIn(t, dir)
	cover := filepath.Join(dir, "cover")
	if err := os.Mkdir(cover, 0o700); err != nil {
		t.Fatal(err)
	}
	chmod(t, cover, 0o777)
	for name, c := range map[string]struct {
		folder, file os.FileMode
		exists       bool
		says         string
	}{
		"read-only file":                {0o777, 0o444, true, "open: it cannot be written; check the permissions"},
		"unreadable file":               {0o777, 0o000, true, "open: it cannot be opened; check the permissions"},
		"read-only folder":              {0o555, 0o666, true, "check the permissions of the file and its folder"},
		"read-only folder, new file":    {0o555, 0, false, "cannot be created: permission denied"},
		"folder that cannot be entered": {0o000, 0, false, "permission denied"},
	} {
		folder := filepath.Join(dir, name)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, "weir.db")
		if c.exists {
			filled(t, path, killed, 1)
			chmod(t, path, c.file)
		}
		chmod(t, folder, c.folder)
		o := child(t, task{Path: path, Workload: killed, Until: 2, KillAfterMicros: -1}, func(cmd *exec.Cmd) {
			cmd.Path, cmd.Args[0], cmd.Dir = exe, exe, dir
			cmd.Env = append(cmd.Env, "GOCOVERDIR="+cover) // under -cover the child writes there
			if os.Geteuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}
		})
		chmod(t, folder, 0o700)
		if len(o.codes) != 1 || !strings.HasPrefix(o.codes[0], "STORE_UNAVAILABLE STORE_UNAVAILABLE: journal "+path) || !strings.Contains(o.codes[0], c.says) {
			t.Errorf("%s: the child says:\n%s\nwant %q", name, o.text, c.says)
		}
		if c.exists {
			chmod(t, path, 0o600)
			if got := stands(t, path, killed); got != 1 {
				t.Errorf("%s: epoch %d stands", name, got)
			}
		}
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// testBinaryIn copies the test binary to where anybody may run it, and opens the way there.
func testBinaryIn(t *testing.T, dir string) string {
	t.Helper()
	chmod(t, dir, 0o755)
	chmod(t, filepath.Dir(dir), 0o755)
	from, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	to := filepath.Join(dir, "child")
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return to
}
