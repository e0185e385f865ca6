//go:build unix && !linux

package drill

import "syscall"

// dieTogether does nothing: only Linux kills a process with the one that started it.
func dieTogether(*syscall.SysProcAttr) {}
