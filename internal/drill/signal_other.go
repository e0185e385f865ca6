//go:build !unix

package drill

import (
	"os"
	"os/exec"

	"github.com/weirstream/weir/codes"
)

var sigStop, sigCont, sigTerm os.Signal = os.Kill, os.Kill, os.Kill

// Supported says whether this system has what the drill needs.
func Supported() error {
	return codes.New(codes.ConfigInvalid, "the drill works on Unix only: this system has no signal that stops a process")
}

func detach(*exec.Cmd) {}

func isStopped(int) bool { return false }
