package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
)

func TestConforms(t *testing.T) {
	t.Parallel()
	controltest.Journal(t, func(t *testing.T) func() control.Journal {
		path := filepath.Join(t.TempDir(), "weir.db")
		return func() control.Journal { return open(t, Config{Path: path}) }
	})
}
