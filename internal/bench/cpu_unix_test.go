//go:build unix

package bench

import (
	"syscall"
	"time"
)

// cpuTime is the CPU time that the process has used so far, all threads together.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
