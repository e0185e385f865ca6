package record_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/weirstream/weir/record"
)

// addVectors seeds a fuzz target with the inputs of the frozen vectors.
func addVectors(f *testing.F) {
	f.Helper()
	text, err := os.ReadFile("testdata/finaz_json_v1.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		_, rest, _ := strings.Cut(line, " ")
		quoted, err := strconv.QuotedPrefix(strings.TrimLeft(rest, " "))
		if err != nil || line[0] == '#' {
			continue
		}
		input, err := strconv.Unquote(quoted)
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(input))
	}
}

// refusedOnPurpose says whether a refusal is a known difference from encoding/json, which reads such documents: it replaces invalid
// UTF-8 and lone surrogates, takes the last of duplicate keys, nests 10,000 levels deep and, with UseNumber, takes numbers of any size.
func refusedOnPurpose(err error) bool {
	var e *record.SyntaxError
	if !errors.As(err, &e) {
		return false
	}
	for _, cause := range []string{"invalid UTF-8", "lone surrogate", "duplicate key", "nested deeper", "overflows a binary64"} {
		if strings.Contains(e.Msg, cause) {
			return true
		}
	}
	return false
}

// FuzzCanonical: canonical bytes are a fixed point, mean the same as the input, and are the same by way of values; encoding/json agrees
// on what is a document, but for the differences of refusedOnPurpose, and on what it means.
func FuzzCanonical(f *testing.F) {
	addVectors(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		canonical, err := record.Canonical(src)
		value, errDecode := record.Decode(src)
		if (err == nil) != (errDecode == nil) {
			t.Fatalf("Canonical: %v; Decode: %v", err, errDecode)
		}
		if err != nil {
			if json.Valid(src) && !refusedOnPurpose(err) {
				t.Fatalf("refused (%v), but encoding/json reads it", err)
			}
			return
		}
		byValue, err := record.AppendJSON(nil, value)
		if err != nil || !bytes.Equal(byValue, canonical) {
			t.Fatalf("AppendJSON gives %s, %v; Canonical %s", byValue, err, canonical)
		}
		if again, err := record.Canonical(canonical); err != nil || !bytes.Equal(again, canonical) {
			t.Fatalf("canonical bytes %s become %s, %v", canonical, again, err)
		}
		if back, err := record.Decode(canonical); err != nil || !reflect.DeepEqual(back, value) {
			t.Fatalf("canonical bytes mean %#v, %v; the input %#v", back, err, value)
		}
		if std := decodeStd(t, src); !reflect.DeepEqual(std, value) {
			t.Fatalf("encoding/json reads %#v, Decode %#v", std, value)
		}
		if std := decodeStd(t, canonical); !reflect.DeepEqual(std, value) {
			t.Fatalf("encoding/json reads the canonical bytes as %#v, want %#v", std, value)
		}
	})
}

// decodeStd has encoding/json decode a document, with numbers turned into what Decode gives.
func decodeStd(t *testing.T, src []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(src))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses what was read: %v", err)
	}
	return numbersStd(t, v)
}

