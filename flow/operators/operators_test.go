package operators_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// gap stands for a gap in the tables below, where every other number is a value.
var gap = math.NaN()

// compile makes the constructor of a built-in type.
func compile(t testing.TB, typ string, params map[string]any) func() operators.Operator {
	t.Helper()
	ty, ok := operators.Builtin().Lookup(typ)
	if !ok {
		t.Fatalf("no type %s", typ)
	}
	args, err := ty.Args(params)
	if err != nil {
		t.Fatalf("%s%v: %v", typ, params, err)
	}
	fresh, err := ty.Compile(args)
	if err != nil {
		t.Fatalf("%s%v: %v", typ, params, err)
	}
	return fresh
}

// value reads a number of the tables.
func value(f float64) operators.Value {
	if math.IsNaN(f) {
		return operators.Gap
	}
	return operators.Number(f)
}

// run steps op through the inputs.
func run(op operators.Operator, in []float64) []operators.Value {
	out := make([]operators.Value, len(in))
	for i, x := range in {
		out[i] = op.Step(record.EventTime(i), value(x))
	}
	return out
}

// same compares two values to the last bit.
func same(a, b operators.Value) bool {
	return a.OK == b.OK && math.Float64bits(a.F) == math.Float64bits(b.F)
}

func period(n int64, policy string) map[string]any {
	return map[string]any{"period": n, "gap": policy}
}

func TestSteps(t *testing.T) {
	t.Parallel()
	const huge = math.MaxFloat64
	inf := math.Inf(1)
	for _, c := range []struct {
		name, typ string
		params    map[string]any
		in, want  []float64
	}{
		{"golden", "ema", period(3, "reject"), []float64{1, 2, 3, 4, 5, 6}, []float64{gap, gap, 2, 3, 4, 5}},
		{"period 1 follows", "ema", period(1, "reject"), []float64{1, 2, -8, 0.5}, []float64{1, 2, -8, 0.5}},
		{"weight two fifths", "ema", period(4, "reject"), []float64{10, 20, 30, 40, 50, 100, 11}, []float64{gap, gap, gap, 25, 35, 61, 41}},
		{"dyadic", "ema", period(3, "reject"), []float64{22.25, 22.5, 22.75, 21, 24.5, 24.5}, []float64{gap, gap, 22.5, 21.75, 23.125, 23.8125}},
		{"gap in the seed, reject", "ema", period(3, "reject"), []float64{1, 2, gap, 3, 4, 5, 6}, []float64{gap, gap, gap, gap, gap, 4, 5}},
		{"gap in the seed, hold", "ema", period(3, "hold"), []float64{1, 2, gap, 3, 4, gap, 5}, []float64{gap, gap, gap, 2, 3, gap, 4}},
		{"gap after the seed, reject", "ema", period(2, "reject"), []float64{1, 3, gap, 10, 20}, []float64{gap, 2, gap, gap, 15}},
		{"sum of the seed overflows, reject", "ema", period(2, "reject"), []float64{huge, huge, 1, 3}, []float64{gap, gap, gap, 2}},
		{"sum of the seed overflows, hold", "ema", period(2, "hold"), []float64{huge, huge, -huge}, []float64{gap, gap, 0}},
		{"difference overflows, reject", "ema", period(1, "reject"), []float64{huge, -huge, 7}, []float64{huge, gap, 7}},
		{"difference overflows, hold", "ema", period(1, "hold"), []float64{huge, -huge, huge}, []float64{huge, gap, huge}},
		{"window", "sma", period(3, "reject"), []float64{1, 2, 6, 4, 5, 0}, []float64{gap, gap, 3, 4, 5, 3}},
		{"period 1 repeats", "sma", period(1, "reject"), []float64{3, gap, -4}, []float64{3, gap, -4}},
		{"gap, reject", "sma", period(2, "reject"), []float64{1, 3, gap, 5, 7}, []float64{gap, 2, gap, gap, 6}},
		{"gap, hold", "sma", period(2, "hold"), []float64{1, 3, gap, 5, gap, 7}, []float64{gap, 2, gap, 4, gap, 6}},
		{"gap while filling, hold", "sma", period(3, "hold"), []float64{1, gap, 2, 6}, []float64{gap, gap, gap, 3}},
		{"sum overflows, reject", "sma", period(2, "reject"), []float64{huge, huge, 2, 4}, []float64{gap, gap, gap, 3}},
		{"sum overflows, hold", "sma", period(2, "hold"), []float64{1, huge, huge, -huge}, []float64{gap, huge / 2, gap, 0}},
		{"oldest to newest", "sma", period(3, "reject"), []float64{1e16, 1, 1, -1e16, 1}, []float64{gap, gap, 1e16 / 3, (2 - 1e16) / 3, -1e16 / 3}},
		{"carried over gaps", "last", nil, []float64{gap, 1, gap, gap, 2, gap}, []float64{gap, 1, 1, 1, 2, 2}},
		{"not finite is a gap", "last", nil, []float64{1, inf, -inf}, []float64{1, 1, 1}},
		{"not finite is a gap", "ema", period(1, "hold"), []float64{1, inf, 3}, []float64{1, gap, 3}},
		{"not finite is a gap", "sma", period(1, "hold"), []float64{1, -inf, 3}, []float64{1, gap, 3}},
	} {
		t.Run(c.typ+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			for i, got := range run(compile(t, c.typ, c.params)(), c.in) {
				if !same(got, value(c.want[i])) {
					t.Errorf("step %d (%v): %v, want %v", i, c.in[i], got, c.want[i])
				}
			}
		})
	}
}

