package record

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// EncodeError says which part of a value cannot be written as canonical JSON, and why.
type EncodeError struct {
	// Path leads to the part: ".values[3]"; "" is the whole value.
	Path string
	Msg  string
}

func (e *EncodeError) Error() string {
	if e.Path == "" {
		return "cannot encode: " + e.Msg
	}
	return "cannot encode " + e.Path + ": " + e.Msg
}

// within prefixes the path of an error with the step that led to it.
func within(err error, step string) error {
	if e, ok := err.(*EncodeError); ok {
		e.Path = step + e.Path
	}
	return err
}

// AppendJSON appends the canonical form of v to dst: nil, bool, string, float64, [Integer], the Go integers, []any, []string,
// []float64, []int64, map[string]any, map[string]string, map[string]int64 and whatever of these is nested in []any and
// map[string]any. A nil slice is [], a nil map {}. The error is an *EncodeError: a type not named here, a float that is not finite,
// text that is not UTF-8, an Integer that is not one, or more than MaxDepth levels. dst is then undefined.
func AppendJSON(dst []byte, v any) ([]byte, error) { return appendValue(dst, v, MaxDepth) }

// appendValue writes v; levels is how many levels of nesting are left.
func appendValue(dst []byte, v any, levels int) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case string:
		return appendText(dst, v)
	case float64:
		return appendFinite(dst, v)
	case Integer:
		return appendInteger(dst, v)
	case int:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case int8:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case int16:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case int32:
		return strconv.AppendInt(dst, int64(v), 10), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case uint:
		return strconv.AppendUint(dst, uint64(v), 10), nil
	case uint8:
		return strconv.AppendUint(dst, uint64(v), 10), nil
	case uint16:
		return strconv.AppendUint(dst, uint64(v), 10), nil
	case uint32:
		return strconv.AppendUint(dst, uint64(v), 10), nil
	case uint64:
		return strconv.AppendUint(dst, v, 10), nil
	}
	if levels == 0 {
		return dst, &EncodeError{Msg: faultText[faultDepth]}
	}
	return appendComposite(dst, v, levels-1)
}

func appendComposite(dst []byte, v any, levels int) ([]byte, error) {
	switch v := v.(type) {
	case []any:
		return appendList(dst, v, levels)
	case []string:
		return appendList(dst, v, levels)
	case []float64:
		return appendList(dst, v, levels)
	case []int64:
		return appendList(dst, v, levels)
	case []map[string]any:
		return appendList(dst, v, levels)
	case map[string]any:
		return appendMap(dst, v, levels)
	case map[string]string:
		return appendMap(dst, v, levels)
	case map[string]int64:
		return appendMap(dst, v, levels)
	}
	return dst, &EncodeError{Msg: fmt.Sprintf("a %T has no JSON form here", v)}
}

func appendList[T any](dst []byte, list []T, levels int) ([]byte, error) {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendValue(dst, v, levels); err != nil {
			return dst, within(err, fmt.Sprintf("[%d]", i))
		}
	}
	return append(dst, ']'), nil
}

func appendMap[T any](dst []byte, members map[string]T, levels int) ([]byte, error) {
	keys := make([]string, 0, len(members))
	for key := range members {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, cmp.Compare) // UTF-8 bytes sort as code points do
	dst = append(dst, '{')
	for i, key := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendText(dst, key); err != nil {
			return dst, err
		}
		dst = append(dst, ':')
		if dst, err = appendValue(dst, members[key], levels); err != nil {
			return dst, within(err, "."+key)
		}
	}
	return append(dst, '}'), nil
}

func appendText(dst []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return dst, &EncodeError{Msg: fmt.Sprintf("text %+.60q is not UTF-8", s)}
	}
	return AppendString(dst, s), nil
}

func appendFinite(dst []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, &EncodeError{Msg: fmt.Sprintf("%v is not a finite number", f)}
	}
	return AppendFloat(dst, f), nil
}

func appendInteger(dst []byte, n Integer) ([]byte, error) {
	at := len(dst)
	dst = append(dst, n...)
	if n != "" && (n[0] == '-' || n[0]-'0' <= 9) {
		if end, integer, f := scanNumber(dst, at); f == faultNone && integer && end == len(dst) && n != "-0" {
			return dst, nil
		}
	}
	return dst[:at], &EncodeError{Msg: fmt.Sprintf("%.60q is not a canonical integer", string(n))}
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string with the least escaping: '"', '\' and control characters only. s should be UTF-8: a byte
// that is not part of a character is written as U+FFFD, so that the result is JSON all the same (AppendJSON refuses such text).
func AppendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	plain := 0 // s[plain:i] needs no escape
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[plain:i]...), "\ufffd"...)
				plain = i + 1
			}
			i += n
			continue
		}
		dst = appendEscape(append(dst, s[plain:i]...), c)
		i++
		plain = i
	}
	return append(append(dst, s[plain:]...), '"')
}

// appendEscape writes one of the characters that must be escaped.
func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
