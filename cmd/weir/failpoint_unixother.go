//go:build unix && !linux

package main

import (
	"os"
	"syscall"
)

// signalThread sends a signal to the process. Another thread may take it, and this one run on for a moment.
func signalThread(s syscall.Signal) { _ = syscall.Kill(os.Getpid(), s) }
