package record

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// Position is where a partition is read: a Kafka offset or a Kinesis sequence number (56 digits). It is an unsigned integer of
// 192 bits, comparable with ==, ordered by Cmp, and always written as a decimal, never as a float.
// The zero value is the start of a dense log (offset 0).
type Position struct{ hi, mid, lo uint64 }

// positionBytes is the size of an encoded position.
const positionBytes = 24

// maxPosition is 2^192 - 1.
var maxPosition = Position{math.MaxUint64, math.MaxUint64, math.MaxUint64}

// ErrPosition says that encoded bytes are too short to hold a position.
var ErrPosition = errors.New("record: a position takes 24 bytes")

// Offset is the position of a Kafka offset. n must not be negative.
func Offset(n int64) Position { return Position{lo: uint64(n)} }

// ParsePosition reads a decimal of up to 58 digits, at most 2^192 - 1: digits only, no sign, no leading zeros.
func ParsePosition(s string) (Position, error) {
	if s == "" {
		return Position{}, errors.New("record: a position is empty; want decimal digits")
	}
	if s[0] == '0' && len(s) > 1 {
		return Position{}, fmt.Errorf("record: position %.80q has leading zeros", s)
	}
	var p Position
	for i := range len(s) {
		d := s[i] - '0'
		if d > 9 {
			return Position{}, fmt.Errorf("record: position %.80q is not made of decimal digits", s)
		}
		var overflow bool
		if p, overflow = p.timesTenPlus(uint64(d)); overflow {
			return Position{}, fmt.Errorf("record: position %.80q is larger than 2^192 - 1", s)
		}
	}
	return p, nil
}

func (p Position) timesTenPlus(d uint64) (q Position, overflow bool) {
	carryLo, lo := bits.Mul64(p.lo, 10)
	carryMid, mid := bits.Mul64(p.mid, 10)
	carryHi, hi := bits.Mul64(p.hi, 10)
	var c uint64
	lo, c = bits.Add64(lo, d, 0)
	mid, c = bits.Add64(mid, carryLo, c)
	hi, c = bits.Add64(hi, carryMid, c)
	return Position{hi, mid, lo}, carryHi+c != 0
}

// String is the decimal of p, without leading zeros.
func (p Position) String() string {
	const chunk = 1e19 // the largest power of ten in 64 bits: 19 digits at a time
	var buf [58]byte
	i := len(buf)
	for {
		var rest uint64
		p.hi, rest = bits.Div64(0, p.hi, chunk)
		p.mid, rest = bits.Div64(rest, p.mid, chunk)
		p.lo, rest = bits.Div64(rest, p.lo, chunk)
		last := p == Position{}
		for n := 0; n < 19 && (!last || rest != 0 || i == len(buf)); n++ {
			i--
			buf[i] = '0' + byte(rest%10)
			rest /= 10
		}
		if last {
			return string(buf[i:])
		}
	}
}

// Cmp is -1 when p is before q, 0 when they are equal and +1 when p is after q.
func (p Position) Cmp(q Position) int {
	if c := cmp.Compare(p.hi, q.hi); c != 0 {
		return c
	}
	if c := cmp.Compare(p.mid, q.mid); c != 0 {
		return c
	}
	return cmp.Compare(p.lo, q.lo)
}

// Int64 is p as a Kafka offset; ok is false when it does not fit.
func (p Position) Int64() (n int64, ok bool) {
	if p.hi != 0 || p.mid != 0 || p.lo > math.MaxInt64 {
		return 0, false
	}
	return int64(p.lo), true
}

// Next is p + 1. The last position, 2^192 - 1, is its own successor: no log of ours comes near it, and a caller needs no error path.
func (p Position) Next() Position {
	if p == maxPosition {
		return p
	}
	var c uint64
	p.lo, c = bits.Add64(p.lo, 1, 0)
	p.mid, c = bits.Add64(p.mid, 0, c)
	p.hi += c
	return p
}

// Prev is p - 1. The first position, 0, is its own predecessor.
func (p Position) Prev() Position {
	if p == (Position{}) {
		return p
	}
	var b uint64
	p.lo, b = bits.Sub64(p.lo, 1, 0)
	p.mid, b = bits.Sub64(p.mid, 0, b)
	p.hi -= b
	return p
}

// AppendBinary appends p as 24 bytes big endian, so that bytes sort as positions do. The error is always nil.
func (p Position) AppendBinary(dst []byte) ([]byte, error) {
	dst = binary.BigEndian.AppendUint64(dst, p.hi)
	dst = binary.BigEndian.AppendUint64(dst, p.mid)
	return binary.BigEndian.AppendUint64(dst, p.lo), nil
}

// DecodePosition reads what AppendBinary wrote and returns what follows it. The error is ErrPosition.
func DecodePosition(b []byte) (p Position, rest []byte, err error) {
	if len(b) < positionBytes {
		return Position{}, nil, ErrPosition
	}
	p.hi = binary.BigEndian.Uint64(b)
	p.mid = binary.BigEndian.Uint64(b[8:])
	p.lo = binary.BigEndian.Uint64(b[16:])
	return p, b[positionBytes:], nil
}