// The value that must never come back as a result: three passes over the same six events on one state.
func TestEMAThirdPass(t *testing.T) {
	t.Parallel()
	op := compile(t, "ema", period(3, "reject"))()
	var got []operators.Value
	for range 3 {
		got = run(op, []float64{1, 2, 3, 4, 5, 6})
	}
	for i, want := range []float64{3.046875, 2.5234375, 2.76171875, 3.380859375, 4.1904296875, 5.09521484375} {
		if !same(got[i], operators.Number(want)) {
			t.Errorf("third pass, step %d: %v, want %v", i, got[i], want)
		}
	}
}

// Against the definition in exact arithmetic: seed by the mean, then e += (x − e)·2/(period+1).
func TestEMAAgainstExactArithmetic(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(11, 1))
	for _, n := range []int64{1, 2, 3, 5, 9, 10, 14, 26, 200} {
		op := compile(t, "ema", period(n, "reject"))()
		e, weight := new(big.Rat), big.NewRat(2, n+1)
		for i := range 3 * n {
			f := 90 + 20*rng.Float64()
			x := new(big.Rat).SetFloat64(f)
			if i < n {
				e.Add(e, x.Quo(x, big.NewRat(n, 1)))
			} else {
				// The exact average is carried on from its nearest float, or its digits would double at every step.
				step := x.Sub(x, e)
				e.Add(e, step.Mul(step, weight))
			}
			near, _ := e.Float64()
			if i >= n-1 {
				e.SetFloat64(near)
			}
			got := op.Step(record.EventTime(i), operators.Number(f))
			if got.OK != (i >= n-1) {
				t.Fatalf("period %d, step %d: present %v", n, i, got.OK)
			}
			if got.OK && math.Abs(got.F-near) > 1e-12*near {
				t.Fatalf("seed 11/1, period %d, step %d: %v, exactly %v", n, i, got.F, near)
			}
		}
	}
}

// kinds are operators whose states the properties below are checked on.
var kinds = []struct {
	typ    string
	params map[string]any
}{
	{"ema", period(1, "reject")}, {"ema", period(3, "reject")}, {"ema", period(3, "hold")}, {"ema", period(40, "hold")},
	{"sma", period(1, "hold")}, {"sma", period(3, "reject")}, {"sma", period(3, "hold")}, {"sma", period(40, "hold")},
	{"last", nil},
}

// randomInput is mostly a price, sometimes a gap, zero of either sign, or a number near the end of the range.
func randomInput(rng *rand.Rand) operators.Value {
	switch rng.IntN(12) {
	case 0:
		return operators.Gap
	case 1:
		return operators.Number(math.Copysign(0, float64(rng.IntN(2))-1))
	case 2:
		return operators.Number(math.MaxFloat64 * (2*rng.Float64() - 1))
	case 3:
		return operators.Number(math.SmallestNonzeroFloat64 * float64(rng.IntN(5)))
	}
	return operators.Number(100 * rng.NormFloat64())
}

// A state that is restored at any point goes on exactly as the one that was saved, and is saved as the same bytes.
func TestRestoreAtAnyPoint(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(fmt.Sprint(k.typ, k.params), func(t *testing.T) {
			t.Parallel()
			const seed = 5
			rng := rand.New(rand.NewPCG(seed, uint64(len(k.typ))))
			fresh := compile(t, k.typ, k.params)
			straight, resumed := fresh(), fresh()
			for i := range 3000 {
				if rng.IntN(3) == 0 {
					saved := resumed.Snapshot(nil)
					resumed = fresh()
					if rng.IntN(2) == 0 {
						run(resumed, []float64{1, 2, 3, 4}) // what a state held before does not matter
					}
					if err := resumed.Restore(saved); err != nil {
						t.Fatalf("seed %d, step %d: %v", seed, i, err)
					}
				}
				x := randomInput(rng)
				a, b := straight.Step(record.EventTime(i), x), resumed.Step(record.EventTime(i), x)
				if !same(a, b) {
					t.Fatalf("seed %d, step %d: %v straight on, %v resumed", seed, i, a, b)
				}
				if a.OK && a.F-a.F != 0 {
					t.Fatalf("seed %d, step %d: output %v is not finite", seed, i, a.F)
				}
				if s, r := straight.Snapshot(nil), resumed.Snapshot(nil); string(s) != string(r) {
					t.Fatalf("seed %d, step %d: states differ: %x and %x", seed, i, s, r)
				}
			}
		})
	}
}

