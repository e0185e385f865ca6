//go:build unix

package secretfile

import (
	"io/fs"
	"os"
	"syscall"
)

func byRoot(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid == 0 && os.Geteuid() != 0
}
