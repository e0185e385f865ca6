package weir_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/sinks/emit"
	"github.com/weirstream/weir/sources/snapshot"
)

// A flow run over a file: no broker, no store.
func Example() {
	dir, err := os.MkdirTemp("", "weir-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	events := filepath.Join(dir, "events.csv")
	if err := os.WriteFile(events, []byte(`event_id,instrument,event_time,close
a,1,2026-01-05T14:30:00Z,1
b,1,2026-01-05T14:31:00Z,2
c,1,2026-01-05T14:32:00Z,3
d,1,2026-01-05T14:33:00Z,
e,1,2026-01-05T14:34:00Z,5
`), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	plan, err := flow.Parse("closing.yaml", []byte(`
flow: weir/1
name: closing
id: event_id
key: instrument
time: event_time
operators:
  - {name: mean, type: sma, input: close, period: 2, gap: hold}
outputs: [mean]
`), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	doc, err := batch.Run(context.Background(), batch.Config{
		Plan: plan, Mode: emit.ModeBatch,
		Source: snapshot.New(snapshot.Config{Path: events, Fields: snapshot.FieldsOf(plan)}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(doc.Events, doc.Values)
	fmt.Println(doc.ValuesHash)
	// Output:
	// [a b c d e] [<nil> 1.5 2.5 <nil> 4]
	// sha256:dfb3cb0402a120ebaab919cf1ca5639c63ae6c92083e391ea673f37bda268baa
}
