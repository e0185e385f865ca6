package operators_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// echo outputs what it was made with.
type echo struct{ v operators.Value }

func (e *echo) Step(record.EventTime, operators.Value) operators.Value { return e.v }
func (e *echo) Snapshot(dst []byte) []byte                             { return append(dst, 1) }
func (e *echo) Restore([]byte) error                                   { return nil }

// valid is a declaration that breaks no rule and has a parameter of every kind.
func valid() operators.Type {
	return operators.Type{
		Name: "echo",
		Params: []operators.Param{
			{Name: "n", Kind: operators.Int, Required: true, Min: 1, Max: int64(9)},
			{Name: "f", Kind: operators.Float, Default: 0.5, Min: 0.0, Max: 1.0},
			{Name: "d", Kind: operators.Duration, Default: time.Second, Min: time.Duration(0), Max: time.Hour},
			{Name: "w", Kind: operators.Enum, Default: "a", Enum: []string{"a", "b"}},
		},
		StateVersion: 1,
		StateBytes:   func(operators.Args) int { return 16 },
		New: func(a operators.Args) (func() operators.Operator, error) {
			return func() operators.Operator { return &echo{operators.Number(a.Float("f"))} }, nil
		},
	}
}

func TestRegisterRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*operators.Type)
		want   string
	}{
		"type name":          {func(ty *operators.Type) { ty.Name = "Echo" }, "lower-case word"},
		"no type name":       {func(ty *operators.Type) { ty.Name = "" }, "lower-case word"},
		"long type name":     {func(ty *operators.Type) { ty.Name = strings.Repeat("a", 64) }, "lower-case word"},
		"taken":              {func(ty *operators.Type) { ty.Name = "ema" }, "registered already"},
		"no New":             {func(ty *operators.Type) { ty.New = nil }, "needs New and StateBytes"},
		"no StateBytes":      {func(ty *operators.Type) { ty.StateBytes = nil }, "needs New and StateBytes"},
		"state version":      {func(ty *operators.Type) { ty.StateVersion = 0 }, "StateVersion must be at least 1"},
		"parameter name":     {func(ty *operators.Type) { ty.Params[0].Name = "a-b" }, "lower-case word"},
		"reserved":           {func(ty *operators.Type) { ty.Params[0].Name = "input" }, "reserved"},
		"equal parameters":   {func(ty *operators.Type) { ty.Params[1].Name = "n" }, "twice"},
		"kind":               {func(ty *operators.Type) { ty.Params[0].Kind = 9 }, "unknown kind Kind(9)"},
		"words of a number":  {func(ty *operators.Type) { ty.Params[0].Enum = []string{"x"} }, "belongs to kind word"},
		"no words":           {func(ty *operators.Type) { ty.Params[3].Enum = nil }, "belongs to kind word"},
		"no default":         {func(ty *operators.Type) { ty.Params[1].Default = nil }, "required or it has a default"},
		"needless default":   {func(ty *operators.Type) { ty.Params[0].Default = 3 }, "required or it has a default"},
		"default's type":     {func(ty *operators.Type) { ty.Params[1].Default = "x" }, "default must be of kind number"},
		"default's Go type":  {func(ty *operators.Type) { ty.Params[1].Default = uint8(1) }, "default must be of kind number, is a Go value of type uint8"},
		"default's bound":    {func(ty *operators.Type) { ty.Params[2].Default = 2 * time.Hour }, "default must be at most 1h0m0s"},
		"default not a word": {func(ty *operators.Type) { ty.Params[3].Default = "c" }, "default must be one of a, b"},
		"bound's type":       {func(ty *operators.Type) { ty.Params[0].Max = 1.5 }, "bound must be of kind integer"},
		"bound not finite":   {func(ty *operators.Type) { ty.Params[1].Max = math.Inf(1) }, "bound must be a finite number"},
		"bound of a word":    {func(ty *operators.Type) { ty.Params[3].Min = "a" }, "no bounds"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reg, ty := operators.Builtin(), valid()
			c.change(&ty)
			err := reg.Register(ty)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q in it", err, c.want)
			}
			if got := reg.Names(); !reflect.DeepEqual(got, []string{"ema", "last", "sma"}) {
				t.Errorf("the registry changed: %v", got)
			}
		})
	}
}

