// Package secret holds values that must never be shown: passwords and tokens, once their reference is resolved.
package secret

import "fmt"

// shown stands for every secret, so that not even its length is told.
const shown = "***"

// Text is a secret. However it is printed, formatted, logged or marshalled, it is "***"; only Reveal gives it away. The zero Text is none.
//
// The value stands behind a pointer: package fmt looks into fields that are not exported, past every method, but does not follow a pointer there.
type Text struct{ value *string }

// New makes a secret of a value.
func New(value string) Text { return Text{&value} }

// Reveal is the value, for the one call that needs it.
func (t Text) Reveal() string {
	if t.value == nil {
		return ""
	}
	return *t.value
}

// Empty says whether there is none.
func (t Text) Empty() bool { return t.Reveal() == "" }

// String is "***".
func (Text) String() string { return shown }

// Format writes "***" whatever the verb.
func (Text) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(shown)) }

// MarshalText keeps JSON, YAML and structured logs from showing it.
func (Text) MarshalText() ([]byte, error) { return []byte(shown), nil }
