package record_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/weirstream/weir/record"
)

// frozen are the digests of the vectors. A vector never changes; a new one is added together with the new digest.
var frozen = map[string]string{
	"testdata/finaz_json_v1.txt":        "sha256:7b44f5252bfe12ca2fbff337cd97106e58e7b58f0197295198ee0045562ce2c8",
	"testdata/finaz_json_v1_floats.txt": "sha256:7c08924867aee2f3e937af8f5ad92d62aa7299eb26bf1a552deb34de9800f2bd",
}

// frozenLines reads the lines of a file of vectors, after checking its digest.
func frozenLines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := record.Hash(text); got != frozen[file] {
		t.Fatalf("%s has the digest %s, not the frozen %s", file, got, frozen[file])
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

// unquote takes a text in Go syntax from the front of a line.
func unquote(t *testing.T, line string) (text, rest string) {
	t.Helper()
	line = strings.TrimLeft(line, " ")
	quoted, err := strconv.QuotedPrefix(line)
	if err != nil {
		t.Fatalf("%v in line %s", err, line)
	}
	text, err = strconv.Unquote(quoted)
	if err != nil {
		t.Fatalf("%v in line %s", err, line)
	}
	return text, line[len(quoted):]
}

func TestFrozenVectors(t *testing.T) {
	t.Parallel()
	accepted, refused := 0, 0
	for _, line := range frozenLines(t, "testdata/finaz_json_v1.txt") {
		kind, rest, _ := strings.Cut(line, " ")
		input, rest := unquote(t, rest)
		switch kind {
		case "ok":
			accepted++
			want, _ := unquote(t, rest)
			checkAccepted(t, input, want)
		case "bad":
			refused++
			rest = strings.TrimLeft(rest, " ")
			digits, rest, _ := strings.Cut(rest, " ")
			offset, err := strconv.Atoi(digits)
			if err != nil {
				t.Fatalf("%v in line %s", err, line)
			}
			cause, _ := unquote(t, rest)
			checkRefused(t, input, offset, cause)
		default:
			t.Fatalf("line %q is neither ok nor bad", line)
		}
	}
	if accepted != 208 || refused != 118 {
		t.Errorf("read %d accepted and %d refused vectors, want 208 and 118", accepted, refused)
	}
}

func checkAccepted(t *testing.T, input, want string) {
	t.Helper()
	got, err := record.Canonical([]byte(input))
	if err != nil || string(got) != want {
		t.Errorf("Canonical(%+q) = %+q, %v; want %+q", input, got, err, want)
	}
	v, err := record.Decode([]byte(input))
	if err != nil {
		t.Errorf("Decode(%+q): %v", input, err)
		return
	}
	if got, err := record.AppendJSON(nil, v); err != nil || string(got) != want {
		t.Errorf("AppendJSON(Decode(%+q)) = %+q, %v; want %+q", input, got, err, want)
	}
	if again, err := record.Canonical([]byte(want)); err != nil || string(again) != want {
		t.Errorf("Canonical(%+q) = %+q, %v: not a fixed point", want, again, err)
	}
}

func checkRefused(t *testing.T, input string, offset int, cause string) {
	t.Helper()
	_, errDecode := record.Decode([]byte(input))
	_, errCanonical := record.Canonical([]byte(input))
	for _, err := range []error{errDecode, errCanonical} {
		var e *record.SyntaxError
		if !errors.As(err, &e) {
			t.Errorf("%+q: error %v, want a *SyntaxError", input, err)
			continue
		}
		if e.Offset != offset || !strings.Contains(e.Msg, cause) {
			t.Errorf("%+q: %v; want byte %d and %q", input, e, offset, cause)
		}
	}
}

func TestFrozenFloats(t *testing.T) {
	t.Parallel()
	lines := frozenLines(t, "testdata/finaz_json_v1_floats.txt")
	for _, line := range lines {
		hex, want, _ := strings.Cut(line, " ")
		bits, err := strconv.ParseUint(hex, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		f := math.Float64frombits(bits)
		checkFloat(t, f, want)
		checkFloat(t, -f, "-"+want)
	}
	if len(lines) < 1000 {
		t.Errorf("%d floats: some are gone", len(lines))
	}
}

func checkFloat(t *testing.T, f float64, want string) {
	t.Helper()
	if got := string(record.AppendFloat(nil, f)); got != want {
		t.Errorf("AppendFloat(%x) = %s, want %s", f, got, want)
	}
	if back := record.ParseFloat([]byte(want)); math.Float64bits(back) != math.Float64bits(f) {
		t.Errorf("ParseFloat(%s) = %x, want %x", want, back, f)
	}
	checkAccepted(t, want, want)
}

func TestGoldenValuesHash(t *testing.T) {
	t.Parallel()
	got, err := record.AppendJSON(nil, []any{nil, nil, 2.0, 3.0, 4.0, 5.0})
	if err != nil {
		t.Fatal(err)
	}
	if want := "sha256:9e906a09a1c594964c16291a77cb38b0ffb021e69c230d71d1dd77ebbd6a7877"; record.Hash(got) != want {
		t.Fatalf("%s has the hash %s, want %s", got, record.Hash(got), want)
	}
}

func TestDepth(t *testing.T) {
	t.Parallel()
	for _, brackets := range [][2]string{{"[", "]"}, {`{"a":`, "}"}} {
		nest := func(n int) string {
			return strings.Repeat(brackets[0], n) + "1" + strings.Repeat(brackets[1], n)
		}
		deepest := nest(record.MaxDepth)
		checkAccepted(t, deepest, deepest)
		checkRefused(t, nest(record.MaxDepth+1), record.MaxDepth*len(brackets[0]), "nested deeper than 512 levels")
	}
	var v any = 1.0
	for range record.MaxDepth {
		v = []any{v}
	}
	if _, err := record.AppendJSON(nil, v); err != nil {
		t.Errorf("512 levels: %v", err)
	}
	if _, err := record.AppendJSON(nil, map[string]any{"a": v}); err == nil || !strings.Contains(err.Error(), "512 levels") {
		t.Errorf("513 levels: error %v", err)
	}
	cycle := map[string]any{}
	cycle["self"] = cycle
	if _, err := record.AppendJSON(nil, cycle); err == nil {
		t.Error("a value that holds itself was encoded")
	}
}

func TestDecodeTypes(t *testing.T) {
	t.Parallel()
	got, err := record.Decode([]byte(`{"a":[null,true,false,"x\u0079",1.50,15e-1,-7e0,9007199254740993,-0,{},[]]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"a": []any{nil, true, false, "xy", 1.5, 1.5, -7.0, record.Integer("9007199254740993"),
		record.Integer("0"), map[string]any{}, []any{}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v\nwant %#v", got, want)
	}
}

func TestDecodeKeepsNothingOfItsInput(t *testing.T) {
	t.Parallel()
	src := []byte(`{"key":["text",12,1.5]}`)
	got, err := record.Decode(src)
	if err != nil {
		t.Fatal(err)
	}
	clear(src)
	want := map[string]any{"key": []any{"text", record.Integer("12"), 1.5}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("after the input was overwritten: %#v", got)
	}
}

func TestSyntaxErrorNamesThePlace(t *testing.T) {
	t.Parallel()
	_, err := record.Decode([]byte("{\n  \"close\": 1.5,\n  \"volume\": 01\n}"))
	want := &record.SyntaxError{Offset: 30, Line: 3, Column: 13, Msg: "a number has a needless leading zero"}
	var got *record.SyntaxError
	if !errors.As(err, &got) || *got != *want {
		t.Fatalf("got %+v, want %+v", err, want)
	}
	if text := "line 3, column 13 (byte 30): a number has a needless leading zero"; got.Error() != text {
		t.Errorf("message %q, want %q", got, text)
	}
}

func TestAppendJSONTypes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v    any
		want string
	}{
		{nil, "null"}, {true, "true"}, {"é", `"é"`}, {1.0, "1.0"}, {math.Copysign(0, -1), "-0.0"},
		{record.Integer("-12"), "-12"}, {record.Integer("0"), "0"},
		{-1, "-1"}, {int8(-2), "-2"}, {int16(-3), "-3"}, {int32(-4), "-4"}, {int64(math.MinInt64), "-9223372036854775808"},
		{uint(1), "1"}, {uint8(2), "2"}, {uint16(3), "3"}, {uint32(4), "4"}, {uint64(math.MaxUint64), "18446744073709551615"},
		{[]any(nil), "[]"}, {[]string{"b", "a"}, `["b","a"]`}, {[]float64{1, 0.5}, "[1.0,0.5]"}, {[]int64{1, -2}, "[1,-2]"},
		{[]map[string]any{{"a": 1}, nil}, `[{"a":1},{}]`},
		{map[string]any{"b": []string{}, "a": nil}, `{"a":null,"b":[]}`},
		{map[string]string{"b": "x", "a": "y"}, `{"a":"y","b":"x"}`},
		{map[string]int64{"2": 1, "10": 2}, `{"10":2,"2":1}`},
	} {
		got, err := record.AppendJSON([]byte("="), c.v)
		if err != nil || string(got) != "="+c.want {
			t.Errorf("AppendJSON(%#v) = %s, %v; want =%s", c.v, got, err, c.want)
		}
	}
}

func TestAppendJSONErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v    any
		want string
	}{
		{math.NaN(), "cannot encode: NaN is not a finite number"},
		{map[string]any{"values": []any{1.0, math.Inf(-1)}}, "cannot encode .values[1]: -Inf is not a finite number"},
		{[]float64{math.Inf(1)}, "cannot encode [0]: +Inf is not a finite number"},
		{[]string{"ok", "a\xff"}, `cannot encode [1]: text "a\xff" is not UTF-8`},
		{map[string]any{"\xff": 1}, `cannot encode: text "\xff" is not UTF-8`},
		{float32(1), "cannot encode: a float32 has no JSON form here"},
		{struct{}{}, "cannot encode: a struct {} has no JSON form here"},
		{record.Integer("01"), `cannot encode: "01" is not a canonical integer`},
		{record.Integer("-0"), `cannot encode: "-0" is not a canonical integer`},
		{record.Integer(""), `cannot encode: "" is not a canonical integer`},
		{record.Integer("1.0"), `cannot encode: "1.0" is not a canonical integer`},
		{record.Integer("1 "), `cannot encode: "1 " is not a canonical integer`},
		{record.Integer("-"), `cannot encode: "-" is not a canonical integer`},
	} {
		_, err := record.AppendJSON(nil, c.v)
		var e *record.EncodeError
		if !errors.As(err, &e) || e.Error() != c.want {
			t.Errorf("AppendJSON(%#v): %v; want %s", c.v, err, c.want)
		}
	}
}

func TestAppendStringRepairsUTF8(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"a\xffb", "\"a\ufffdb\""}, {"\xe2\x82", "\"\ufffd\ufffd\""}, {"\xed\xa0\x80", "\"\ufffd\ufffd\ufffd\""}, {"\ufffd", "\"\ufffd\""},
		{"é\xc3", "\"é\ufffd\""},
	} {
		if got := record.AppendString(nil, c[0]); string(got) != c[1] {
			t.Errorf("AppendString(%+q) = %+q, want %+q", c[0], got, c[1])
		}
		if got := record.AppendString(nil, []byte(c[0])); string(got) != c[1] {
			t.Errorf("AppendString([]byte(%+q)) = %+q, want %+q", c[0], got, c[1])
		}
	}
}

func TestAppendCanonicalAppends(t *testing.T) {
	t.Parallel()
	dst := []byte("before ")
	for _, doc := range []string{`{"b":{"d":1,"c":2},"a":0}`, `[{"z":1,"y":[{"x":1,"w":2}]}]`} {
		var err error
		if dst, err = record.AppendCanonical(dst, []byte(doc)); err != nil {
			t.Fatal(err)
		}
	}
	if want := `before {"a":0,"b":{"c":2,"d":1}}[{"y":[{"w":2,"x":1}],"z":1}]`; string(dst) != want {
		t.Errorf("got  %s\nwant %s", dst, want)
	}
}

func TestCanonicalManyMembers(t *testing.T) {
	t.Parallel()
	// More members than fit the canonicalizer's first memory, in reverse, each an object in reverse.
	const n = 100
	var doc, want []string
	for i := range n {
		doc = append(doc, fmt.Sprintf(`"%d":{"b":%d,"a":2}`, 999-i, i))
		want = append(want, fmt.Sprintf(`"%d":{"a":2,"b":%d}`, 900+i, n-1-i))
	}
	checkAccepted(t, "{"+strings.Join(doc, ", ")+"}", "{"+strings.Join(want, ",")+"}")
}
