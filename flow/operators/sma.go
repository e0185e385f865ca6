package operators

import (
	"encoding/binary"
	"fmt"

	"github.com/weirstream/weir/record"
)

// maxSMAPeriod bounds the window of an SMA: a step sums the whole of it.
const maxSMAPeriod = 10_000

func smaType() Type {
	return Type{
		Name: "sma",
		Doc:  "Simple moving average: the mean of the last `period` values, summed from the oldest to the newest at every step. Null until the window is full.",
		Params: []Param{
			{Name: "period", Kind: Int, Required: true, Min: 1, Max: maxSMAPeriod, Doc: "Number of values in the window."},
			gapParam(),
		},
		StateVersion: stateVersion,
		StateBytes:   func(a Args) int { return 80 + 8*int(a.Int("period")) },
		New: func(a Args) (func() Operator, error) {
			period, hold := int(a.Int("period")), a.Enum("gap") == GapHold
			return func() Operator { return &sma{ring: make([]float64, period), hold: hold} }, nil
		},
	}
}

// sma is a simple moving average. The window is summed anew at every step: a running sum would carry the rounding of every value
// that ever passed, so that two states with one window could differ.
type sma struct {
	// ring holds n values; the oldest stands at head.
	ring    []float64
	head, n int
	hold    bool
}

// Step adds x.
func (o *sma) Step(_ record.EventTime, x Value) Value {
	if !present(x) {
		return o.gap()
	}
	if o.n+1 < len(o.ring) {
		o.push(x.F)
		return Gap
	}
	mean := o.sumWith(x.F) / float64(len(o.ring))
	if !finite(mean) {
		return o.gap()
	}
	o.push(x.F)
	return Number(mean)
}

// sumWith is the sum of the newest period−1 values and x, from the oldest to the newest.
func (o *sma) sumWith(x float64) float64 {
	sum, at := 0.0, o.head
	if o.n == len(o.ring) {
		at = o.next(at)
	}
	for range len(o.ring) - 1 {
		sum += o.ring[at]
		at = o.next(at)
	}
	return sum + x
}

// push takes x in, and the oldest value out when the window is full.
func (o *sma) push(x float64) {
	if o.n == len(o.ring) {
		o.ring[o.head] = x
		o.head = o.next(o.head)
		return
	}
	o.ring[(o.head+o.n)%len(o.ring)] = x
	o.n++
}

func (o *sma) next(at int) int {
	if at++; at == len(o.ring) {
		return 0
	}
	return at
}

func (o *sma) gap() Value {
	if !o.hold {
		o.head, o.n = 0, 0
	}
	return Gap
}

// Snapshot appends 5 bytes and 8 for each value in the window. Where the window stands in the ring is not part of it.
func (o *sma) Snapshot(dst []byte) []byte {
	dst = append(dst, stateVersion)
	dst = binary.BigEndian.AppendUint32(dst, uint32(o.n))
	at := o.head
	for range o.n {
		dst = appendFloat(dst, o.ring[at])
		at = o.next(at)
	}
	return dst
}

// Restore takes what Snapshot wrote.
func (o *sma) Restore(src []byte) error {
	b, err := body("sma", src)
	if err != nil {
		return err
	}
	if len(b) < 4 {
		return lengthError("sma", len(b), 4)
	}
	n := int64(binary.BigEndian.Uint32(b))
	if n > int64(len(o.ring)) {
		return fmt.Errorf("operators: the state of sma has %d values in a window of %d", n, len(o.ring))
	}
	b = b[4:]
	if len(b) != int(n)*8 {
		return lengthError("sma", len(b)+4, int(n)*8+4)
	}
	ring := make([]float64, len(o.ring))
	for i := range int(n) {
		if ring[i], err = readFloat("sma", b[i*8:]); err != nil {
			return err
		}
	}
	o.ring, o.head, o.n = ring, 0, int(n)
	return nil
}
