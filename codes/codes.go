// Package codes is the catalogue of error codes. A code is part of weir's interface: it is stable, documented in docs/errors.md
// (generated from this package) and decides the exit code of a command.
package codes

import (
	"errors"
	"fmt"
)

// Verdict says what a caller may do about an error.
type Verdict uint8

const (
	// Fatal ends the run: trying again gives the same.
	Fatal Verdict = iota
	// Retry means that the cause may pass: back off, then go on from the last cut.
	Retry
	// Poison blames one record or batch: set it aside and go on.
	Poison
)

// Exit codes of the command line.
const (
	ExitOK          = 0
	ExitRuntime     = 1
	ExitUsage       = 2
	ExitConfig      = 3
	ExitDifference  = 4
	ExitUnreachable = 5
	ExitRecovery    = 6
	ExitFenced      = 7
	ExitInterrupted = 130
)

// Code is one entry of the catalogue.
type Code struct {
	// Name is upper snake case and never changes.
	Name    string
	Exit    int
	Verdict Verdict
	// Meaning and Cure are sentences for the person who meets the code.
	Meaning, Cure string
}

// Error is an error with a code.
type Error struct {
	Code *Code
	Msg  string
	Err  error
}

// New makes an error of a code; %w wraps as in fmt.Errorf.
func New(code *Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Msg: err.Error(), Err: errors.Unwrap(err)}
}

func (e *Error) Error() string { return e.Code.Name + ": " + e.Msg }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, &Error{Code: c}) true for every error of code c.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Msg == ""
}

// Of returns the code of err, or nil.
func Of(err error) *Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return nil
}

// Has says whether err carries the code.
func Has(err error, code *Code) bool { return Of(err) == code }
