package main

import (
	"os"
	"runtime"
	"syscall"
)

// signalThread sends a signal to the calling thread, which takes it before the call returns. A signal to the process might be taken by
// another thread, and this one run on for a moment.
func signalThread(s syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(syscall.Gettid()), uintptr(s))
}
