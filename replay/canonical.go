package replay

import (
	"bytes"

	"github.com/weirstream/weir/record"
)

// appendValue writes the canonical form of a row, which is an object that a record.Scanner accepted. NaN, infinities and numbers that
// overflow binary64 have none; they become null, which is the same to a flow: a gap.
func appendValue(dst, value []byte) ([]byte, error) {
	if isCanonical(value) {
		return append(dst, value...), nil
	}
	start := len(dst)
	dst, err := record.AppendCanonical(dst, value)
	if err == nil {
		return dst, nil
	}
	finite, changed := nullNonFinite(value)
	if !changed {
		return dst, err
	}
	return record.AppendCanonical(dst[:start], finite)
}

// isCanonical says whether an object that a record.Scanner accepted is one of the plain kind that is in canonical form already, as
// most are that machines write: sorted keys, no spaces, no escapes, no arrays and objects inside, floats of at most 15 digits and
// without needless ones. It is several times as fast as writing the canonical form and comparing.
func isCanonical(v []byte) bool {
	if len(v) < 2 || v[0] != '{' {
		return false
	}
	if v[1] == '}' {
		return len(v) == 2
	}
	var last []byte
	for i := 1; ; i++ {
		end := plainString(v, i)
		if end < 0 {
			return false
		}
		key := v[i+1 : end-1]
		if i > 1 && bytes.Compare(last, key) >= 0 {
			return false
		}
		last = key
		if v[end] != ':' {
			return false
		}
		if i = plainScalar(v, end+1); i < 0 {
			return false
		}
		if v[i] != ',' {
			return v[i] == '}' && i == len(v)-1
		}
	}
}

// plainString is where the string at i ends, or -1 when it is no string or has escapes.
func plainString(v []byte, i int) int {
	if v[i] != '"' {
		return -1
	}
	n := bytes.IndexByte(v[i+1:], '"')
	if n < 0 || bytes.IndexByte(v[i+1:i+1+n], '\\') >= 0 {
		return -1
	}
	return i + n + 2
}

// plainScalar is where the scalar at i ends, or -1 when it may not be in canonical form.
func plainScalar(v []byte, i int) int {
	switch c := v[i]; {
	case c == '"':
		return plainString(v, i)
	case c == 't' || c == 'n':
		return i + len("true")
	case c == 'f':
		return i + len("false")
	case c == '-' || c-'0' <= 9:
		return plainNumber(v, i)
	}
	return -1
}

// plainNumber is where the number at i ends, or -1 when it may not be in canonical form. A decimal of at most 15 digits is the only one
// of that length that reads as its float, so that it is the shortest one as soon as it has no zero at its end.
func plainNumber(v []byte, i int) int {
	negative := v[i] == '-'
	if negative {
		i++
	}
	first := i
	for v[i]-'0' <= 9 {
		i++
	}
	whole := v[first:i]
	if v[i] != '.' {
		if v[i]|0x20 == 'e' || negative && string(whole) == "0" || len(whole) == 0 {
			return -1
		}
		return i
	}
	i++
	first = i
	for v[i]-'0' <= 9 {
		i++
	}
	fraction := v[first:i]
	switch {
	case v[i]|0x20 == 'e' || len(whole)+len(fraction) > 15:
		return -1
	case string(fraction) == "0":
		return i
	case fraction[len(fraction)-1] == '0':
		return -1
	case string(whole) == "0" && len(fraction) > 4 && string(fraction[:4]) == "0000":
		return -1 // below 0.0001 the form is another one
	}
	return i
}

// nullNonFinite puts null in the place of every number that is not finite.
func nullNonFinite(value []byte) (finite []byte, changed bool) {
	for i := 0; i < len(value); {
		end := i + 1
		switch c := value[i]; {
		case c == '"':
			end = skipValue(value, i)
		case c == 'N' || c == 'I' || c == '-' || c-'0' <= 9:
			end = skipValue(value, i)
			if isNonFinite(value[i:end]) {
				finite, changed = append(finite, "null"...), true
				i = end
				continue
			}
		}
		finite = append(finite, value[i:end]...)
		i = end
	}
	return finite, changed
}

// isNonFinite says whether a literal is NaN, an infinity or a float that overflows. An integer never does: it keeps its digits.
func isNonFinite(literal []byte) bool {
	if f := (record.Field{Kind: record.Number, Raw: literal}); f.IsInteger() && literal[len(literal)-1]-'0' <= 9 {
		return false
	}
	x := record.ParseFloat(literal)
	return x-x != 0
}
