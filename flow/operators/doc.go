// Package operators holds the operators of a flow and the interface by which a user adds an own one.
//
// An [Operator] is the state of one operator for one key. It takes one value per tick of the flow's clock and gives one back; a
// value may be a gap. A [Type] is what a flow file names: its parameters, with defaults and bounds, and how to make the state of
// a new key. A [Registry] is the set of types that a flow may name. It is an explicit value and nothing registers itself:
//
//	reg := operators.Builtin()
//	err := reg.Register(operators.Type{Name: "delta", …})
//	plan, err := flow.Parse("delta.yaml", src, reg)
//
// # What an operator promises
//
//   - Deterministic: what Step gives depends on the calls so far and on nothing else.
//   - Recoverable: a state that was restored from a snapshot goes on exactly as the one that was saved, and its own snapshot is
//     the same bytes. Restore refuses what Snapshot did not write.
//   - Finite: NaN and infinities never leave an operator. The built-in types see to it themselves; the output of any other type
//     is checked after each step, and a non-finite one becomes a gap.
//   - Small: Step allocates nothing, and the state of one key stays within Type.StateBytes.
//
// # Overflow in the built-in types
//
// A value can be so large that a sum or a difference leaves the range of binary64. Such a value is treated exactly as if a gap had
// stood in its place: the output is a gap, and the gap policy decides what becomes of the state. A state therefore never holds a
// non-finite number, and one absurd value cannot poison a key for ever.
package operators
