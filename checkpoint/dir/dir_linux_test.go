package dir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/checkpointtest"
	"github.com/weirstream/weir/codes"
)

// killStep is the step at which a child process of TestKilledAtEveryStep kills itself.
const killStep = "WEIR_TEST_BLOB_KILL"

func TestMain(m *testing.M) {
	if step := os.Getenv(killStep); step != "" {
		child(step, os.Args[1])
	}
	os.Exit(m.Run())
}

// child writes a blob and dies at a step as a power switch would let it.
func child(step, path string) {
	s, err := Open(path)
	if err != nil {
		panic(err)
	}
	s.hook = func(at string) error {
		if at == step {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	}
	_, err = checkpoint.PutBytes(context.Background(), s, killed)
	panic(fmt.Sprint("not killed: ", err))
}

var killed = checkpointtest.Bytes(9, 100_000)

// What stands in the place of a blob and is no file of its own is refused by everything, also a link to the very bytes.
func TestForeignFiles(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	s := open(t, path)
	name := put(t, s, "the bytes")
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("the bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(path, folder, name)
	for what, plant := range map[string]func() error{
		"link out":       func() error { return os.Symlink(outside, at) },
		"link inside":    func() error { return os.Symlink("copy", at) },
		"broken link":    func() error { return os.Symlink("nowhere", at) },
		"folder":         func() error { return os.Mkdir(at, 0o700) },
		"named pipe":     func() error { return syscall.Mkfifo(at, 0o600) },
		"link to device": func() error { return os.Symlink("/dev/zero", at) },
	} {
		if err := errors.Join(os.RemoveAll(at), os.WriteFile(filepath.Join(path, folder, "copy"), []byte("the bytes"), 0o600), plant()); err != nil {
			t.Fatal(err)
		}
		_, _, getErr := s.Get(t.Context(), name)
		_, hasErr := s.Has(t.Context(), name)
		_, asideErr := s.SetAside(t.Context(), name, 0)
		for method, err := range map[string]error{"Get": getErr, "Has": hasErr, "SetAside": asideErr} {
			if !codes.Has(err, codes.BlobCorrupt) || strings.Contains(err.Error(), path) {
				t.Errorf("%s, %s: %v, want BLOB_CORRUPT", what, method, err)
			}
		}
		if stands, err := s.Touch(t.Context(), []checkpoint.Info{{Name: name, Size: 9}}); err != nil || stands[0] {
			t.Errorf("%s: Touch %v, %v", what, stands, err)
		}
		if err := s.List(t.Context(), func(i checkpoint.Info) error { return fmt.Errorf("%s is listed", i.Name) }); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// A Put replaces a link by a file, and what the link pointed to stays as it was.
	if err := errors.Join(os.RemoveAll(at), os.WriteFile(outside, []byte("mine"), 0o600), os.Symlink(outside, at)); err != nil {
		t.Fatal(err)
	}
	put(t, s, "the bytes")
	if b, err := os.ReadFile(outside); err != nil || string(b) != "mine" {
		t.Errorf("the target of the link now has %q, %v", b, err)
	}
	if b, err := checkpoint.GetBytes(t.Context(), s, name, 100); err != nil || string(b) != "the bytes" {
		t.Errorf("%q, %v", b, err)
	}
}

// A process is killed at every step of a Put. The blob then stands whole or not at all, another process writes it again, and what the dead
// one left is removed once it is old.
func TestKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for step, stands := range map[string]bool{"written": false, "synced": false, "renamed": true} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			path := t.TempDir()
			cmd := exec.Command(self, path)
			cmd.Env = append(os.Environ(), killStep+"="+step)
			out, err := cmd.CombinedOutput()
			status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if !ok || !status.Signaled() {
				t.Fatalf("the child was not killed: %v\n%s", err, out)
			}
			s := open(t, path)
			n := 0
			if err := s.List(t.Context(), func(i checkpoint.Info) error {
				n++
				_, err := checkpoint.GetBytes(t.Context(), s, i.Name, 1<<20)
				return err
			}); err != nil || (n == 1) != stands {
				t.Errorf("%d blobs stand, %v", n, err)
			}
			if _, err := checkpoint.PutBytes(t.Context(), s, killed); err != nil {
				t.Error(err)
			}
			if stands {
				return
			}
			if got := files(t, path); len(got) != 2 {
				t.Errorf("%v: want the blob and what the child left", got)
			}
			if err := s.sweep(time.Now().Add(-time.Hour)); err != nil || len(files(t, path)) != 2 {
				t.Errorf("a fresh temporary file is not left alone: %v", err)
			}
			if err := s.sweep(time.Now().Add(time.Hour)); err != nil || len(files(t, path)) != 1 {
				t.Errorf("an old temporary file stays: %v", err)
			}
		})
	}
}

// nobody is a user id without rights of its own.
const nobody = 65534

// A folder without write permission is told by name when it is opened, and without a path when a blob is written.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	base, err := os.MkdirTemp("", "readonly")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	path := filepath.Join(base, "a")
	name := put(t, open(t, path), "x")
	for _, at := range []string{base, path, filepath.Join(path, folder)} {
		if err := os.Chmod(at, 0o555); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 3)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, with its file system user, ends with the goroutine
		syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0)
		_, err := Open(filepath.Join(base, "other"))
		done <- err
		s, err := Open(path)
		if err != nil {
			done <- err
			done <- err
			return
		}
		_, err = checkpoint.PutBytes(context.Background(), s, []byte("y"))
		done <- err
		_, _, err = s.Get(context.Background(), name)
		done <- errors.Join(err, s.Close())
	}()
	if err := <-done; !codes.Has(err, codes.OutputUnwritable) || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(err.Error(), base) {
		t.Errorf("a new folder: %v", err)
	}
	if err := <-done; !codes.Has(err, codes.OutputUnwritable) || !strings.Contains(err.Error(), "permission denied") || strings.Contains(err.Error(), base) {
		t.Errorf("Put: %v", err)
	}
	if err := <-done; !codes.Has(err, codes.StoreUnavailable) || strings.Contains(err.Error(), base) {
		t.Errorf("Get of another user's file: %v", err)
	}
}
