package record

// Kind is what stands in a field of a record.
type Kind uint8

// The kinds of a field.
const (
	// Missing: the document has no such field.
	Missing Kind = iota
	// Null is the JSON null.
	Null
	// String: Raw is the unescaped text.
	String
	// Number: Raw is the literal, a JSON number of any size; see ParseFloat and Field.IsInteger.
	Number
	// NonFinite: Raw is the token NaN, Infinity or -Infinity, which is not JSON but is written by producers.
	NonFinite
	// True is the JSON true.
	True
	// False is the JSON false.
	False
	// Object: Raw is the text of the object, validated, not unescaped.
	Object
	// Array: Raw is the text of the array, validated, not unescaped.
	Array
)

var kindNames = [...]string{"missing", "null", "string", "number", "non-finite", "true", "false", "object", "array"}

// String is the kind in lower case, for messages.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Field is one field of a scanned document.
type Field struct {
	Kind Kind
	// Raw aliases the document, or for a string with escapes the scanner's own memory: it is valid until the next Scan, and as long
	// as the document is.
	Raw []byte
}

// IsInteger says whether the field is a number written without point and exponent. It may have any size.
func (f Field) IsInteger() bool {
	if f.Kind != Number {
		return false
	}
	for _, c := range f.Raw {
		if c == '.' || c|0x20 == 'e' {
			return false
		}
	}
	return true
}

// Scanner reads named fields out of JSON objects, one document after another, without allocating. It is for one goroutine.
type Scanner struct {
	fields []string
	text   []byte // unescaped strings of the last document
}

// NewScanner makes a scanner for top-level fields. The names must differ.
func NewScanner(fields []string) *Scanner {
	return &Scanner{fields: append([]string(nil), fields...)}
}

// Scan reads one document, which must be an object, validates all of it, and puts what stands in field i of NewScanner's list into
// out[i]; out must have that length. The error is a *SyntaxError; out is then undefined. A named field that stands twice is an error.
func (s *Scanner) Scan(doc []byte, out []Field) error {
	for i := range out {
		out[i] = Field{}
	}
	s.text = s.text[:0]
	i, f := start(doc)
	if f == faultNone && doc[i] != '{' {
		f = faultNotObject
	}
	if f != faultNone {
		return refuse(doc, i, f)
	}
	if i = skipSpace(doc, i+1); i < len(doc) && doc[i] == '}' {
		return s.end(doc, i+1)
	}
	for {
		at := i
		name, i2, f := s.name(doc, i)
		if f != faultNone {
			return refuse(doc, i2, f)
		}
		field := &Field{}
		if n := s.lookup(name); n >= 0 {
			if field = &out[n]; field.Kind != Missing {
				return refuseDuplicate(doc, at, s.fields[n])
			}
		}
		if i, f = s.value(doc, skipSpace(doc, i2), field); f != faultNone {
			return refuse(doc, i, f)
		}
		i = skipSpace(doc, i)
		switch {
		case i < len(doc) && doc[i] == ',':
			if i = skipSpace(doc, i+1); i < len(doc) && doc[i] == '}' {
				return refuse(doc, i, faultTrailingComma)
			}
		case i < len(doc) && doc[i] == '}':
			return s.end(doc, i+1)
		default:
			return refuse(doc, i, faultObjectNext)
		}
	}
}

func (s *Scanner) end(doc []byte, i int) error {
	if i = skipSpace(doc, i); i != len(doc) {
		return refuse(doc, i, faultTrailing)
	}
	return nil
}

func (s *Scanner) lookup(name []byte) int {
	for i, f := range s.fields {
		if f == string(name) {
			return i
		}
	}
	return -1
}

// name reads a key and the colon after it.
func (s *Scanner) name(doc []byte, i int) (name []byte, end int, f fault) {
	if i >= len(doc) || doc[i] != '"' {
		return nil, i, faultKey
	}
	end, escaped, f := scanString(doc, i+1)
	if f != faultNone {
		return nil, end, f
	}
	name = s.unescape(doc[i+1:end], escaped)
	if end = skipSpace(doc, end+1); end >= len(doc) || doc[end] != ':' {
		return nil, end, faultColon
	}
	return name, end + 1, faultNone
}

