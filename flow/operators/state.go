package operators

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A snapshot of a built-in operator is a version byte and then a body of big-endian numbers:
//
//	ema    01 | n uint32 | e float64       n values seen of the seed; e their sum, or the average once n is the period
//	sma    01 | n uint32 | n × float64     the window, oldest value first
//	last   01 | 00                         no value yet
//	last   01 | 01 | float64               the last value
const stateVersion = 1

// appendFloat appends the bits of f, so that a restored state is the same to the last bit.
func appendFloat(dst []byte, f float64) []byte {
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(f))
}

// body checks the version of a snapshot and returns what follows it.
func body(typ string, src []byte) ([]byte, error) {
	if len(src) == 0 {
		return nil, fmt.Errorf("operators: the state of %s is empty", typ)
	}
	if src[0] != stateVersion {
		return nil, fmt.Errorf("operators: the state of %s has version %d, this weir reads version %d", typ, src[0], stateVersion)
	}
	return src[1:], nil
}

// readFloat reads 8 bytes as a number that a state may hold.
func readFloat(typ string, src []byte) (float64, error) {
	f := math.Float64frombits(binary.BigEndian.Uint64(src))
	if !finite(f) {
		return 0, fmt.Errorf("operators: the state of %s holds a number that is not finite", typ)
	}
	return f, nil
}

// lengthError says that a snapshot is cut short, or longer than it can be.
func lengthError(typ string, got, want int) error {
	return fmt.Errorf("operators: the state of %s has %d bytes after its version, should have %d", typ, got, want)
}
