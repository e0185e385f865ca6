package record

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// MaxDepth is the deepest nesting of arrays and objects that is read or written; the outermost counts as one.
const MaxDepth = 512

// SyntaxError says where and why a JSON document was refused.
type SyntaxError struct {
	// Offset counts bytes from 0.
	Offset int
	// Line and Column count from 1; Column counts bytes.
	Line, Column int
	// Msg names the cause.
	Msg string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d (byte %d): %s", e.Line, e.Column, e.Offset, e.Msg)
}

// fault is the cause of a refusal, as the lexer returns it: a number, so that the fast path carries no error values.
type fault uint8

const (
	faultNone fault = iota
	faultEmpty
	faultBOM
	faultEnd
	faultValue
	faultNonFinite
	faultKey
	faultColon
	faultObjectNext
	faultArrayNext
	faultTrailingComma
	faultTrailing
	faultNotObject
	faultUnclosed
	faultControl
	faultEscape
	faultHex
	faultSurrogate
	faultUTF8
	faultLeadingZero
	faultDigit
	faultOverflow
	faultDepth
	faultDuplicate
)

// faultText has a %s where the offending character is shown.
var faultText = [...]string{
	faultEmpty:         "the document is empty",
	faultBOM:           "the document starts with a byte order mark; remove it",
	faultEnd:           "the document ends too early",
	faultValue:         "expected a value, found %s",
	faultNonFinite:     "NaN and infinities are not JSON",
	faultKey:           "expected a key in double quotes, found %s",
	faultColon:         "expected ':' after a key, found %s",
	faultObjectNext:    "expected ',' or '}' in an object, found %s",
	faultArrayNext:     "expected ',' or ']' in an array, found %s",
	faultTrailingComma: "nothing follows the comma before this %s",
	faultTrailing:      "found %s after the end of the document",
	faultNotObject:     "expected an object, found %s",
	faultUnclosed:      "the string that starts here is not closed",
	faultControl:       "a control character in a string is not escaped: %s",
	faultEscape:        "unknown escape: backslash and %s",
	faultHex:           "\\u takes four hexadecimal digits, found %s",
	faultSurrogate:     "lone surrogate: a high one (\\ud800 to \\udbff) and a low one (\\udc00 to \\udfff) come in pairs, in this order",
	faultUTF8:          "invalid UTF-8: %s",
	faultLeadingZero:   "a number has a needless leading zero",
	faultDigit:         "expected a digit, found %s",
	faultOverflow:      "the number overflows a binary64 float",
	faultDepth:         "nested deeper than 512 levels",
	faultDuplicate:     "duplicate key",
}

// refuse makes the error of a fault at a byte offset of doc.
func refuse(doc []byte, offset int, f fault) *SyntaxError {
	if f != faultUnclosed && f != faultEmpty && offset >= len(doc) {
		offset, f = len(doc), faultEnd
	}
	e := &SyntaxError{Offset: offset, Msg: faultText[f]}
	e.Line = 1 + bytes.Count(doc[:offset], []byte{'\n'})
	e.Column = offset - bytes.LastIndexByte(doc[:offset], '\n')
	if bytes.Contains([]byte(e.Msg), []byte("%s")) {
		e.Msg = fmt.Sprintf(e.Msg, showAt(doc[offset:]))
	}
	return e
}

// showAt shows the first character of b, safe to print.
func showAt(b []byte) string {
	r, n := utf8.DecodeRune(b)
	if r == utf8.RuneError && n == 1 {
		return fmt.Sprintf("byte 0x%02x", b[0])
	}
	return fmt.Sprintf("%+q", r)
}
