package record

import "slices"

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
//
// Producers write the fields of a record in the same order every time. So the scanner remembers which key followed which, and where it
// guesses right, one comparison replaces finding the end of a key and looking the key up.
type Scanner struct {
	fields []string
	// keys are the keys seen; keys[0] stands for the opening brace.
	keys []knownKey
	// text holds unescaped strings of the last document.
	text []byte
}

// knownKey is a key as a compact document writes it.
type knownKey struct {
	// text is the quoted key with its colon.
	text string
	// field is the index of the named field, or -1.
	field int
	// next is the index of the key that followed last time, or 0.
	next int
}

// What a scanner keeps from one document to the next is bounded, whatever the documents hold: keys that nobody named, the length of
// each, and the bytes of unescaped text.
const (
	maxKnownKeys = 64
	maxKnownKey  = 64
	maxScratch   = 1 << 16
)

// NewScanner makes a scanner for top-level fields. The names must differ.
func NewScanner(fields []string) *Scanner {
	s := &Scanner{fields: slices.Clone(fields), keys: []knownKey{{field: -1}}}
	for i, name := range fields {
		s.keys = append(s.keys, knownKey{text: string(AppendString(nil, name)) + ":", field: i, next: (i + 2) % (len(fields) + 1)})
	}
	s.keys[0].next = min(1, len(fields))
	return s
}

// Scan reads one document, which must be an object, validates all of it, and puts what stands in field i of NewScanner's list into
// out[i]; out must have that length. The error is a *SyntaxError; out is then undefined. A named field that stands twice is an error.
func (s *Scanner) Scan(doc []byte, out []Field) error {
	clear(out)
	if s.text = s.text[:0]; cap(s.text) > maxScratch {
		s.text = nil
	}
	var spare Field // takes the values that nobody named
	i, more, f := open(doc)
	for last := 0; more && f == faultNone; {
		at := i
		key := &s.keys[s.keys[last].next]
		if n := len(key.text); n > 0 && n < len(doc)-i && string(doc[i:i+n]) == key.text {
			last = s.keys[last].next
			i += n
		} else if last, i, f = s.learn(doc, i, last); f != faultNone {
			break
		}
		field := &spare
		if n := s.keys[last].field; n >= 0 {
			if field = &out[n]; field.Kind != Missing {
				return refuseDuplicate(doc, at, s.fields[n])
			}
		}
		if i < len(doc) && doc[i] <= ' ' {
			i = skipSpace(doc, i)
		}
		if i, f = s.value(doc, i, field); f == faultNone {
			i, more, f = next(doc, i, '}', faultObjectNext)
		}
	}
	if f == faultNone {
		if i = skipSpace(doc, i); i == len(doc) {
			return nil
		}
		f = faultTrailing
	}
	return refuse(doc, i, f)
}

// open reads the opening brace of a document. more says that something follows before the closing one, which is read too otherwise.
func open(doc []byte) (end int, more bool, f fault) {
	end, f = start(doc)
	if f == faultNone && doc[end] != '{' {
		f = faultNotObject
	}
	if f != faultNone {
		return end, false, f
	}
	if end = skipSpace(doc, end+1); end < len(doc) && doc[end] == '}' {
		return end + 1, false, faultNone
	}
	return end, true, faultNone
}

// learn reads a key and the colon after it, and remembers that it followed the key last. known is 0 for a key that is not
// remembered.
func (s *Scanner) learn(doc []byte, i, last int) (known, end int, f fault) {
	if i >= len(doc) || doc[i] != '"' {
		return 0, i, faultKey
	}
	end, escaped, f := scanString(doc, i+1)
	if f != faultNone {
		return 0, end, f
	}
	name := s.unescape(doc[i+1:end], escaped)
	if end = skipSpace(doc, end+1); end >= len(doc) || doc[end] != ':' {
		return 0, end, faultColon
	}
	if known = s.find(name); known == 0 && !escaped && len(s.keys) < maxKnownKeys+len(s.fields) && len(name) <= maxKnownKey {
		known = len(s.keys)
		s.keys = append(s.keys, knownKey{text: `"` + string(name) + `":`, field: -1})
	}
	s.keys[last].next = known
	return known, end + 1, faultNone
}

// find is the index of a known key by its text, or 0.
func (s *Scanner) find(name []byte) int {
	for k, key := range s.keys {
		if key.field >= 0 && s.fields[key.field] == string(name) {
			return k
		}
		if key.field < 0 && len(key.text) == len(name)+len(`"":`) && key.text[1:1+len(name)] == string(name) {
			return k
		}
	}
	return 0
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
		field.Kind, field.Raw = String, s.unescape(doc[i+1:end:end], escaped)
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
	case c-'0' <= 9 || c == '-' && (i+1 == len(doc) || doc[i+1] != 'I'):
		end, _, f = scanNumber(doc, i)
		return end, Number, f
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
	return i, Missing, faultValue
}

func skipArray(doc []byte, i, depth int) (end int, f fault) {
	if i = skipSpace(doc, i); i < len(doc) && doc[i] == ']' {
		return i + 1, faultNone
	}
	for more := true; more && f == faultNone; {
		if i, _, f = skipValue(doc, i, depth); f == faultNone {
			i, more, f = next(doc, i, ']', faultArrayNext)
		}
	}
	return i, f
}

func skipObject(doc []byte, i, depth int) (end int, f fault) {
	if i = skipSpace(doc, i); i < len(doc) && doc[i] == '}' {
		return i + 1, faultNone
	}
	for more := true; more && f == faultNone; {
		if i >= len(doc) || doc[i] != '"' {
			return i, faultKey
		}
		if i, _, f = scanString(doc, i+1); f != faultNone {
			return i, f
		}
		if i = skipSpace(doc, i+1); i >= len(doc) || doc[i] != ':' {
			return i, faultColon
		}
		if i, _, f = skipValue(doc, skipSpace(doc, i+1), depth); f == faultNone {
			i, more, f = next(doc, i, '}', faultObjectNext)
		}
	}
	return i, f
}
