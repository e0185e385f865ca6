package flow_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// parse compiles a flow that must have no errors.
func parse(t *testing.T, src string) *flow.Plan {
	t.Helper()
	p, err := flow.Parse("flow.yaml", []byte(src), nil)
	if err != nil {
		t.Fatalf("refused:\n%v\n%s", err, src)
	}
	return p
}

func golden(t *testing.T) string {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("testdata", "golden.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}

// The fingerprint of the golden flow is frozen: a run that was started by one version of weir is resumed by the next.
func TestGoldenFlow(t *testing.T) {
	t.Parallel()
	p := parse(t, golden(t))
	const fingerprint = "sha256:b0185186f9b9ee6cb041c1d351bd2e2cfb7384aa94931a322fdb8c9f2759c4c4"
	if p.Fingerprint != fingerprint {
		t.Errorf("fingerprint %s, want %s", p.Fingerprint, fingerprint)
	}
	if len(p.Nodes) != 1 {
		t.Fatalf("%d nodes, want 1", len(p.Nodes))
	}
	n := p.Nodes[0]
	if n.Name != "ema3" || n.Type != "ema" || n.Field != 0 || n.From != -1 || n.Args.Int("period") != 3 || n.Args.Enum("gap") != "reject" || n.StateBytes <= 0 {
		t.Errorf("node %+v", n)
	}
	got := *p
	got.Fingerprint, got.Nodes = "", nil
	want := flow.Plan{
		Name: "instrument-1-ema", IDField: "event_id", KeyField: "instrument", TimeField: "event_time", RevisionField: "revision",
		TimeUnit: flow.RFC3339, SelectField: "instrument", SelectValues: []string{"1"},
		MaxFutureSkew: 24 * time.Hour, DedupeHorizon: time.Hour,
		Inputs: []string{"close"}, Outputs: []flow.Output{{Name: "ema3", Node: 0}},
		Limits: flow.Limits{IDs: 1_000_000, Keys: 100_000, Reorder: 1_000_000, Ticks: 1_000_000},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("plan %+v\nwant %+v", got, want)
	}
	op := n.New()
	var values []any
	for i := range 6 {
		v := op.Step(record.EventTime(i), operators.Number(float64(i+1)))
		if values = append(values, nil); v.OK {
			values[i] = v.F
		}
	}
	if want := []any{nil, nil, 2.0, 3.0, 4.0, 5.0}; !reflect.DeepEqual(values, want) {
		t.Errorf("values %v, want %v", values, want)
	}
}
