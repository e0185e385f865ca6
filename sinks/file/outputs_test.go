package file_test

import (
	"fmt"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/file"
)

// TestOutputsAreCheckedBeforehand: the language refuses exactly the outputs that the sink would refuse when the run begins.
func TestOutputsAreCheckedBeforehand(t *testing.T) {
	t.Parallel()
	const text = `flow: weir/1
name: f
id: e
key: k
time: t
operators: [{name: a, type: last, input: x}]
outputs: [{name: close, from: a}, {name: %s, from: a}]
sinks: [{name: o, type: %s, folder: o%s}]
`
	refused := 0
	for typ, format := range map[string]file.Format{"jsonl": file.JSONLines, "csv": file.CSV, "parquet": file.Parquet} {
		for _, every := range []string{"", "1d", "12h", "15m", "10s"} {
			field := ""
			if every != "" {
				field = ", every: " + every
			}
			for _, name := range []string{
				"run", "partition", "row", "time", "key", "key_bytes", "event_id", "event_id_bytes", "date", "hour", "minute", "second", "Date", "HOUR", "Minute", "sEcond",
				"Key", "EVENT_ID", "Row", "Run", "Close", "values", "b", "year",
			} {
				_, lint := flow.Parse("f", fmt.Appendf(nil, text, name, typ, field), nil)
				cfg := file.Config{Folder: t.TempDir(), Format: format}
				if every != "" {
					var err error
					if cfg.Every, err = flow.ParseDuration(every); err != nil {
						t.Fatal(err)
					}
				}
				s, err := file.New(cfg)
				if err != nil {
					t.Fatal(err)
				}
				err = s.Probe(t.Context(), sinks.Target{RunID: "r", Outputs: []string{"close", name}, Partitions: []int32{0}})
				if (lint == nil) != (err == nil) {
					t.Errorf("%s, every %q, output %s: lint says %v, the sink %v", typ, every, name, lint, err)
				}
				if err != nil {
					refused++
					wants(t, err, codes.SinkInvalid, name)
				}
			}
		}
	}
	if refused == 0 {
		t.Error("nothing is refused")
	}
}
