package flow_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// All errors of a file come at once.
func ExampleParse() {
	_, err := flow.Parse("flow.yaml", []byte(`flow: weir/1
name: closing-ema
id: event_id
key: instrument
time: {field: event_time, unit: seconds}
latenes: 5s
operators:
  - {name: ema3, type: ema, input: close, period: 0}
outputs: [em3]
`), nil)
	fmt.Println(err)
	// Output:
	// flow.yaml:5:33: time.unit: must be one of rfc3339, s, ms, us, ns, is "seconds" (known: rfc3339, s, ms, us, ns)
	// flow.yaml:6:1: latenes: is not a field of the flow language here (did you mean lateness?)
	// flow.yaml:8:51: operators[0].period: must be an integer from 1 to 1000000, is 0 (write a number within the bounds)
	// flow.yaml:9:11: outputs[0]: there is no operator "em3" (did you mean ema3?; for a field as it is, add an operator of type last)
}

// delta is an operator of one's own: how much a value differs from the one before.
type delta struct {
	threshold float64
	before    operators.Value
}

// Step gives the difference, and a gap when there is nothing to compare with or the difference is below the threshold.
func (d *delta) Step(_ record.EventTime, x operators.Value) operators.Value {
	before := d.before
	d.before = x
	if !x.OK || !before.OK || math.Abs(x.F-before.F) < d.threshold {
		return operators.Gap
	}
	return operators.Number(x.F - before.F)
}

// Snapshot writes a version, whether there is a value, and the value.
func (d *delta) Snapshot(dst []byte) []byte {
	if !d.before.OK {
		return append(dst, 1, 0)
	}
	return binary.BigEndian.AppendUint64(append(dst, 1, 1), math.Float64bits(d.before.F))
}

// Restore takes what Snapshot wrote and nothing else.
func (d *delta) Restore(src []byte) error {
	switch {
	case len(src) == 2 && src[0] == 1 && src[1] == 0:
		d.before = operators.Gap
	case len(src) == 10 && src[0] == 1 && src[1] == 1:
		d.before = operators.Number(math.Float64frombits(binary.BigEndian.Uint64(src[2:])))
	default:
		return errors.New("the state of delta is damaged")
	}
	return nil
}

// A user registers an operator of his own; flows can then name it, with its parameters checked.
func Example_ownOperator() {
	reg := operators.Builtin()
	err := reg.Register(operators.Type{
		Name: "delta",
		Doc:  "Difference to the value before.",
		Params: []operators.Param{
			{Name: "threshold", Kind: operators.Float, Default: 0.0, Min: 0.0, Doc: "Smaller differences are gaps."},
		},
		StateVersion: 1,
		StateBytes:   func(operators.Args) int { return 48 },
		New: func(a operators.Args) (func() operators.Operator, error) {
			threshold := a.Float("threshold")
			return func() operators.Operator { return &delta{threshold: threshold} }, nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := flow.Parse("moves.yaml", []byte(`
flow: weir/1
name: moves
id: event_id
key: instrument
time: event_time
operators:
  - {name: smooth, type: ema, input: close, period: 2}
  - {name: move, type: delta, input: {operator: smooth}, threshold: 0.5}
outputs: [move]
`), reg)
	if err != nil {
		fmt.Println(err)
		return
	}
	// What the engine does at each tick of one key: every node in order, each on what it reads.
	states := make([]operators.Operator, len(plan.Nodes))
	for i, n := range plan.Nodes {
		states[i] = n.New()
	}
	values := make([]operators.Value, len(plan.Nodes))
	for _, close := range []float64{10, 12, 14, 14.1} {
		for i, n := range plan.Nodes {
			x := operators.Number(close)
			if n.From >= 0 {
				x = values[n.From]
			}
			values[i] = states[i].Step(0, x)
		}
		if move := values[plan.Outputs[0].Node]; move.OK {
			fmt.Printf("%.2f\n", move.F)
		} else {
			fmt.Println("null")
		}
	}
	// Output:
	// null
	// null
	// 2.00
	// 0.73
}
