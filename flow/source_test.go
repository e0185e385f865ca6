package flow_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// head is a flow that is right, in lines; what a test adds comes behind it.
const head = "flow: weir/1\nname: f\nid: e\nkey: k\ntime: t\noperators: [{name: a, type: last, input: x}]\noutputs: [a]\n"

// What is not text is refused at its first byte, with its place. Columns count characters.
func TestUnreadableText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, src, want string }{
		{"not UTF-8", "flow: weir/1\nname: é\xff\n", "f:2:8: byte 0xff is not UTF-8 (save the file as UTF-8)"},
		{"UTF-16", "\xff\xfef\x00l\x00", "f:1:1: byte 0xff is not UTF-8 (save the file as UTF-8)"},
		{"cut short", "name: \xe2\x82", "f:1:7: byte 0xe2 is not UTF-8 (save the file as UTF-8)"},
		{"surrogate", "name: \xed\xa0\x80", "f:1:7: byte 0xed is not UTF-8 (save the file as UTF-8)"},
		{"NUL", "name: a\x00b", "f:1:8: character U+0000 is not printable (remove it, or write it as \"\\u0000\" in double quotes)"},
		{"escape", "a: b\r\nc: \x1b[31m", "f:2:4: character U+001B is not printable (remove it, or write it as \"\\u001b\" in double quotes)"},
		{"next line", "a: \u0085", "f:1:4: character U+0085 is not printable (remove it, or write it as \"\\u0085\" in double quotes)"},
		{"line separator", "é: \u2028", "f:1:4: character U+2028 is not printable (remove it, or write it as \"\\u2028\" in double quotes)"},
		{"byte order mark inside", "a: \ufeff", "f:1:4: character U+FEFF is not printable (remove it, or write it as \"\\ufeff\" in double quotes)"},
		{"control in JSON", "{\"a\": \"\x01\"}", "f:1:8: character U+0001 is not printable (remove it, or write it as \"\\u0001\" in double quotes)"},
		{"too large", strings.Repeat("# padding\n", 1<<17), fmt.Sprintf("f:1:1: the file has %d bytes, more than a flow may have (1048576) (name the flow file, not a data file)", 10<<17)},
	} {
		_, err := flow.Parse("f", []byte(c.src), nil)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n%v\nwant\n%s", c.name, err, c.want)
		}
	}
}

// What stands at the borders of the format is taken.
func TestReadableText(t *testing.T) {
	t.Parallel()
	want := parse(t, head).Fingerprint
	for name, src := range map[string]string{
		"byte order mark":      "\ufeff" + head,
		"Windows line ends":    strings.ReplaceAll(head, "\n", "\r\n"),
		"old line ends":        strings.ReplaceAll(head, "\n", "\r"),
		"no last line end":     strings.TrimSuffix(head, "\n"),
		"document markers":     "---\n" + head + "...\n",
		"the largest there is": head + strings.Repeat("#", 1<<20-len(head)),
	} {
		if got := parse(t, src).Fingerprint; got != want {
			t.Errorf("%s: fingerprint %s, want %s", name, got, want)
		}
	}
}

// A file with very many errors is answered with the first thousand and the number of the others.
func TestManyErrors(t *testing.T) {
	t.Parallel()
	var src strings.Builder
	src.WriteString(head)
	for i := range 5000 {
		fmt.Fprintf(&src, "f%d: 1\n", i)
	}
	_, err := flow.Parse("f", []byte(src.String()), nil)
	var list *flow.Errors
	if !errors.As(err, &list) || len(list.List) != 1000 || list.Omitted != 4000 {
		t.Fatalf("error %.200v", err)
	}
	if text := err.Error(); !strings.HasSuffix(text, "\nf: 4000 more errors are not shown") {
		t.Errorf("the text ends with %q", text[len(text)-60:])
	}
	if codes.Of(err) != codes.FlowInvalid {
		t.Errorf("code %v", codes.Of(err))
	}
}

