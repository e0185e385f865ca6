package worker

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
)

const (
	scratchPrefix = "worker-"
	// abandonedScratch is the age from which a folder that nobody touches is a dead worker's. A live one touches its own with every
	// look for orphans.
	abandonedScratch = time.Hour
)

// openScratch makes a worker's own folder and removes those of dead workers.
func openScratch(at string) (string, error) {
	unwritable := func(err error) error {
		return codes.New(codes.OutputUnwritable, "the scratch folder %s cannot be used: %w", at, checkpoint.Bare(err))
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		return "", unwritable(err)
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return "", unwritable(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.IsDir() && strings.HasPrefix(e.Name(), scratchPrefix) && time.Since(info.ModTime()) > abandonedScratch {
			_ = os.RemoveAll(filepath.Join(at, e.Name())) // another worker may be at it too
		}
	}
	own, err := os.MkdirTemp(at, scratchPrefix)
	if err != nil {
		return "", unwritable(err)
	}
	return own, nil
}

// touchScratch says that this worker lives.
func (w *worker) touchScratch() {
	now := time.Now()
	if err := os.Chtimes(w.scratch, now, now); err != nil {
		w.Logger.Warn("the scratch folder cannot be touched", "error", checkpoint.Bare(err))
	}
}

func (w *worker) closeScratch() { _ = os.RemoveAll(w.scratch) } // the next worker removes what is left
