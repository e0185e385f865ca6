//go:build unix

package kafkatest

import (
	"os/exec"
	"strconv"
	"syscall"
)

// watch starts a shell that ends the broker and removes its folder when this process ends without doing so: its standard input is a pipe whose
// other end only this process has.
func watch(pid int, dir string) (unwatch func(), err error) {
	dog := exec.Command("/bin/sh", "-c", `trap "" INT TERM HUP; if read -r word && [ "$word" = done ]; then exit 0; fi; kill -KILL "$1"; sleep 1; rm -rf "$2"`,
		"kafkatest-watchdog", strconv.Itoa(pid), dir)
	dog.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := dog.StdinPipe()
	if err != nil {
		return func() {}, err
	}
	if err := dog.Start(); err != nil {
		return func() {}, err
	}
	return func() {
		_, _ = in.Write([]byte("done\n")) // a watchdog that is gone needs no word
		_ = in.Close()
		_ = dog.Wait()
	}, nil
}
