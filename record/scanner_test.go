package record_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirstream/weir/record"
)

// show writes fields as "kind raw", joined by "; ".
func show(fields []record.Field) string {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = strings.TrimSpace(fmt.Sprintf("%s %s", f.Kind, f.Raw))
	}
	return strings.Join(parts, "; ")
}

func TestScan(t *testing.T) {
	t.Parallel()
	s := record.NewScanner([]string{"a", "b", "é"})
	out := make([]record.Field, 3)
	// One scanner for all documents: what it remembers of one must not show in the next.
	for _, c := range [][2]string{
		{`{}`, "missing; missing; missing"},
		{` { } `, "missing; missing; missing"},
		{`{"a":1,"b":"x","é":true}`, "number 1; string x; true true"},
		{`{"a":1,"b":"x","é":true}`, "number 1; string x; true true"},
		{`{"é":false,"b":null,"a":-0.5e+7}`, "number -0.5e+7; null null; false false"},
		{`{"a":NaN,"b":Infinity,"é":-Infinity}`, "non-finite NaN; non-finite Infinity; non-finite -Infinity"},
		{`{"a":{"b":[1,{"a":2}]},"b":[],"é":[ 1 , "x" ]}`, `object {"b":[1,{"a":2}]}; array []; array [ 1 , "x" ]`},
		{`{"x":1,"a":2,"y":{"a":3},"b":"","é":"é"}`, "number 2; string; string é"},
		{`{"x":1,"x":2,"a":2}`, "number 2; missing; missing"},
		{"\t{\n\"a\" :\r1 , \"b\"\t: 2 }\n", "number 1; number 2; missing"},
		{`{"\u0061":1,"b\u0000":2,"\u00e9":"\ud83d\ude00\/\"\\\n."}`, "number 1; missing; string 😀/\"\\\n."},
		{`{"b":"\u0041","a":"plain","é":"\u0042c"}`, "string plain; string A; string Bc"},
		{`{"a":123456789012345678901234567890,"b":1e400,"é":0}`, "number 123456789012345678901234567890; number 1e400; number 0"},
		{`{"aa":1,"":2,"a ":3,"A":4}`, "missing; missing; missing"},
	} {
		if err := s.Scan([]byte(c[0]), out); err != nil {
			t.Errorf("%s: %v", c[0], err)
		} else if got := show(out); got != c[1] {
			t.Errorf("%s\n got %s\nwant %s", c[0], got, c[1])
		}
	}
}

func TestScanRefuses(t *testing.T) {
	t.Parallel()
	s := record.NewScanner([]string{"a", "b"})
	out := make([]record.Field, 2)
	for _, c := range []struct {
		doc    string
		offset int
		cause  string
	}{
		{"", 0, "the document is empty"},
		{" ", 1, "the document is empty"},
		{"\ufeff{}", 0, "byte order mark"},
		{"null", 0, "expected an object"},
		{"[1]", 0, "expected an object"},
		{`"a"`, 0, "expected an object"},
		{`{"a":1,"a":2}`, 7, `duplicate key "a"`},
		{`{"a":1,"\u0061":2}`, 7, `duplicate key "a"`},
		{`{"a":null,"b":1,"a":null}`, 16, `duplicate key "a"`},
		{`{"a":1} x`, 8, "after the end"},
		{`{"a":1}{}`, 7, "after the end"},
		{"{\"a\":1}\x00", 7, "after the end"},
		{`{"a":1,}`, 7, "nothing follows the comma"},
		{`{"a":1, }`, 8, "nothing follows the comma"},
		{`{"a":1 "b":2}`, 7, "expected ',' or '}'"},
		{`{"a" 1}`, 5, "expected ':'"},
		{`{"a"`, 4, "too early"},
		{`{"a":`, 5, "too early"},
		{`{"a":1`, 6, "too early"},
		{`{"a":1,`, 7, "too early"},
		{`{`, 1, "too early"},
		{`{a:1}`, 1, "expected a key"},
		{`{"c":01}`, 5, "leading zero"},
		{`{"c":-}`, 6, "expected a digit"},
		{`{"c":-`, 6, "too early"},
		{`{"c":-Inf}`, 5, "expected a value"},
		{`{"c":1.}`, 7, "expected a digit"},
		{`{"c":nan}`, 5, "expected a value"},
		{`{"c":tru}`, 5, "expected a value"},
		{`{"c":"x}`, 5, "not closed"},
		{`{"c":"\ud800"}`, 6, "lone surrogate"},
		{`{"\udc00":1}`, 2, "lone surrogate"},
		{"{\"c\":\"\xff\"}", 6, "invalid UTF-8"},
		{"{\"\xff\":1}", 2, "invalid UTF-8"},
		{"{\"c\":\"a\nb\"}", 7, "control character"},
		{`{"c":"\x"}`, 7, "unknown escape"},
		{`{"c":[1,]}`, 8, "nothing follows the comma"},
		{`{"c":[1 2]}`, 8, "expected ',' or ']'"},
		{`{"c":{"d":1,}}`, 12, "nothing follows the comma"},
		{`{"c":{"d" 1}}`, 10, "expected ':'"},
		{`{"c":{d:1}}`, 6, "expected a key"},
		{`{"c":{"d":1 "e":2}}`, 12, "expected ',' or '}'"},
		{`{"c":{"\ud800":1}}`, 7, "lone surrogate"},
		{`{"c":[[[`, 8, "too early"},
	} {
		err := s.Scan([]byte(c.doc), out)
		var e *record.SyntaxError
		if !errors.As(err, &e) || e.Offset != c.offset || !strings.Contains(e.Msg, c.cause) {
			t.Errorf("%+q: %v; want byte %d and %q", c.doc, err, c.offset, c.cause)
		}
	}
}