// The error of an operator's own check is shown at its type.
func TestOwnTypeRefusesItsParameters(t *testing.T) {
	t.Parallel()
	reg, ty := operators.Builtin(), everyKind()
	ty.New = func(a operators.Args) (func() operators.Operator, error) {
		return nil, fmt.Errorf("n is %d and w is %s, which do not go together", a.Int("n"), a.Enum("w"))
	}
	if err := reg.Register(ty); err != nil {
		t.Fatal(err)
	}
	src := "flow: weir/1\nname: f\nid: e\nkey: k\ntime: t\noutputs: [a]\noperators:\n- name: a\n  type: every\n  input: x\n  n: 7\n"
	_, err := flow.Parse("f", []byte(src), reg)
	const want = "f:9:9: operators[0]: n is 7 and w is a, which do not go together (change the parameters of this every)"
	if err == nil || err.Error() != want {
		t.Errorf("error %v\nwant  %s", err, want)
	}
}

// Parameters of every kind: their errors, and one meaning for all spellings.
func TestParametersOfEveryKind(t *testing.T) {
	t.Parallel()
	reg := operators.Builtin()
	if err := reg.Register(everyKind()); err != nil {
		t.Fatal(err)
	}
	lint := func(params string) (*flow.Plan, error) {
		return flow.Parse("f", []byte("{flow: weir/1, name: f, id: e, key: k, time: t, outputs: [a], operators: [{name: a, type: every, input: x, n: 1"+params+"}]}"), reg)
	}
	var fingerprint string
	for _, params := range []string{"", ", f: 0.5", ", f: 5e-1, d: 60s", ", f: .5, d: 1m, w: a", ", f: 0.50, w: 'a'"} {
		p, err := lint(params)
		if err != nil {
			t.Errorf("%s: %v", params, err)
			continue
		}
		if fingerprint == "" {
			fingerprint = p.Fingerprint
		}
		if p.Fingerprint != fingerprint {
			t.Errorf("%s: another fingerprint", params)
		}
	}
	for params, want := range map[string]string{
		", f: 1.5":     "f:1:117: operators[0].f: must be at most 1, is 1.5 (write a value within the bounds)",
		", f: .inf":    "f:1:117: operators[0].f: must be a finite decimal number, is the number .inf (write it as in 0.5, without quotes)",
		", f: 1e999":   "f:1:117: operators[0].f: must be a finite decimal number, is the number 1e999 (write it as in 0.5, without quotes)",
		", f: 0x1":     "f:1:117: operators[0].f: must be a finite decimal number, is the number 0x1 (write it as in 0.5, without quotes)",
		", f: \"0.5\"": "f:1:117: operators[0].f: must be a finite decimal number, is a text (write it as in 0.5, without quotes)",
		", d: 2h":      "f:1:117: operators[0].d: must be at most 1h, is 2h (write 1h or less)",
		", d: 5":       "f:1:117: operators[0].d: must be a duration, is the number 5 (add the unit, of d, h, m, s, ms, us, ns: 5s)",
		", w: c":       "f:1:117: operators[0].w: must be one of a, b, is \"c\" (known: a, b)",
	} {
		if _, err := lint(params); err == nil || err.Error() != want {
			t.Errorf("%s:\n%v\nwant\n%s", params, err, want)
		}
	}
}

// inputs are the flows of all scripts.
func inputs(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/script/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	var out []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(b), "\n\n") {
			block, _, _ = strings.Cut(block, "\n----\n")
			for strings.HasPrefix(block, "#") {
				_, block, _ = strings.Cut(block, "\n")
			}
			_, src, _ := strings.Cut(block, "\n")
			out = append(out, src)
		}
	}
	return out
}

// FuzzParse: a file is a plan whose normal form means the same, or it has errors that each have a place in it.
func FuzzParse(f *testing.F) {
	for _, src := range inputs(f) {
		f.Add([]byte(src))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		p, err := flow.Parse("f", src, nil)
		if err == nil {
			b, err := record.AppendJSON(nil, p.Document())
			if err != nil {
				t.Fatal(err)
			}
			if back, err := flow.Parse("f", b, nil); err != nil || back.Fingerprint != p.Fingerprint {
				t.Fatalf("the normal form means something else: %s\n%v", b, err)
			}
			return
		}
		var list *flow.Errors
		if !errors.As(err, &list) {
			t.Fatalf("error %v of type %T", err, err)
		}
		lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(src)), "\n")
		for _, e := range list.List {
			if e.Line < 1 || e.Line > len(lines) || e.Column < 1 || e.Column > len(lines[e.Line-1])+1 {
				t.Errorf("the place %d:%d is not in the file: %s", e.Line, e.Column, e.Message)
			}
			if e.Message == "" || e.Cure == "" {
				t.Errorf("error without message or cure: %+v", e)
			}
		}
	})
}
