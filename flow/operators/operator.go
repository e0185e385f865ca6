package operators

import "github.com/weirstream/weir/record"

// Value is what flows between operators: a finite binary64 number, or a gap (OK false), which JSON shows as null.
type Value struct {
	F  float64
	OK bool
}

// Gap is the absent value.
var Gap = Value{}

// Number is a present value.
func Number(f float64) Value { return Value{F: f, OK: true} }

// Operator is the state of one operator for one key. Step is called in (event time, event id) order and must depend on nothing
// but the calls so far: no clock, no randomness, no map iteration. Products are wrapped (float64(a*b) + c) so that no platform
// fuses them.
type Operator interface {
	// Step takes the value at one tick of the flow's clock and returns the operator's value there.
	Step(at record.EventTime, x Value) Value
	// Snapshot appends the state to dst. Equal states give equal bytes.
	Snapshot(dst []byte) []byte
	// Restore replaces the state by what Snapshot wrote. A wrong length or version is an error, never a fresh start, and leaves
	// the state as it was.
	Restore(src []byte) error
}

// finite says whether f is neither NaN nor an infinity: only for those is the difference with itself not zero.
func finite(f float64) bool { return f-f == 0 }

// present says whether a value is a number that can be computed with.
func present(x Value) bool { return x.OK && finite(x.F) }

// guarded keeps non-finite values from leaving an operator that may not see to it itself.
type guarded struct{ Operator }

// Step turns a non-finite output into a gap.
func (g guarded) Step(at record.EventTime, x Value) Value {
	y := g.Operator.Step(at, x)
	if !present(y) {
		return Gap
	}
	return y
}