// Snapshot appends: what dst held stays.
func TestSnapshotAppends(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		op := compile(t, k.typ, k.params)()
		run(op, []float64{1, 2, 3, 4, 5})
		if got, want := string(op.Snapshot([]byte("head"))), "head"+string(op.Snapshot(nil)); got != want {
			t.Errorf("%s%v: %q, want %q", k.typ, k.params, got, want)
		}
	}
}

// The layout is frozen: a run resumes on states that an older weir wrote.
func TestSnapshotLayout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		typ    string
		params map[string]any
		in     []float64
		want   string
	}{
		{"ema", period(3, "reject"), nil, "01 00000000 0000000000000000"},
		{"ema", period(3, "reject"), []float64{1, 2}, "01 00000002 4008000000000000"},
		{"ema", period(3, "reject"), []float64{1, 2, 3, 4}, "01 00000003 4008000000000000"},
		{"sma", period(2, "reject"), nil, "01 00000000"},
		{"sma", period(2, "reject"), []float64{1, 2, 3}, "01 00000002 4000000000000000 4008000000000000"},
		{"last", nil, nil, "01 00"},
		{"last", nil, []float64{2, gap}, "01 01 4000000000000000"},
	} {
		op := compile(t, c.typ, c.params)()
		run(op, c.in)
		var want []byte
		if _, err := fmt.Sscanf(removeSpaces(c.want), "%x", &want); err != nil {
			t.Fatal(err)
		}
		if got := op.Snapshot(nil); string(got) != string(want) {
			t.Errorf("%s%v after %v: %x, want %s", c.typ, c.params, c.in, got, c.want)
		}
	}
}

func removeSpaces(s string) string {
	var out []byte
	for _, b := range []byte(s) {
		if b != ' ' {
			out = append(out, b)
		}
	}
	return string(out)
}

func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	const nan, one = "\x7f\xf8\x00\x00\x00\x00\x00\x01", "\x3f\xf0\x00\x00\x00\x00\x00\x00"
	for _, c := range []struct{ name, typ, state string }{
		{"empty", "ema", ""}, {"empty", "sma", ""}, {"empty", "last", ""},
		{"version", "ema", "\x02\x00\x00\x00\x01" + one}, {"version", "sma", "\x00\x00\x00\x00\x00"}, {"version", "last", "\x02\x00"},
		{"cut short", "ema", "\x01\x00\x00\x00\x01"}, {"cut short", "sma", "\x01\x00\x00"}, {"cut short", "sma", "\x01\x00\x00\x00\x01\x3f"}, {"cut short", "last", "\x01\x01\x3f"},
		{"too long", "ema", "\x01\x00\x00\x00\x01" + one + "\x00"}, {"too long", "sma", "\x01\x00\x00\x00\x01" + one + one}, {"too long", "last", "\x01\x00\x00"},
		{"beyond the period", "ema", "\x01\x00\x00\x00\x04" + one}, {"beyond the period", "sma", "\x01\x00\x00\x00\x04" + one + one + one + one}, {"beyond the period", "sma", "\x01\xff\xff\xff\xff"},
		{"sum of nothing", "ema", "\x01\x00\x00\x00\x00" + one},
		{"not finite", "ema", "\x01\x00\x00\x00\x01" + nan}, {"not finite", "sma", "\x01\x00\x00\x00\x01" + nan}, {"not finite", "last", "\x01\x01" + nan},
		{"neither", "last", "\x01\x02"},
	} {
		params := period(3, "reject")
		if c.typ == "last" {
			params = nil
		}
		op := compile(t, c.typ, params)()
		run(op, []float64{1, 2})
		before := op.Snapshot(nil)
		if err := op.Restore([]byte(c.state)); err == nil {
			t.Errorf("%s, %s: %q was taken", c.typ, c.name, c.state)
		}
		if after := op.Snapshot(nil); string(after) != string(before) {
			t.Errorf("%s, %s: the state changed by a refused restore: %x, was %x", c.typ, c.name, after, before)
		}
	}
}

// FuzzRestore: bytes are refused, or they are exactly a state.
func FuzzRestore(f *testing.F) {
	for i, k := range kinds {
		op := compile(f, k.typ, k.params)()
		f.Add(uint8(i), op.Snapshot(nil))
		run(op, []float64{1, 2, 3, 4})
		f.Add(uint8(i), op.Snapshot(nil))
	}
	f.Fuzz(func(t *testing.T, which uint8, state []byte) {
		k := kinds[int(which)%len(kinds)]
		op := compile(t, k.typ, k.params)()
		if op.Restore(state) != nil {
			return
		}
		if back := op.Snapshot(nil); string(back) != string(state) {
			t.Fatalf("%s%v took %x and saved %x", k.typ, k.params, state, back)
		}
		for i := range 10 {
			if y := op.Step(record.EventTime(i), operators.Number(1)); y.OK && y.F-y.F != 0 {
				t.Fatalf("%s%v gave %v", k.typ, k.params, y.F)
			}
		}
	})
}
