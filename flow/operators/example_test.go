package operators_test

import (
	"fmt"

	"github.com/weirstream/weir/flow/operators"
)

// An operator by itself: compile its parameters, make the state of one key, step it.
func Example() {
	ema, _ := operators.Builtin().Lookup("ema")
	args, err := ema.Args(map[string]any{"period": int64(3)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fresh, err := ema.Compile(args)
	if err != nil {
		fmt.Println(err)
		return
	}
	op := fresh()
	for _, x := range []float64{1, 2, 3, 4} {
		if y := op.Step(0, operators.Number(x)); y.OK {
			fmt.Println(y.F)
		} else {
			fmt.Println("null")
		}
	}
	// Output:
	// null
	// null
	// 2
	// 3
}