func TestRegistry(t *testing.T) {
	t.Parallel()
	reg, ty := operators.Builtin(), valid()
	if err := reg.Register(ty); err != nil {
		t.Fatal(err)
	}
	ty.Params[3].Enum[0], ty.Params[0].Name = "changed", "changed"
	got, ok := reg.Lookup("echo")
	if !ok || got.Params[0].Name != "n" || got.Params[3].Enum[0] != "a" {
		t.Errorf("the registry shares memory with the caller's declaration: %+v", got)
	}
	if _, ok := operators.Builtin().Lookup("echo"); ok {
		t.Error("a registration reached another registry")
	}
	if want := []string{"echo", "ema", "last", "sma"}; !reflect.DeepEqual(reg.Names(), want) {
		t.Errorf("names %v, want %v", reg.Names(), want)
	}
	for i, ty := range reg.Types() {
		if ty.Name != reg.Names()[i] {
			t.Errorf("type %d is %s, want %s", i, ty.Name, reg.Names()[i])
		}
	}
}

func TestArgs(t *testing.T) {
	t.Parallel()
	reg := operators.NewRegistry()
	if err := reg.Register(valid()); err != nil {
		t.Fatal(err)
	}
	ty, _ := reg.Lookup("echo")
	a, err := ty.Args(map[string]any{"n": int64(4)})
	if err != nil {
		t.Fatal(err)
	}
	if a.Int("n") != 4 || a.Float("f") != 0.5 || a.Duration("d") != time.Second || a.Enum("w") != "a" || a.Value("zz") != nil {
		t.Errorf("args %+v", a)
	}
	for name, c := range map[string]struct {
		values map[string]any
		want   []string
	}{
		"missing":      {nil, []string{"n: is missing"}},
		"below":        {map[string]any{"n": int64(0)}, []string{"n: must be at least 1, is 0"}},
		"above":        {map[string]any{"n": int64(10)}, []string{"n: must be at most 9, is 10"}},
		"kind":         {map[string]any{"n": "1"}, []string{`n: must be of kind integer, is "1"`}},
		"not finite":   {map[string]any{"n": int64(1), "f": math.NaN()}, []string{"f: must be a finite number, is NaN"}},
		"not a word":   {map[string]any{"n": int64(1), "w": "c"}, []string{`w: must be one of a, b, is "c"`}},
		"undeclared":   {map[string]any{"n": int64(1), "zz": int64(1)}, []string{"zz: is not a parameter of type echo"}},
		"all together": {map[string]any{"f": 2.0, "d": -time.Second}, []string{"n: is missing", "f: must be at most 1", "d: must be at least 0s"}},
	} {
		_, err := ty.Args(c.values)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q in it", name, err, want)
			}
		}
	}
}

// Asking for what a type did not declare is a mistake in the type's code.
func TestArgsPanic(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(operators.Args){
		"undeclared": func(a operators.Args) { a.Int("zz") },
		"wrong kind": func(a operators.Args) { a.Duration("n") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			a, err := valid().Args(map[string]any{"n": int64(1)})
			if err != nil {
				t.Error(err)
			}
			ask(a)
		}()
	}
}

// The output of a type that is not built in is checked: non-finite never leaves.
func TestForeignOutputIsGuarded(t *testing.T) {
	t.Parallel()
	for _, f := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1, 0} {
		ty := valid()
		ty.New = func(operators.Args) (func() operators.Operator, error) {
			return func() operators.Operator { return &echo{operators.Number(f)} }, nil
		}
		a, err := ty.Args(map[string]any{"n": int64(1)})
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := ty.Compile(a)
		if err != nil {
			t.Fatal(err)
		}
		want := operators.Number(f)
		if f-f != 0 {
			want = operators.Gap
		}
		if got := fresh().Step(0, operators.Gap); got != want {
			t.Errorf("output %v became %v, want %v", f, got, want)
		}
	}
}

// Every built-in type tells its user what it and its parameters are for.
func TestBuiltinsAreDocumented(t *testing.T) {
	t.Parallel()
	for _, ty := range operators.Builtin().Types() {
		if !strings.HasSuffix(ty.Doc, ".") {
			t.Errorf("type %s: doc %q is not a sentence", ty.Name, ty.Doc)
		}
		for _, p := range ty.Params {
			if !strings.HasSuffix(p.Doc, ".") {
				t.Errorf("type %s, parameter %s: doc %q is not a sentence", ty.Name, p.Name, p.Doc)
			}
		}
	}
}
