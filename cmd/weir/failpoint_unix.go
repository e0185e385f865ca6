//go:build unix

package main

import (
	"os"
	"syscall"
)

func canSignalItself() error { return nil }

// killItself ends the process as SIGKILL does: no handler, no clean-up, no flush.
func killItself() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}

// stopItself stops every thread of the process until SIGCONT. It is called where the process is to stand still: the calling thread does not
// return to the program in between.
func stopItself() { signalThread(syscall.SIGSTOP) }
