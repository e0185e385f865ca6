package operators

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// reserved are the fields that every operator of a flow file has, so that no parameter may take their names.
var reserved = []string{"input", "inputs", "name", "type"}

// Type is what a flow file names as the type of an operator.
type Type struct {
	// Name is a lower-case word: a letter, then letters, digits and underscores, at most 63 characters.
	Name string
	// Doc is one sentence for the user, as generated documentation shows it.
	Doc string
	// Params in the order in which they are shown.
	Params []Param
	// StateVersion is part of the fingerprint of every flow that uses the type. Raise it when the snapshot's layout changes, or
	// when equal inputs no longer give equal outputs: a run then refuses to resume on a state that it would misread. From 1.
	StateVersion int
	// StateBytes bounds the memory of one key's state, in bytes. It feeds the bound that is printed before a run starts.
	StateBytes func(Args) int
	// New compiles the parameters and returns the function that makes the state of a new key. An error is shown to the user at
	// the operator's place in the file; it says what is wrong with the parameters together, since each one was checked alone.
	New func(Args) (func() Operator, error)

	// finite is set on the built-in types, whose outputs need no check.
	finite bool
}

// Args checks values against the declared parameters and fills in the defaults. The values have the Go types of their kinds.
func (t Type) Args(values map[string]any) (Args, error) {
	a := Args{values: make(map[string]any, len(t.Params))}
	var errs []error
	for _, p := range t.Params {
		v, written := values[p.Name]
		switch {
		case !written && p.Required:
			errs = append(errs, fmt.Errorf("%s: is missing", p.Name))
			continue
		case !written:
			v = p.Default
		}
		if err := p.Check(v); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.Name, err))
		}
		a.values[p.Name] = v
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, ok := t.Param(name); !ok {
			errs = append(errs, fmt.Errorf("%s: is not a parameter of type %s", name, t.Name))
		}
	}
	return a, errors.Join(errs...)
}

// Param finds a parameter by its name.
func (t Type) Param(name string) (Param, bool) {
	if i := t.index(name); i >= 0 {
		return t.Params[i], true
	}
	return Param{}, false
}

// Compile returns the function that makes the state of a new key. Outputs of a type that is not built in are guarded: a
// non-finite one becomes a gap.
func (t Type) Compile(a Args) (func() Operator, error) {
	fresh, err := t.New(a)
	if err != nil || t.finite {
		return fresh, err
	}
	return func() Operator { return guarded{fresh()} }, nil
}

// normal checks a declaration and returns an own copy of it.
func (t Type) normal() (Type, error) {
	if !wordPattern(t.Name) {
		return t, fmt.Errorf("operators: type name %q must be a lower-case word: a letter, then letters, digits or underscores, at most 63", t.Name)
	}
	if t.New == nil || t.StateBytes == nil {
		return t, fmt.Errorf("operators: type %s needs New and StateBytes", t.Name)
	}
	if t.StateVersion < 1 {
		return t, fmt.Errorf("operators: type %s: StateVersion must be at least 1, is %d", t.Name, t.StateVersion)
	}
	t.Params = slices.Clone(t.Params)
	for i, p := range t.Params {
		n, err := p.normal()
		if err != nil {
			return t, fmt.Errorf("operators: type %s: %w", t.Name, err)
		}
		if t.index(p.Name) < i {
			return t, fmt.Errorf("operators: type %s declares the parameter %s twice", t.Name, p.Name)
		}
		t.Params[i] = n
	}
	return t, nil
}

// index is where the first parameter of a name stands, or -1.
func (t Type) index(name string) int {
	return slices.IndexFunc(t.Params, func(p Param) bool { return p.Name == name })
}

// Registry is the set of types that a flow may name. Reading it is safe from many goroutines, Register is not.
type Registry struct{ types map[string]Type }

// NewRegistry is an empty registry. Most callers want Builtin.
func NewRegistry() *Registry { return &Registry{types: map[string]Type{}} }

// Builtin is a new registry that holds the operators of weir.
func Builtin() *Registry {
	r := NewRegistry()
	for _, t := range []Type{emaType(), lastType(), smaType()} {
		t.finite = true
		if err := r.Register(t); err != nil {
			panic(err) // a built-in declaration breaks the rules; every test of this package would meet it
		}
	}
	return r
}

// Register adds a type. A name is registered once; a declaration that contradicts itself is refused.
func (r *Registry) Register(t Type) error {
	n, err := t.normal()
	if err != nil {
		return err
	}
	if _, taken := r.types[n.Name]; taken {
		return fmt.Errorf("operators: type %s is registered already", n.Name)
	}
	r.types[n.Name] = n
	return nil
}

// Lookup finds a type by its name.
func (r *Registry) Lookup(name string) (Type, bool) {
	t, ok := r.types[name]
	return t, ok
}

// Types are all types, sorted by name.
func (r *Registry) Types() []Type {
	out := make([]Type, 0, len(r.types))
	for _, name := range r.Names() {
		out = append(out, r.types[name])
	}
	return out
}

// Names are the names of all types, sorted.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.types)) }

// wordPattern is [a-z][a-z0-9_]{0,62}.
func wordPattern(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}
