//go:build !linux

package bench

import "time"

var threadsSince = time.Now()

// threadTime is wall time where the CPU time of a thread is not to be had.
func threadTime() time.Duration { return time.Since(threadsSince) }