func numbersStd(t *testing.T, v any) any {
	t.Helper()
	switch v := v.(type) {
	case json.Number:
		if v == "-0" {
			return record.Integer("0")
		}
		if !strings.ContainsAny(string(v), ".eE") {
			return record.Integer(v)
		}
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil {
			t.Fatal(err)
		}
		return f
	case []any:
		for i := range v {
			v[i] = numbersStd(t, v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = numbersStd(t, v[key])
		}
	}
	return v
}

// FuzzScan compares with encoding/json. Known differences: the tokens NaN, Infinity and -Infinity are read, and documents are refused
// as in refusedOnPurpose, duplicates only of named fields. A scanner that has read other documents before reads the same.
func FuzzScan(f *testing.F) {
	addVectors(f)
	for _, s := range []string{tick, spaced, `{"a":NaN,"id":-Infinity,"x":[Infinity]}`, `{"\u0061":"\u0062","é":"NaN","id":"1","a b":2}`} {
		f.Add([]byte(s))
	}
	names := []string{"a", "b", "é", "event_id", "close"}
	used := record.NewScanner(names)
	out, fresh := make([]record.Field, len(names)), make([]record.Field, len(names))
	f.Fuzz(func(t *testing.T, doc []byte) {
		err := used.Scan(doc, out)
		errFresh := record.NewScanner(names).Scan(doc, fresh)
		if (err == nil) != (errFresh == nil) || err != nil && err.Error() != errFresh.Error() {
			t.Fatalf("%v; a fresh scanner: %v", err, errFresh)
		}
		std := withoutNonFinite(doc)
		if err != nil {
			object := bytes.HasPrefix(bytes.TrimLeft(std, " \t\r\n"), []byte("{"))
			if object && json.Valid(std) && !refusedOnPurpose(err) {
				t.Fatalf("refused (%v), but encoding/json reads it", err)
			}
			return
		}
		if !reflect.DeepEqual(out, fresh) {
			t.Fatalf("%s; a fresh scanner: %s", show(out), show(fresh))
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(std, &want); err != nil {
			t.Fatalf("encoding/json refuses what was read: %v", err)
		}
		for i, name := range names {
			checkField(t, name, out[i], want[name])
		}
	})
}

// checkField compares a field with the raw JSON that encoding/json found under its name, nil when there is none.
func checkField(t *testing.T, name string, got record.Field, want json.RawMessage) {
	t.Helper()
	text := string(got.Raw)
	switch got.Kind {
	case record.Missing:
		if want != nil {
			t.Fatalf("%s is missing, want %s", name, want)
		}
	case record.NonFinite:
		if string(want) != "null" {
			t.Fatalf("%s is %s, want %s", name, text, want)
		}
	case record.String:
		var s string
		if err := json.Unmarshal(want, &s); err != nil || s != text {
			t.Fatalf("%s is the text %q, want %s", name, text, want)
		}
	default:
		if stripped := string(withoutNonFinite(got.Raw)); stripped != string(want) {
			t.Fatalf("%s is %s, want %s", name, stripped, want)
		}
		first := map[byte]record.Kind{'n': record.Null, 't': record.True, 'f': record.False, '{': record.Object, '[': record.Array}
		if kind, ok := first[text[0]]; ok && kind != got.Kind || !ok && got.Kind != record.Number {
			t.Fatalf("%s is %s and of the kind %s", name, text, got.Kind)
		}
	}
}

// withoutNonFinite puts null where NaN, Infinity and -Infinity stand as values, so that encoding/json can read the rest.
func withoutNonFinite(doc []byte) []byte {
	var out []byte
	inString := false
	for i := 0; i < len(doc); i++ {
		switch rest := doc[i:]; {
		case inString && doc[i] == '\\' && i+1 < len(doc):
			out = append(out, doc[i])
			i++
		case doc[i] == '"':
			inString = !inString
		case inString:
		case bytes.HasPrefix(rest, []byte("NaN")):
			out = append(out, "null"...)
			i += len("NaN") - 1
			continue
		case bytes.HasPrefix(rest, []byte("-Infinity")):
			out = append(out, "null"...)
			i += len("-Infinity") - 1
			continue
		case bytes.HasPrefix(rest, []byte("Infinity")):
			out = append(out, "null"...)
			i += len("Infinity") - 1
			continue
		}
		out = append(out, doc[i])
	}
	return out
}

// FuzzParseFloat compares with strconv on every JSON number.
func FuzzParseFloat(f *testing.F) {
	for _, s := range []string{"0", "-0", "-0.0", "1", "101.25", "9007199254740993", "9007199254740992", "9007199254740993.0", "0.1234567890123456789",
		"1e22", "1e23", "1.7976931348623159e308", "5e-324", "2.4703282292062328e-324", "0.00000000000000000000001", "12345678901234567890",
		"18446744073709551617", "0.30000000000000004", "123456.7890123", "1E+05", "-1e-7", "900719925474099.25", "0000001"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got := record.ParseFloat(raw)
		if !json.Valid(raw) || raw[0] != '-' && raw[0]-'0' > 9 || raw[len(raw)-1]-'0' > 9 {
			return // only numbers: the contract says nothing about anything else
		}
		want, err := strconv.ParseFloat(string(raw), 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			t.Fatal(err)
		}
		if math.Float64bits(got) != math.Float64bits(want) {
			t.Fatalf("ParseFloat(%s) = %x, want %x", raw, got, want)
		}
	})
}
