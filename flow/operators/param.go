package operators

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is the type of a parameter.
type Kind uint8

// The kinds of parameters, and the Go type that holds a value of each.
const (
	// Int is a whole number (int64).
	Int Kind = iota
	// Float is a finite number (float64).
	Float
	// Duration is a length of time (time.Duration), written with units as in "1m30s".
	Duration
	// Enum is one of a fixed set of words (string).
	Enum
)

// String names the kind as the documentation of flows does.
func (k Kind) String() string {
	switch k {
	case Int:
		return "integer"
	case Float:
		return "number"
	case Duration:
		return "duration"
	case Enum:
		return "word"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Param declares one parameter of an operator type. Default, Min and Max hold the Go type of the kind (int64, float64,
// time.Duration, string); for an Int a plain int is taken too.
type Param struct {
	// Name is a lower-case word: letters, digits and underscores.
	Name string
	Kind Kind
	// Required parameters have no default and must be written.
	Required bool
	// Default is the value of a parameter that is not written. It must be set unless the parameter is required.
	Default any
	// Min and Max bound the value, both inclusive; nil is no bound. They are not for an Enum.
	Min, Max any
	// Enum is the set of words, in the order in which they are shown. Only for an Enum.
	Enum []string
	// Doc is one sentence for the user.
	Doc string
}

// Check says whether v, of the Go type of the kind, is a value that the parameter can take. The error says what is wrong with it
// and does not name the parameter.
func (p Param) Check(v any) error {
	switch v := v.(type) {
	case int64:
		return checkKind(p, Int, v)
	case float64:
		if !finite(v) {
			return fmt.Errorf("must be a finite number, is %v", v)
		}
		return checkKind(p, Float, v)
	case time.Duration:
		return checkKind(p, Duration, v)
	case string:
		if p.Kind != Enum {
			return fmt.Errorf("must be of kind %s, is %q", p.Kind, v)
		}
		if !slices.Contains(p.Enum, v) {
			return fmt.Errorf("must be one of %s, is %q", strings.Join(p.Enum, ", "), v)
		}
		return nil
	}
	return fmt.Errorf("must be of kind %s, is a Go value of type %T", p.Kind, v)
}

// checkKind compares the kind and the bounds of a value that is ordered.
func checkKind[T int64 | float64 | time.Duration](p Param, kind Kind, v T) error {
	if p.Kind != kind {
		return fmt.Errorf("must be of kind %s, is %v", p.Kind, v)
	}
	if lo, ok := p.Min.(T); ok && v < lo {
		return fmt.Errorf("must be at least %v, is %v", lo, v)
	}
	if hi, ok := p.Max.(T); ok && v > hi {
		return fmt.Errorf("must be at most %v, is %v", hi, v)
	}
	return nil
}

// normal checks a declaration and returns it with plain ints widened to int64.
func (p Param) normal() (Param, error) {
	if !wordPattern(p.Name) {
		return p, fmt.Errorf("parameter name %q must be a lower-case word: a letter, then letters, digits or underscores, at most 63", p.Name)
	}
	if slices.Contains(reserved, p.Name) {
		return p, fmt.Errorf("parameter name %q is reserved: every operator has it", p.Name)
	}
	if p.Kind > Enum {
		return p, fmt.Errorf("parameter %s: unknown kind %s", p.Name, p.Kind)
	}
	if (p.Kind == Enum) != (len(p.Enum) > 0) {
		return p, fmt.Errorf("parameter %s: a list of words belongs to kind %s, and only to it", p.Name, Enum)
	}
	if p.Required == (p.Default != nil) {
		return p, fmt.Errorf("parameter %s: either it is required or it has a default", p.Name)
	}
	p.Enum = slices.Clone(p.Enum)
	return p.normalValues()
}

// normalValues checks default and bounds.
func (p Param) normalValues() (Param, error) {
	p.Default, p.Min, p.Max = widen(p.Default), widen(p.Min), widen(p.Max)
	if p.Kind == Enum && (p.Min != nil || p.Max != nil) {
		return p, fmt.Errorf("parameter %s: a word has no bounds", p.Name)
	}
	unbounded := p
	unbounded.Min, unbounded.Max = nil, nil
	for _, v := range []any{p.Min, p.Max} {
		if v == nil {
			continue
		}
		if err := unbounded.Check(v); err != nil {
			return p, fmt.Errorf("parameter %s: bound %w", p.Name, err)
		}
	}
	if p.Default != nil {
		if err := p.Check(p.Default); err != nil {
			return p, fmt.Errorf("parameter %s: default %w", p.Name, err)
		}
	}
	return p, nil
}

// widen makes an int an int64, so that a declaration may use untyped constants.
func widen(v any) any {
	if n, ok := v.(int); ok {
		return int64(n)
	}
	return v
}

// Args are the values of an operator's parameters: each one that its type declares, written or by default.
type Args struct{ values map[string]any }

// Int is the value of a parameter of kind Int. Asking for a parameter that the type does not declare, or by the wrong kind, is a
// mistake in the type and panics; so do Float, Duration and Enum.
func (a Args) Int(name string) int64 { return arg[int64](a, name) }

// Float is the value of a parameter of kind Float.
func (a Args) Float(name string) float64 { return arg[float64](a, name) }

// Duration is the value of a parameter of kind Duration.
func (a Args) Duration(name string) time.Duration { return arg[time.Duration](a, name) }

// Enum is the value of a parameter of kind Enum.
func (a Args) Enum(name string) string { return arg[string](a, name) }

// Value is the value of any parameter in the Go type of its kind, or nil when there is none of that name.
func (a Args) Value(name string) any { return a.values[name] }

func arg[T any](a Args, name string) T {
	v, ok := a.values[name].(T)
	if !ok {
		panic(fmt.Sprintf("operators: parameter %q is not declared as a %T", name, v))
	}
	return v
}