func TestScanDepth(t *testing.T) {
	t.Parallel()
	s := record.NewScanner([]string{"a"})
	out := make([]record.Field, 1)
	for _, brackets := range [][2]string{{"[", "]"}, {`{"x":`, "}"}} {
		nest := func(levels int) []byte {
			return []byte(`{"a":` + strings.Repeat(brackets[0], levels-1) + "1" + strings.Repeat(brackets[1], levels-1) + "}")
		}
		if err := s.Scan(nest(record.MaxDepth), out); err != nil {
			t.Errorf("512 levels: %v", err)
		}
		if err := s.Scan(nest(record.MaxDepth+1), out); err == nil || !strings.Contains(err.Error(), "512 levels") {
			t.Errorf("513 levels: error %v", err)
		}
	}
	if err := s.Scan([]byte(`{"a":`+strings.Repeat("[", 10_000_000)), out); err == nil {
		t.Error("ten million open brackets were accepted")
	}
}

// TestScanNames: names that need escapes, no fields at all, many fields.
func TestScanNames(t *testing.T) {
	t.Parallel()
	names := []string{`quo"te`, "tab\t", "", "😀", `back\slash`}
	out := make([]record.Field, len(names))
	s := record.NewScanner(names)
	doc := []byte(`{"quo\"te":1,"tab\t":2,"":3,"😀":4,"back\\slash":5}`)
	for range 2 {
		if err := s.Scan(doc, out); err != nil || show(out) != "number 1; number 2; number 3; number 4; number 5" {
			t.Errorf("got %s, %v", show(out), err)
		}
	}
	if err := record.NewScanner(nil).Scan(doc, nil); err != nil {
		t.Errorf("no fields: %v", err)
	}
	names, text := nil, []string(nil)
	for i := range 100 {
		names = append(names, fmt.Sprint("f", i))
		text = append(text, fmt.Sprintf(`"f%d":%d`, 99-i, 99-i))
	}
	s, out = record.NewScanner(names), make([]record.Field, 100)
	if err := s.Scan([]byte("{"+strings.Join(text, ",")+"}"), out); err != nil {
		t.Fatal(err)
	}
	for i, f := range out {
		if string(f.Raw) != fmt.Sprint(i) {
			t.Errorf("field %d is %s", i, f.Raw)
		}
	}
}

