package record

import (
	"bytes"
	"math"
	"slices"
)

// Canonical reads exactly one JSON document, strictly, and returns its FINAZ_JSON_V1 bytes. The error is a *SyntaxError.
func Canonical(src []byte) ([]byte, error) {
	return AppendCanonical(make([]byte, 0, len(src)+len(src)/8), src)
}

// AppendCanonical appends what Canonical returns to dst, which must not overlap src. After an error dst is undefined.
func AppendCanonical(dst, src []byte) ([]byte, error) {
	var few [12]member // most objects need no more
	c := canonicalizer{decoder: decoder{src: src}, members: few[:0]}
	var f fault
	if c.i, f = start(src); f != faultNone {
		return dst, refuse(src, c.i, f)
	}
	dst, err := c.appendValue(dst)
	if err != nil {
		return dst, err
	}
	if c.i = skipSpace(src, c.i); c.i != len(src) {
		return dst, refuse(src, c.i, faultTrailing)
	}
	return dst, nil
}

// canonicalizer writes the canonical form while it reads, and puts the members of an object in order once all of it is written: no
// tree of values is built, and a document that is in order already is copied once.
type canonicalizer struct {
	decoder
	// members of the objects that are open, the innermost last.
	members []member
	// scratch holds the members of one object while they are put in order.
	scratch []byte
}

// member is a member of an object that is being written.
type member struct {
	// key is unescaped.
	key []byte
	// at is where the key stands in the source.
	at int
	// from and to bound the member, key and value, in the output.
	from, to int
}

func (c *canonicalizer) appendValue(dst []byte) ([]byte, error) {
	switch b := c.peek(); {
	case b == '"':
		first := c.i
		end, escaped, f := scanString(c.src, first+1)
		if f != faultNone {
			return dst, refuse(c.src, end, f)
		}
		c.i = end + 1
		return appendScanned(dst, c.src[first:c.i], escaped), nil
	case b == '{':
		return c.appendObject(dst)
	case b == '[':
		return c.appendArray(dst)
	case b == '-' || b-'0' <= 9:
		return c.appendNumber(dst)
	}
	// true, false, null and every error: canonical as they stand.
	first := c.i
	if _, err := c.value(); err != nil {
		return dst, err
	}
	return append(dst, c.src[first:c.i]...), nil
}

// appendScanned writes a string that was accepted with its quotes: as it stands, unless it has escapes, which may be needless.
func appendScanned(dst, quoted []byte, escaped bool) []byte {
	if !escaped {
		return append(dst, quoted...)
	}
	return AppendString(dst, appendUnescaped(nil, quoted[1:len(quoted)-1]))
}

func (c *canonicalizer) appendNumber(dst []byte) ([]byte, error) {
	end, integer, f := scanNumber(c.src, c.i)
	if f != faultNone {
		_, err := c.value() // tells -Infinity from a slip
		return dst, err
	}
	raw := c.src[c.i:end]
	if integer {
		c.i = end
		return append(dst, canonicalInteger(raw)...), nil
	}
	x := ParseFloat(raw)
	if math.IsInf(x, 0) {
		return dst, c.refuse(faultOverflow)
	}
	c.i = end
	return AppendFloat(dst, x), nil
}

func (c *canonicalizer) appendArray(dst []byte) ([]byte, error) {
	if err := c.enter(); err != nil {
		return dst, err
	}
	dst = append(dst, '[')
	if c.peek() == ']' {
		c.leave()
		return append(dst, ']'), nil
	}
	for {
		var err error
		if dst, err = c.appendValue(dst); err != nil {
			return dst, err
		}
		more, err := c.next(']', faultArrayNext)
		if err != nil {
			return dst, err
		}
		if !more {
			return append(dst, ']'), nil
		}
		dst = append(dst, ',')
	}
}

func (c *canonicalizer) appendObject(dst []byte) ([]byte, error) {
	if err := c.enter(); err != nil {
		return dst, err
	}
	dst = append(dst, '{')
	if c.peek() == '}' {
		c.leave()
		return append(dst, '}'), nil
	}
	for first := len(c.members); ; {
		var err error
		if dst, err = c.appendMember(dst); err != nil {
			return dst, err
		}
		more, err := c.next('}', faultObjectNext)
		if err != nil {
			return dst, err
		}
		if !more {
			err = c.arrange(dst, c.members[first:])
			c.members = c.members[:first]
			return append(dst, '}'), err
		}
		dst = append(dst, ',')
	}
}

func (c *canonicalizer) appendMember(dst []byte) ([]byte, error) {
	if c.peek() != '"' {
		return dst, c.refuse(faultKey)
	}
	m := member{at: c.i, from: len(dst)}
	end, escaped, f := scanString(c.src, m.at+1)
	if f != faultNone {
		return dst, refuse(c.src, end, f)
	}
	c.i = end + 1
	if m.key = c.src[m.at+1 : end]; escaped {
		m.key = appendUnescaped(nil, m.key)
	}
	dst = appendScanned(dst, c.src[m.at:c.i], escaped)
	if c.peek() != ':' {
		return dst, c.refuse(faultColon)
	}
	c.i++
	at := len(c.members)
	c.members = append(c.members, m)
	dst, err := c.appendValue(append(dst, ':'))
	c.members[at].to = len(dst)
	return dst, err
}

// arrange puts the members of one object, which end dst with commas between them, in the order of their keys.
func (c *canonicalizer) arrange(dst []byte, members []member) error {
	byKey := func(a, b member) int { return bytes.Compare(a.key, b.key) }
	if !slices.IsSortedFunc(members, byKey) {
		from := members[0].from
		slices.SortStableFunc(members, byKey)
		c.scratch = append(c.scratch[:0], dst[from:]...)
		at := from
		for i, m := range members {
			if i > 0 {
				dst[at] = ','
				at++
			}
			at += copy(dst[at:], c.scratch[m.from-from:m.to-from])
		}
	}
	for i := 1; i < len(members); i++ {
		if bytes.Equal(members[i-1].key, members[i].key) {
			return refuseDuplicate(c.src, members[i].at, string(members[i].key))
		}
	}
	return nil
}
