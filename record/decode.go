package record

import (
	"fmt"
	"math"
)

// Integer is a JSON integer of any size, as its canonical digits: an optional minus sign, no leading zeros, no "-0".
type Integer string

// Decode reads exactly one JSON document, strictly (see the package documentation), into nil, bool, string, float64, [Integer],
// []any and map[string]any. Nothing aliases src. The error is a *SyntaxError.
func Decode(src []byte) (any, error) {
	d := decoder{src: src}
	var f fault
	if d.i, f = start(src); f != faultNone {
		return nil, refuse(src, d.i, f)
	}
	v, err := d.value()
	if err != nil {
		return nil, err
	}
	if d.i = skipSpace(src, d.i); d.i != len(src) {
		return nil, refuse(src, d.i, faultTrailing)
	}
	return v, nil
}

type decoder struct {
	src   []byte
	i     int
	depth int
}

func (d *decoder) refuse(f fault) error { return refuse(d.src, d.i, f) }

// peek skips white space and returns the next byte, or 0 at the end (where no caller expects a NUL).
func (d *decoder) peek() byte {
	if d.i = skipSpace(d.src, d.i); d.i < len(d.src) {
		return d.src[d.i]
	}
	return 0
}

func (d *decoder) value() (any, error) {
	switch c := d.peek(); {
	case c == '"':
		return d.text()
	case c == '{':
		return d.object()
	case c == '[':
		return d.array()
	case c == 't':
		return true, d.word("true")
	case c == 'f':
		return false, d.word("false")
	case c == 'n':
		return nil, d.word("null")
	case c-'0' <= 9 || c == '-' && nonFinite(d.src, d.i) == 0:
		return d.number()
	case nonFinite(d.src, d.i) > 0:
		return nil, d.refuse(faultNonFinite)
	}
	return nil, d.refuse(faultValue)
}

func (d *decoder) word(literal string) error {
	var f fault
	if d.i, f = word(d.src, d.i, literal); f != faultNone {
		return d.refuse(f)
	}
	return nil
}

// text reads a string from its opening quote on.
func (d *decoder) text() (string, error) {
	first := d.i + 1
	end, escaped, f := scanString(d.src, first)
	if f != faultNone {
		return "", refuse(d.src, end, f)
	}
	d.i = end + 1
	if escaped {
		return string(appendUnescaped(nil, d.src[first:end])), nil
	}
	return string(d.src[first:end]), nil
}

func (d *decoder) number() (any, error) {
	end, integer, f := scanNumber(d.src, d.i)
	if f != faultNone {
		return nil, refuse(d.src, end, f)
	}
	raw := d.src[d.i:end]
	if integer {
		d.i = end
		return canonicalInteger(raw), nil
	}
	x := ParseFloat(raw)
	if math.IsInf(x, 0) {
		return nil, d.refuse(faultOverflow)
	}
	d.i = end
	return x, nil
}

// canonicalInteger takes the digits of a valid integer.
func canonicalInteger(raw []byte) Integer {
	if string(raw) == "-0" {
		return "0"
	}
	return Integer(raw)
}

// enter steps into an array or object, over its bracket.
func (d *decoder) enter() error {
	if d.depth++; d.depth > MaxDepth {
		return d.refuse(faultDepth)
	}
	d.i++
	return nil
}

// leave steps out, over the closing bracket.
func (d *decoder) leave() {
	d.depth--
	d.i++
}

// next reads what follows an element, as the lexer's next does, and steps out at the closing bracket.
func (d *decoder) next(closing byte, otherwise fault) (more bool, err error) {
	var f fault
	if d.i, more, f = next(d.src, d.i, closing, otherwise); f != faultNone {
		return false, d.refuse(f)
	}
	if !more {
		d.depth--
	}
	return more, nil
}

func (d *decoder) array() (any, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	list := []any{}
	if d.peek() == ']' {
		d.leave()
		return list, nil
	}
	for {
		v, err := d.value()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if more, err := d.next(']', faultArrayNext); err != nil || !more {
			return list, err
		}
	}
}

func (d *decoder) object() (any, error) {
	if err := d.enter(); err != nil {
		return nil, err
	}
	members := map[string]any{}
	if d.peek() == '}' {
		d.leave()
		return members, nil
	}
	for {
		key, err := d.key(members)
		if err != nil {
			return nil, err
		}
		if members[key], err = d.value(); err != nil {
			return nil, err
		}
		if more, err := d.next('}', faultObjectNext); err != nil || !more {
			return members, err
		}
	}
}

// key reads a key that the object does not have yet, and the colon after it.
func (d *decoder) key(members map[string]any) (string, error) {
	if d.peek() != '"' {
		return "", d.refuse(faultKey)
	}
	at := d.i
	key, err := d.text()
	if err != nil {
		return "", err
	}
	if _, ok := members[key]; ok {
		return "", refuseDuplicate(d.src, at, key)
	}
	if d.peek() != ':' {
		return "", d.refuse(faultColon)
	}
	d.i++
	return key, nil
}

// refuseDuplicate names the key, shortened.
func refuseDuplicate(doc []byte, offset int, key string) *SyntaxError {
	e := refuse(doc, offset, faultDuplicate)
	e.Msg = fmt.Sprintf("%s %+.60q", e.Msg, key)
	return e
}
