package operators

import (
	"encoding/binary"
	"fmt"

	"github.com/weirstream/weir/record"
)

// maxEMAPeriod bounds the period of an EMA. Beyond it a new value weighs less than a millionth.
const maxEMAPeriod = 1_000_000

func emaType() Type {
	return Type{
		Name: "ema",
		Doc:  "Exponential moving average: seeded by the mean of the first `period` values, then `e += (x − e) · 2/(period+1)`. Null until the seed is full.",
		Params: []Param{
			{Name: "period", Kind: Int, Required: true, Min: 1, Max: maxEMAPeriod, Doc: "Number of values of the seed; the weight of a new value is 2/(period+1)."},
			gapParam(),
		},
		StateVersion: stateVersion,
		StateBytes:   func(Args) int { return 48 },
		New: func(a Args) (func() Operator, error) {
			period, hold := uint32(a.Int("period")), a.Enum("gap") == GapHold
			k := 2 / (float64(period) + 1)
			return func() Operator { return &ema{period: period, hold: hold, k: k} }, nil
		},
	}
}

// ema is an exponential moving average. While n < period, e is the sum of the n values of the seed so far (0 for none); from
// n == period on it is the average.
type ema struct {
	period uint32
	hold   bool
	k      float64

	n uint32
	e float64
}

// Step adds x. The seed is summed in order and divided once, as TA-Lib does.
func (o *ema) Step(_ record.EventTime, x Value) Value {
	if !present(x) {
		return o.gap()
	}
	if o.n < o.period {
		return o.seed(x.F)
	}
	e := o.e + float64((x.F-o.e)*o.k)
	if !finite(e) {
		return o.gap()
	}
	o.e = e
	return Number(e)
}

func (o *ema) seed(x float64) Value {
	sum := o.e + x
	if !finite(sum) {
		return o.gap()
	}
	o.n++
	if o.n < o.period {
		o.e = sum
		return Gap
	}
	o.e = sum / float64(o.period)
	return Number(o.e)
}

func (o *ema) gap() Value {
	if !o.hold {
		o.n, o.e = 0, 0
	}
	return Gap
}

// Snapshot appends 13 bytes.
func (o *ema) Snapshot(dst []byte) []byte {
	dst = append(dst, stateVersion)
	dst = binary.BigEndian.AppendUint32(dst, o.n)
	return appendFloat(dst, o.e)
}

// Restore takes what Snapshot wrote.
func (o *ema) Restore(src []byte) error {
	b, err := body("ema", src)
	if err != nil {
		return err
	}
	if len(b) != 12 {
		return lengthError("ema", len(b), 12)
	}
	n := binary.BigEndian.Uint32(b)
	if n > o.period {
		return fmt.Errorf("operators: the state of ema has seen %d values of a seed of %d", n, o.period)
	}
	e, err := readFloat("ema", b[4:])
	if err != nil {
		return err
	}
	if n == 0 && binary.BigEndian.Uint64(b[4:]) != 0 {
		return fmt.Errorf("operators: the state of ema has a sum (%v) of no values", e)
	}
	o.n, o.e = n, e
	return nil
}
