package snapshot

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

func write(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func show(r *Row) string {
	return fmt.Sprintf("%s %s %s line %d: %s", r.Time, r.ID, r.Key, r.Line, r.Value)
}

// all reads the rows of a source, in order.
func all(t testing.TB, s *Source) ([]string, error) {
	t.Helper()
	rows, err := s.Rows(t.Context())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var lines []string
	var row Row
	for {
		err := rows.Next(&row)
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		lines = append(lines, show(&row))
	}
}

var unitNames = map[string]flow.TimeUnit{"s": flow.Seconds, "ms": flow.Milliseconds, "us": flow.Microseconds, "ns": flow.Nanoseconds}

// TestScripts runs testdata/jsonl and testdata/csv: a line "read FORMAT [unit=U] [text=COLUMN]", the file, "----", and what comes of it
// up to a blank line. A line that starts with # between them is a comment.
func TestScripts(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"jsonl", "csv"} {
		src, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		cases := strings.Split("\n"+string(src), "\nread ")[1:]
		if len(cases) < 10 {
			t.Fatalf("%s: only %d cases", file, len(cases))
		}
		for _, c := range cases {
			command, rest, _ := strings.Cut(c, "\n")
			input, rest, found := strings.Cut("\n"+rest, "\n----\n")
			if !found {
				t.Fatalf("%s: no ---- after read %s", file, command)
			}
			want, _, _ := strings.Cut("\n"+rest, "\n\n")
			want = strings.Trim(want, "\n")
			if got := runScript(t, command, strings.TrimPrefix(input, "\n")); got != want {
				t.Errorf("%s: read %s%s\ngot:\n%s\nwant:\n%s", file, command, input, got, want)
			}
		}
	}
}

func runScript(t *testing.T, command, input string) string {
	t.Helper()
	args := strings.Fields(command)
	fields := DefaultFields()
	for _, arg := range args[1:] {
		switch name, value, _ := strings.Cut(arg, "="); name {
		case "unit":
			fields.Unit = unitNames[value]
		case "text":
			fields.Text = []string{value}
		default:
			t.Fatalf("unknown argument %q", arg)
		}
	}
	path := write(t, "x."+args[0], []byte(input))
	lines, err := all(t, New(Config{Path: path, Fields: fields}))
	if err != nil {
		return strings.ReplaceAll(err.Error(), path, "FILE")
	}
	return strings.Join(lines, "\n")
}

const row = `{"event_id":"a","event_time":"2026-01-05T14:30:00Z","instrument":"1"}`

func TestTheFormatIsTold(t *testing.T) {
	t.Parallel()
	const csvText = "event_id,event_time,instrument\na,2026-01-05T14:30:00Z,1\n"
	for _, c := range []struct {
		name, content string
		format        Format
		says          string
	}{
		{"x.jsonl", row, Auto, ""},
		{"x.NDJSON", row, Auto, ""},
		{"x.json", row, Auto, ""},
		{"x.csv", csvText, Auto, ""},
		{"x.CSV", csvText, Auto, ""},
		{"x", row, Auto, ""},
		{"x.txt", "\n  " + row, Auto, ""},
		{"x", csvText, Auto, ""},
		{"x.csv", row, JSONLines, ""},
		{"x.jsonl", csvText, CSV, ""},
		{"x.jsonl", csvText, Auto, "x.jsonl:1:1: expected an object"},
		{"x.csv", row, Auto, `x.csv:1:2: a quote inside`},
		{"x.jsonl.gz", "\x1f\x8b\x08", Auto, "compressed"},
		{"bom.jsonl", bom + row, Auto, ""},
		{"bom.csv", bom + csvText, Auto, ""},
		{"bom", bom + csvText, Auto, ""},
		{"crlf.csv", strings.ReplaceAll(csvText, "\n", "\r\n"), Auto, ""},
		{"crlf.jsonl", row + "\r\n\r\n", Auto, ""},
		{"open.csv", strings.TrimSuffix(csvText, "\n"), Auto, ""},
		{"bytes.csv", "event_id,event_time,instrument\na,2026-01-05T14:30:00Z,\xff\n", Auto, "bytes.csv:2:24: invalid UTF-8"},
		{"bytes.jsonl", strings.Replace(row, `"1"`, "\"\xff\"", 1), Auto, "invalid UTF-8"},
	} {
		lines, err := all(t, New(Config{Path: write(t, c.name, []byte(c.content)), Format: c.format}))
		if c.says != "" {
			if !codes.Has(err, codes.SnapshotInvalid) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.says)
			}
		} else if err != nil || len(lines) != 1 || !strings.HasPrefix(lines[0], "2026-01-05T14:30:00Z a 1 line ") {
			t.Errorf("%s: got %q, %v", c.name, lines, err)
		}
	}
}

