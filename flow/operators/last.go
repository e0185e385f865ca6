package operators

import (
	"errors"

	"github.com/weirstream/weir/record"
)

func lastType() Type {
	return Type{
		Name:         "last",
		Doc:          "The last value that was not a gap: it is carried over gaps. Null until there was one.",
		StateVersion: stateVersion,
		StateBytes:   func(Args) int { return 32 },
		New: func(Args) (func() Operator, error) {
			return func() Operator { return &last{} }, nil
		},
	}
}

// last carries the last present value over gaps. It has no gap policy: carrying over is what it is for.
type last struct{ v Value }

// Step keeps x unless it is a gap, and returns what it keeps.
func (o *last) Step(_ record.EventTime, x Value) Value {
	if present(x) {
		o.v = x
	}
	return o.v
}

// Snapshot appends 2 or 10 bytes.
func (o *last) Snapshot(dst []byte) []byte {
	if !o.v.OK {
		return append(dst, stateVersion, 0)
	}
	return appendFloat(append(dst, stateVersion, 1), o.v.F)
}

// Restore takes what Snapshot wrote.
func (o *last) Restore(src []byte) error {
	b, err := body("last", src)
	if err != nil {
		return err
	}
	switch {
	case len(b) == 1 && b[0] == 0:
		o.v = Gap
		return nil
	case len(b) == 9 && b[0] == 1:
		f, err := readFloat("last", b[1:])
		if err != nil {
			return err
		}
		o.v = Number(f)
		return nil
	}
	return errors.New("operators: the state of last is damaged: neither empty nor one value")
}
