package devbroker_test

import (
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/devbroker"
)

// nobody is a user id without rights of its own.
const nobody = 65534

// asNobody runs fn with the file access of another user, also when the test runs as root, to whom permission bits mean nothing. The
// kernel keeps the file system user per thread, so it changes for this goroutine alone, and the thread ends with it.
func asNobody(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the runtime throws the thread away
		syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0)
		fn()
	}()
	<-done
}

func TestAReadOnlyFolderIsNamed(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "readonly")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{dir, dir + "/new"} {
		var got error
		asNobody(func() { _, got = devbroker.Start(devbroker.Config{DataDir: folder}) })
		wantCode(t, got, codes.StoreUnavailable, folder, "permission denied")
	}
}