func TestTheSameRowsInBothFormats(t *testing.T) {
	t.Parallel()
	fixture, err := os.ReadFile("testdata/snapshot.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	table := "close,event_id,event_time,instrument\n"
	for line := range strings.Lines(string(fixture)) {
		v, err := record.Decode([]byte(strings.TrimSpace(line)))
		if err != nil {
			t.Fatal(err)
		}
		doc := v.(map[string]any)
		table += fmt.Sprintf("%.2f,%s,%s,%s\n", doc["close"], doc["event_id"], doc["event_time"], doc["instrument"])
	}
	values := func(s *Source) (list []string) {
		lines, err := all(t, s)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			list = append(list, line[strings.Index(line, ": {"):])
		}
		return list
	}
	want := values(New(Config{Path: "testdata/snapshot.jsonl"}))
	if got := values(New(Config{Path: write(t, "x.csv", []byte(table))})); len(want) != 18 || !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// A file whose lines end with CR alone is not one row of names without data; in quotes, and before LF, CR is what it was.
func TestACarriageReturnInTheFirstRowOfCSV(t *testing.T) {
	t.Parallel()
	const names = "event_id,event_time,instrument,x"
	for input, want := range map[string]string{
		names + "\ra,2026-01-05T14:30:00Z,1,2\rb,2026-01-05T14:31:00Z,1,3\r":      ":1:33: a carriage return",
		"\n" + names + "\ra,2026-01-05T14:30:00Z,1,2\n":                           ":2:33: a carriage return",
		"event_id\r,event_time,instrument\n":                                      ":1:9: a carriage return",
		names + "\r\r\na,2026-01-05T14:30:00Z,1,2\n":                              ":1:33: a carriage return",
		`event_id,event_time,"instrument"` + "\ra,2026-01-05T14:30:00Z,1\r":       ":1:33: something follows",
		names + "\r\na,2026-01-05T14:30:00Z,1,2\r\n":                              "",
		`event_id,event_time,instrument,"x` + "\ry\"\na,2026-01-05T14:30:00Z,1,2": "",
	} {
		rows, err := all(t, New(Config{Path: write(t, "x.csv", []byte(input))}))
		switch {
		case want == "" && (err != nil || len(rows) != 1):
			t.Errorf("%q: %q, %v", input, rows, err)
		case want != "" && (!codes.Has(err, codes.SnapshotInvalid) || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: %q, %v; want %s", input, rows, err, want)
		}
	}
}

func TestTheLengthOfARowIsBounded(t *testing.T) {
	t.Parallel()
	pad := func(template string, size int) []byte {
		return bytes.Replace([]byte(template), []byte("@"), bytes.Repeat([]byte("x"), size-len(template)+1), 1)
	}
	const (
		jsonRow  = `{"event_id":"b","event_time":"2026-01-05T14:30:00Z","instrument":"1","x":"@"}`
		csvRow   = `b,2026-01-05T14:30:00Z,1,"@"`
		csvLines = "b,2026-01-05T14:30:00Z,1,\"@\ny\""
		head     = "event_id,event_time,instrument,x\n"
	)
	for _, c := range []struct {
		name, head, template string
		size                 int
		ok                   bool
		place                string
	}{
		{"ten.jsonl", "", jsonRow, 10 << 20, true, ""},
		{"most.jsonl", "", jsonRow, MaxRow - 1, true, ""},
		{"more.jsonl", row + "\n", jsonRow, MaxRow + 1, false, "more.jsonl:2:1: "},
		{"ten.csv", head, csvRow, 10 << 20, true, ""},
		{"more.csv", head, csvRow, MaxRow + 1, false, "more.csv:2:1: "},
		{"lines.csv", head, csvLines, MaxRow + 2, false, "lines.csv:2:26: "},
	} {
		content := append([]byte(c.head), pad(c.template, c.size)...)
		lines, err := all(t, New(Config{Path: write(t, c.name, append(content, '\n'))}))
		if c.ok != (err == nil) || c.ok && len(lines) != 1 {
			t.Errorf("%s: %d rows, %.200v", c.name, len(lines), err)
		}
		if !c.ok && (!codes.Has(err, codes.SnapshotInvalid) || !strings.Contains(err.Error(), c.place) || !errors.Is(err, errLong)) {
			t.Errorf("%s: %.200v, want %q", c.name, err, c.place)
		}
	}
}

func TestAnUnclosedQuoteDoesNotReadTheWholeFile(t *testing.T) {
	t.Parallel()
	r := &endless{line: []byte("still inside the quote\n")}
	in, err := newInput("x", io.MultiReader(strings.NewReader("event_id,event_time,instrument\n\"a"), r))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := newCSVRows(in, DefaultFields())
	if err != nil {
		t.Fatal(err)
	}
	if err := rows.next(&Row{}); !errors.Is(err, errLong) || r.read > MaxRow+1<<20 {
		t.Errorf("%v after %d bytes", err, r.read)
	}
}

type endless struct {
	line []byte
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		n += copy(p[n:], e.line)
	}
	e.read += n
	return n, nil
}

// FuzzCSV compares with the standard library's reader: what both accept has the same cells.
func FuzzCSV(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "a,b\r\n\"1\n2\",\"\"\"\"\r\n", "\n\na\n\n", "a,\"b", "a\"b", "\"a\"b", ",,\n", "\"\"", "a\r", "\r\n\r"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		std := csv.NewReader(bytes.NewReader(src))
		std.FieldsPerRecord = -1
		in, err := newInput("x", bytes.NewReader(src))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(src, []byte(bom)) {
			return // the standard library keeps it
		}
		ours := &csvRows{in: in}
		for {
			want, wantErr := std.Read()
			err := ours.read()
			if !utf8.Valid(src) && err != nil && err != io.EOF {
				return
			}
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("got %v, the standard library says %v", err, wantErr)
			}
			if err != nil {
				return
			}
			got := []string{}
			for _, c := range ours.cells {
				got = append(got, string(c.text))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	})
}

// FuzzCell checks that every cell becomes canonical JSON.
func FuzzCell(f *testing.F) {
	for _, s := range []string{"", "1", "-0", "1.50", "1e400", "NaN", "a\"b", "007", "1e5", "-0.0", "\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, s []byte) {
		if !utf8.Valid(s) {
			return
		}
		for _, text := range []bool{false, true} {
			got := appendCell(nil, s, text)
			if canonical, err := record.Canonical(got); err != nil || !bytes.Equal(canonical, got) {
				t.Errorf("%q became %q: %v", s, got, err)
			}
		}
	})
}
