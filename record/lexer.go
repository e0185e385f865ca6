package record

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// The lexer: functions over a document and an index into it. Each returns the index where it stopped; with a fault that index is the
// place of the fault.

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// start skips the white space before a document and refuses an empty one.
func start(b []byte) (i int, f fault) {
	i = skipSpace(b, 0)
	switch {
	case i == len(b):
		return i, faultEmpty
	case bytes.HasPrefix(b[i:], []byte("\xef\xbb\xbf")):
		return i, faultBOM
	}
	return i, faultNone
}

const (
	everyByte = 0x0101010101010101
	highBits  = 0x8080808080808080
)

// stringStops has the high bit of the first byte of w set that is not a plain string character: a quote, a backslash, a control
// character or part of a character beyond ASCII. Bits above the first may be wrong.
func stringStops(w uint64) uint64 {
	quote := w ^ everyByte*'"'
	slash := w ^ everyByte*'\\'
	return ((w-everyByte*0x20)&^w | (quote-everyByte)&^quote | (slash-everyByte)&^slash | w) & highBits
}

// scanString reads from after the opening quote to the closing one. escaped says that the text has escapes.
func scanString(b []byte, i int) (end int, escaped bool, f fault) {
	open := i - 1
	for {
		for i+8 <= len(b) {
			stops := stringStops(binary.LittleEndian.Uint64(b[i:]))
			if stops != 0 {
				i += bits.TrailingZeros64(stops) >> 3
				break
			}
			i += 8
		}
		if i >= len(b) {
			return open, escaped, faultUnclosed
		}
		switch c := b[i]; {
		case c == '"':
			return i, escaped, faultNone
		case c == '\\':
			escaped = true
			if i, f = scanEscape(b, i); f != faultNone {
				if f == faultEnd {
					return open, escaped, faultUnclosed
				}
				return i, escaped, f
			}
		case c < 0x20:
			return i, escaped, faultControl
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n == 1 {
				return i, escaped, faultUTF8
			}
			i += n
		}
	}
}

// scanEscape reads one escape, or a surrogate pair of two, from its backslash on.
func scanEscape(b []byte, i int) (end int, f fault) {
	if i+1 >= len(b) {
		return i, faultEnd
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, faultNone
	case 'u':
	default:
		return i + 1, faultEscape
	}
	r, end, f := hex4(b, i+2)
	if f != faultNone || !isSurrogate(r) {
		return end, f
	}
	if r >= 0xdc00 || end+1 >= len(b) || b[end] != '\\' || b[end+1] != 'u' {
		if end >= len(b) {
			return end, faultEnd
		}
		return i, faultSurrogate
	}
	low, end, f := hex4(b, end+2)
	if f == faultNone && (low < 0xdc00 || low > 0xdfff) {
		return i, faultSurrogate
	}
	return end, f
}

func isSurrogate(r rune) bool { return r >= 0xd800 && r <= 0xdfff }

// hex4 reads four hexadecimal digits.
func hex4(b []byte, i int) (r rune, end int, f fault) {
	for range 4 {
		if i >= len(b) {
			return 0, i, faultEnd
		}
		c := b[i]
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, i, faultHex
		}
		r = r<<4 | rune(c)
		i++
	}
	return r, i, faultNone
}

// appendUnescaped appends the text of a string that scanString accepted.
func appendUnescaped(dst, b []byte) []byte {
	for {
		n := bytes.IndexByte(b, '\\')
		if n < 0 {
			return append(dst, b...)
		}
		dst = append(dst, b[:n]...)
		c := b[n+1]
		b = b[n+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, _, _ := hex4(b, 0)
			b = b[4:]
			if isSurrogate(r) {
				low, _, _ := hex4(b, 2)
				b = b[6:]
				r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
}

// scanNumber reads a number from its first character, a digit or a minus sign. integer says that it has neither point nor exponent.
func scanNumber(b []byte, i int) (end int, integer bool, f fault) {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		if i++; i < len(b) && b[i]-'0' <= 9 {
			return i - 1, false, faultLeadingZero
		}
	} else if i, f = scanDigits(b, i); f != faultNone {
		return i, false, f
	}
	integer = true
	if i < len(b) && b[i] == '.' {
		integer = false
		if i, f = scanDigits(b, i+1); f != faultNone {
			return i, false, f
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		integer = false
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if i, f = scanDigits(b, i); f != faultNone {
			return i, false, f
		}
	}
	return i, integer, faultNone
}

// scanDigits reads at least one decimal digit.
func scanDigits(b []byte, i int) (end int, f fault) {
	if i >= len(b) || b[i]-'0' > 9 {
		return i, faultDigit
	}
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i, faultNone
}

// nonFinite is the length of a NaN, Infinity or -Infinity token at i, or 0.
func nonFinite(b []byte, i int) int {
	for _, token := range [...]string{"NaN", "Infinity", "-Infinity"} {
		if len(b)-i >= len(token) && string(b[i:i+len(token)]) == token {
			return len(token)
		}
	}
	return 0
}

// next reads what follows an element of an array or object: a comma and the white space after it, when more follows, or the closing
// bracket. otherwise is the fault when it is neither.
func next(b []byte, i int, closing byte, otherwise fault) (end int, more bool, f fault) {
	if i = skipSpace(b, i); i == len(b) {
		return i, false, faultEnd
	}
	switch b[i] {
	case ',':
		if i = skipSpace(b, i+1); i < len(b) && b[i] == closing {
			return i, false, faultTrailingComma
		}
		return i, true, faultNone
	case closing:
		return i + 1, false, faultNone
	}
	return i, false, otherwise
}

// word checks that a literal stands at i and returns its end, or where it differs.
func word(b []byte, i int, literal string) (end int, f fault) {
	if len(b)-i >= len(literal) && string(b[i:i+len(literal)]) == literal {
		return i + len(literal), faultNone
	}
	return i, faultValue
}
