package drill

import (
	"os"
	"path/filepath"

	"github.com/weirstream/weir/codes"
)

const (
	folderPrefix = "weir-drill-"
	// runningFile is locked as long as the drill of a folder runs. A folder without it is to be kept, or is none of ours.
	runningFile = "running"
)

// Folder makes a folder for a drill, and clears away what drills have left that were killed. remove removes the folder and may be called more than
// once; it does nothing when the folder is to be kept.
func Folder(keep bool) (dir string, remove func(), err error) {
	removeDead(os.TempDir())
	if dir, err = os.MkdirTemp("", folderPrefix); err != nil {
		return "", nil, codes.New(codes.OutputUnwritable, "a temporary folder: %w", err)
	}
	if keep {
		return dir, func() {}, nil
	}
	running, err := lockFile(filepath.Join(dir, runningFile), os.O_CREATE|os.O_EXCL)
	if err != nil {
		_ = os.RemoveAll(dir) // the reason says more
		return "", nil, codes.New(codes.OutputUnwritable, "the folder of the drill: %w", err)
	}
	return dir, func() {
		_ = os.RemoveAll(dir) // what cannot be removed is cleared away by the next drill
		_ = running.Close()
	}, nil
}

// removeDead removes the folders of drills that are gone: those whose file can be locked. What cannot be looked at, or is somebody else's, stays.
func removeDead(parent string) {
	all, err := filepath.Glob(filepath.Join(parent, folderPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range all {
		if !isOwnFolder(dir) {
			continue
		}
		if running, err := lockFile(filepath.Join(dir, runningFile), 0); err == nil {
			_ = os.RemoveAll(dir)
			_ = running.Close()
		}
	}
}