// TestScanOrders: fields in any order, left out, spaced and interrupted by fields that come and go give the same as a fresh scanner.
func TestScanOrders(t *testing.T) {
	t.Parallel()
	const seed = 11
	r := rand.New(rand.NewPCG(seed, seed))
	names := []string{"a", "b", "c", "d"}
	s := record.NewScanner(names)
	out := make([]record.Field, len(names))
	for round := range 5000 {
		var members, want []string
		values := map[string]string{}
		for _, i := range r.Perm(8) {
			key := string(rune('a' + i))
			if i >= 4 {
				key = fmt.Sprint("other", r.IntN(200))
			}
			if r.IntN(4) == 0 {
				continue
			}
			space := strings.Repeat(" ", r.IntN(2))
			values[key] = fmt.Sprint(round)
			members = append(members, fmt.Sprintf("%s%q%s:%s%d%s", space, key, space, space, round, space))
		}
		for _, name := range names {
			field := "missing"
			if v, ok := values[name]; ok {
				field = "number " + v
			}
			want = append(want, field)
		}
		doc := "{" + strings.Join(members, ",") + "}"
		if err := s.Scan([]byte(doc), out); err != nil || show(out) != strings.Join(want, "; ") {
			t.Fatalf("seed %d, %s:\n got %s, %v\nwant %s", seed, doc, show(out), err, strings.Join(want, "; "))
		}
	}
}

func TestScanAliases(t *testing.T) {
	t.Parallel()
	s := record.NewScanner([]string{"a", "b", "c"})
	out := make([]record.Field, 3)
	doc := []byte(`{"a":"plain","b":"esc\u0061ped","c":12}`)
	if err := s.Scan(doc, out); err != nil {
		t.Fatal(err)
	}
	if &out[0].Raw[0] != &doc[6] || &out[2].Raw[0] != &doc[36] {
		t.Error("plain text and numbers do not alias the document")
	}
	// Appending to a field must not write into its neighbour.
	for i, f := range out {
		if cap(f.Raw) != len(f.Raw) {
			t.Errorf("field %d has room for %d bytes beyond its end", i, cap(f.Raw)-len(f.Raw))
		}
	}
}

func TestScanAllocatesNothing(t *testing.T) {
	s := record.NewScanner(tickFields)
	out := make([]record.Field, len(tickFields))
	docs := [][]byte{[]byte(tick), []byte(spaced), []byte(`{"venue":"\u0058","instrument":"\u0033","n":{"x":[1,"é"]},"event_id":"e"}`)}
	scanAll := func() {
		for _, doc := range docs {
			if err := s.Scan(doc, out); err != nil {
				t.Fatal(err)
			}
		}
	}
	scanAll()
	if allocs := testing.AllocsPerRun(100, scanAll); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// TestScannerStaysSmall: keys that never come again are not kept, and neither is the room of a huge escaped string.
func TestScannerStaysSmall(t *testing.T) {
	s := record.NewScanner([]string{"a"})
	out := make([]record.Field, 1)
	scan := func(doc string) {
		if err := s.Scan([]byte(doc), out); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		scan(fmt.Sprintf(`{"key%d":1,"a":2}`, i))
	}
	scan(`{"` + strings.Repeat("k", 1<<20) + `":1,"a":2}`)
	scan(`{"a":"\n` + strings.Repeat("v", 1<<20) + `"}`)
	if len(out[0].Raw) != 1<<20+1 {
		t.Fatalf("the long text has %d bytes", len(out[0].Raw))
	}
	scan(`{"a":2}`)
	if keys, text := s.Footprint(); keys > 66 || text > 1<<16 {
		t.Errorf("the scanner keeps %d keys and %d bytes of text", keys, text)
	}
	scan(`{"never":1,"seen":2,"a":3}`)
	if string(out[0].Raw) != "3" {
		t.Errorf("a full scanner reads %s", show(out))
	}
}

func TestFieldIsInteger(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{"0": true, "-12": true, "123456789012345678901234567890": true, "1.0": false, "1e3": false, "1E3": false} {
		if got := (record.Field{Kind: record.Number, Raw: []byte(raw)}).IsInteger(); got != want {
			t.Errorf("%s: IsInteger() = %v", raw, got)
		}
	}
	if (record.Field{Kind: record.String, Raw: []byte("1")}).IsInteger() || (record.Field{Kind: record.NonFinite, Raw: []byte("NaN")}).IsInteger() {
		t.Error("text or NaN counts as an integer")
	}
}

func TestKindString(t *testing.T) {
	t.Parallel()
	if got := fmt.Sprint(record.Missing, record.NonFinite, record.Array, record.Kind(99)); got != "missing non-finite array unknown" {
		t.Errorf("kinds print as %s", got)
	}
}
