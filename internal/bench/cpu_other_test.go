//go:build !unix

package bench

import "time"

var started = time.Now()

// cpuTime is wall time where the CPU time is not to be had: ratios then suffer from what else runs.
func cpuTime() time.Duration { return time.Since(started) }
