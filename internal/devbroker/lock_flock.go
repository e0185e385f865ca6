//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package devbroker

import (
	"os"
	"syscall"
)

// tryLock takes an exclusive lock that ends with the process, or fails at once.
func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