func (s *Scanner) unescape(raw []byte, escaped bool) []byte {
	if !escaped {
		return raw
	}
	at := len(s.text)
	s.text = appendUnescaped(s.text, raw)
	return s.text[at:len(s.text):len(s.text)]
}

// value reads the value of a top-level field.
func (s *Scanner) value(doc []byte, i int, field *Field) (end int, f fault) {
	if i < len(doc) && doc[i] == '"' {
		end, escaped, f := scanString(doc, i+1)
		if f != faultNone {
			return end, f
		}
		field.Kind, field.Raw = String, s.unescape(doc[i+1:end], escaped)
		return end + 1, faultNone
	}
	end, field.Kind, f = skipValue(doc, i, 1)
	if f == faultNone {
		field.Raw = doc[i:end:end]
	}
	return end, f
}

// skipValue validates a value and says what it is; depth is the number of arrays and objects around it.
func skipValue(doc []byte, i, depth int) (end int, kind Kind, f fault) {
	if i >= len(doc) {
		return i, Missing, faultEnd
	}
	switch c := doc[i]; {
	case c == '"':
		if end, _, f = scanString(doc, i+1); f == faultNone {
			end++
		}
		return end, String, f
	case c == '{' || c == '[':
		if depth == MaxDepth {
			return i, Missing, faultDepth
		}
		if c == '[' {
			end, f = skipArray(doc, i+1, depth+1)
			return end, Array, f
		}
		end, f = skipObject(doc, i+1, depth+1)
		return end, Object, f
	case c == 't':
		end, f = word(doc, i, "true")
		return end, True, f
	case c == 'f':
		end, f = word(doc, i, "false")
		return end, False, f
	case c == 'n':
		end, f = word(doc, i, "null")
		return end, Null, f
	}
	if n := nonFinite(doc, i); n > 0 {
		return i + n, NonFinite, faultNone
	}
	if c := doc[i]; c != '-' && c-'0' > 9 {
		return i, Missing, faultValue
	}
	end, _, f = scanNumber(doc, i)
	return end, Number, f
}

func skipArray(doc []byte, i, depth int) (end int, f fault) {
	if i = skipSpace(doc, i); i < len(doc) && doc[i] == ']' {
		return i + 1, faultNone
	}
	for {
		if i, _, f = skipValue(doc, skipSpace(doc, i), depth); f != faultNone {
			return i, f
		}
		i = skipSpace(doc, i)
		switch {
		case i < len(doc) && doc[i] == ',':
			if i = skipSpace(doc, i+1); i < len(doc) && doc[i] == ']' {
				return i, faultTrailingComma
			}
		case i < len(doc) && doc[i] == ']':
			return i + 1, faultNone
		default:
			return i, faultArrayNext
		}
	}
}

func skipObject(doc []byte, i, depth int) (end int, f fault) {
	if i = skipSpace(doc, i); i < len(doc) && doc[i] == '}' {
		return i + 1, faultNone
	}
	for {
		if i >= len(doc) || doc[i] != '"' {
			return i, faultKey
		}
		if i, _, f = scanString(doc, i+1); f != faultNone {
			return i, f
		}
		if i = skipSpace(doc, i+1); i >= len(doc) || doc[i] != ':' {
			return i, faultColon
		}
		if i, _, f = skipValue(doc, skipSpace(doc, i+1), depth); f != faultNone {
			return i, f
		}
		i = skipSpace(doc, i)
		switch {
		case i < len(doc) && doc[i] == ',':
			if i = skipSpace(doc, i+1); i < len(doc) && doc[i] == '}' {
				return i, faultTrailingComma
			}
		case i < len(doc) && doc[i] == '}':
			return i + 1, faultNone
		default:
			return i, faultObjectNext
		}
	}
}
