package bench

import (
	"syscall"
	"time"
)

// rusageThread is RUSAGE_THREAD.
const rusageThread = 1

// threadTime is the CPU time that the calling thread has used so far.
func threadTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
