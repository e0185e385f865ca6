package operators_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// Not parallel: it counts the allocations of the whole process.
func TestStepDoesNotAllocate(t *testing.T) {
	for _, k := range kinds {
		op := compile(t, k.typ, k.params)()
		buf := make([]byte, 0, 1<<10)
		at := record.EventTime(0)
		step := func() {
			at++
			x := operators.Number(float64(at))
			if at%7 == 0 {
				x = operators.Gap
			}
			op.Step(at, x)
			buf = op.Snapshot(buf[:0])
		}
		if n := testing.AllocsPerRun(200, step); n != 0 {
			t.Errorf("%s%v: %v allocations a step", k.typ, k.params, n)
		}
	}
}

// Not parallel: it counts the bytes of the whole process. StateBytes is the bound that a user is shown.
func TestStateBytesBound(t *testing.T) {
	const many = 2000
	for _, k := range kinds {
		t.Run(fmt.Sprint(k.typ, k.params), func(t *testing.T) {
			ty, _ := operators.Builtin().Lookup(k.typ)
			args, err := ty.Args(k.params)
			if err != nil {
				t.Fatal(err)
			}
			fresh := compile(t, k.typ, k.params)
			keep := make([]operators.Operator, many)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for i := range keep {
				keep[i] = fresh()
			}
			runtime.ReadMemStats(&after)
			runtime.KeepAlive(keep)
			each := float64(after.TotalAlloc-before.TotalAlloc) / many
			if bound := ty.StateBytes(args); each > float64(bound) {
				t.Errorf("a state takes %.0f bytes, its bound is %d", each, bound)
			}
		})
	}
}

func BenchmarkStep(b *testing.B) {
	for _, k := range kinds {
		b.Run(fmt.Sprint(k.typ, k.params), func(b *testing.B) {
			op := compile(b, k.typ, k.params)()
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				op.Step(record.EventTime(i), operators.Number(float64(i&1023)))
			}
		})
	}
}
