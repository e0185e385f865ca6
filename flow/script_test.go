package flow_test

import (
	"errors"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

// The scripts in testdata/script are flows and what becomes of them: "lint" prints the errors or "ok", "plan" what people are shown,
// "document" the normal form. -rewrite writes them anew; read the difference.
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			p, err := flow.Parse("f", []byte(d.Input), nil)
			if err != nil {
				if !codes.Has(err, codes.FlowInvalid) {
					t.Errorf("%s: the error carries no code: %v", d.Pos, err)
				}
				return err.Error()
			}
			switch d.Cmd {
			case "lint":
				return "ok"
			case "plan":
				partitions := 1
				d.MaybeScanArgs(t, "partitions", &partitions)
				return p.Text(partitions)
			case "document":
				b, err := record.AppendJSON(nil, p.Document())
				if err != nil {
					t.Errorf("%s: %v", d.Pos, err)
				}
				return string(b)
			}
			t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
			return ""
		})
	})
}

// Errors come in the order of the file, each with a place in it.
func TestErrorsAreSorted(t *testing.T) {
	t.Parallel()
	_, err := flow.Parse("f", []byte("outputs: [x]\nflow: weir/1\nname: A\nid: 1\noperators: []\ntime: {unit: z}\n"), nil)
	var list *flow.Errors
	if !errors.As(err, &list) {
		t.Fatalf("error %v is no *flow.Errors", err)
	}
	for i, e := range list.List {
		if e.Line < 1 || e.Column < 1 || e.Message == "" || e.Cure == "" {
			t.Errorf("error %d lacks something: %+v", i, e)
		}
		if i > 0 && e.Line < list.List[i-1].Line {
			t.Errorf("error %d of line %d comes after line %d", i, e.Line, list.List[i-1].Line)
		}
	}
	if len(list.List) != 6 {
		t.Errorf("%d errors, want 6:\n%v", len(list.List), err)
	}
}
