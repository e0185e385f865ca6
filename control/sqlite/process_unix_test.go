//go:build unix

package sqlite

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// killSelf ends the process as a power switch would: no deferred call, no flush.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until it arrives
}

func killAfter(micros int64) {
	time.AfterFunc(time.Duration(micros)*time.Microsecond, killSelf)
}

func wasKilled(err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// limitFiles sets the largest size of a file for this process and returns what lifts the limit; nil for no limit.
func limitFiles(size uint64) (lift func()) {
	if size == 0 {
		return nil
	}
	signal.Ignore(syscall.SIGXFSZ) // a write then fails with EFBIG
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		panic(err)
	}
	set := func(limit syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			panic(err)
		}
	}
	limited := old
	limited.Cur = size
	set(limited)
	return func() { set(old) }
}
