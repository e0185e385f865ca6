package chclient

import (
	"bufio"
	"bytes"
	"testing"
)

// FuzzAnswers: whatever a server sends, reading it ends, takes memory by what has come, and gives rows of as many values as there are columns.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte{1, 0, 1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 1, 2, 1, 'x', 5, 'U', 'I', 'n', 't', '8', 7, 8, 5})
	f.Add([]byte{1, 0, 0, 1, 1, 1, 'x', 12, 'A', 'r', 'r', 'a', 'y', '(', 'U', 'I', 'n', 't', '8', ')', 1, 0, 0, 0, 0, 0, 0, 0, 9, 5})
	f.Add([]byte{1, 0, 0, 1, 1, 1, 'x', 16, 'N', 'u', 'l', 'l', 'a', 'b', 'l', 'e', '(', 'S', 't', 'r', 'i', 'n', 'g', ')', 0, 1, 'a', 5})
	f.Add([]byte{2, 60, 0, 0, 0, 1, 'n', 1, 'm', 0, 0})
	f.Add([]byte{3, 1, 2, 3, 6, 1, 2, 3, 0, 5, 1, 4, 5})
	f.Fuzz(func(t *testing.T, answer []byte) {
		c := &Conn{in: reader{Reader: bufio.NewReader(bytes.NewReader(answer))}}
		width := -1
		err := c.answers(func() (bool, error) {
			width = -1
			return false, c.in.block(func(row []any) error {
				if width >= 0 && len(row) != width {
					t.Errorf("a row of %d values after one of %d", len(row), width)
				}
				width = len(row)
				return nil
			})
		})
		if err == nil && c.in.err != nil {
			t.Errorf("no error, where reading had %v", c.in.err)
		}
	})
}
