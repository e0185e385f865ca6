package controltest

import (
	"testing"

	"github.com/weirstream/weir/control"
)

func TestMemoryConforms(t *testing.T) {
	t.Parallel()
	Journal(t, func(*testing.T) func() control.Journal {
		m := NewMemory()
		return func() control.Journal { return m }
	})
}
