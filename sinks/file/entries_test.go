package file_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/weirstream/weir/sinks/file"
	"github.com/weirstream/weir/sinks/sinktest"
)

// TestEntries: late events are files of JSON Lines as rows are.
func TestEntries(t *testing.T) {
	sinktest.RunEntries(t, func(t testing.TB) sinktest.Place {
		return place(t, file.Config{}, func(t testing.TB, _ string, text []byte) (out []sinktest.Seen) {
			for line := range bytes.Lines(text) {
				var head struct{ Partition, Entry int64 }
				if err := json.Unmarshal(line, &head); err != nil {
					t.Fatal(err)
				}
				out = append(out, sinktest.Seen{Partition: int32(head.Partition), Number: head.Entry, Text: string(bytes.TrimSuffix(line, []byte("\n")))})
			}
			return out
		})
	})
}
