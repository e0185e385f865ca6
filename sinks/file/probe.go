package file

import (
	"context"
	"os"

	"github.com/weirstream/weir/sinks"
)

var _ sinks.Prober = (*Sink)(nil)

// Probe implements sinks.Prober: the outputs fit, the folder is there and takes a file, which is removed again.
func (s *Sink) Probe(_ context.Context, target sinks.Target) error {
	if err := s.fits(target); err != nil {
		return err
	}
	if err := usable(s.cfg.Folder); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.cfg.Folder, temporary+"probe-")
	if err != nil {
		return unwritable(s.cfg.Folder, err)
	}
	_ = f.Close() // nothing was written
	return os.Remove(f.Name())
}
