package drill

import "syscall"

// dieTogether lets the system kill the process, stopped or not, when the thread that started it ends, which is with this process: no thread of the
// drill ends before, since none is locked to a goroutine.
func dieTogether(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
