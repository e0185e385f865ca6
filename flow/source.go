package flow

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// read turns a file into the nodes of its one document. It returns nil when that is not possible, and has reported why.
func read(src []byte, r *report) *node {
	if len(src) > maxSource {
		r.add(pos{1, 1}, "", fmt.Sprintf("the file has %d bytes, more than a flow may have (%d)", len(src), maxSource), "name the flow file, not a data file")
		return nil
	}
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	if !readable(src, r) {
		return nil
	}
	if json.Valid(src) {
		return readJSON(src, r)
	}
	return readYAML(src, r)
}

// readable reports bytes that are not text. It stops at the first one: what follows in a binary file is noise.
func readable(src []byte, r *report) bool {
	for at := (cursor{src: src, pos: pos{1, 1}}); at.i < len(src); at.step() {
		c, size := utf8.DecodeRune(src[at.i:])
		switch {
		case c == utf8.RuneError && size == 1:
			r.add(at.pos, "", fmt.Sprintf("byte 0x%02x is not UTF-8", src[at.i]), "save the file as UTF-8")
			return false
		case unprintable(c):
			r.add(at.pos, "", fmt.Sprintf("character U+%04X is not printable", c), fmt.Sprintf(`remove it, or write it as "\u%04x" in double quotes`, c))
			return false
		}
	}
	return true
}

// unprintable characters are controls and what some readers take for the end of a line.
func unprintable(c rune) bool {
	switch c {
	case '\t', '\n', '\r':
		return false
	case '\u2028', '\u2029', '\ufeff', '\ufffe', '\uffff':
		return true
	}
	return unicode.IsControl(c)
}

// cursor walks over a text and knows line and column. A line ends with \n, \r or both.
type cursor struct {
	src []byte
	i   int
	pos pos
}

// step goes on by one character.
func (c *cursor) step() {
	b := c.src[c.i]
	switch {
	case b == '\n', b == '\r' && (c.i+1 == len(c.src) || c.src[c.i+1] != '\n'):
		c.i++
		c.pos = pos{c.pos.line + 1, 1}
		return
	case b < utf8.RuneSelf:
		c.i++
	default:
		_, size := utf8.DecodeRune(c.src[c.i:])
		c.i += size
	}
	c.pos.col++
}

// to goes on to an offset that is not behind.
func (c *cursor) to(offset int) {
	for c.i < offset {
		c.step()
	}
}

// readYAML reads the one document of a YAML file.
func readYAML(src []byte, r *report) *node {
	d := yaml.NewDecoder(bytes.NewReader(src))
	var doc, more yaml.Node
	err := d.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		r.add(pos{1, 1}, "", "the file is empty", `a flow starts with "flow: `+Version+`"`)
		return nil
	case err != nil:
		syntaxError(src, err, r)
		return nil
	case len(doc.Content) != 1:
		r.add(pos{1, 1}, "", "the file is empty", `a flow starts with "flow: `+Version+`"`)
		return nil
	}
	if at, version := yamlVersion(src); version != "" {
		// The reader takes 1.1 and refuses 1.2. What it reads is judged by YAML 1.2, so a file that says 1.1 might mean something else.
		r.add(at, "", "is declared as YAML "+printable(version)+"; a flow is YAML 1.2", "remove the %YAML line")
		return nil
	}
	end := cursor{src: src, pos: pos{1, 1}}
	end.to(len(src))
	root := converter{r, end.pos}.node(doc.Content[0], "", 0)
	root.loose = true
	switch err := d.Decode(&more); {
	case errors.Is(err, io.EOF):
	case err != nil:
		syntaxError(src, err, r)
	default:
		r.add(pos{more.Line, more.Column}, "", "a second document starts here", "one file holds one flow; move the rest into a file of its own")
	}
	return root
}

// yamlVersion finds the version that a %YAML line before the document declares. "" without one.
func yamlVersion(src []byte) (pos, string) {
	at := cursor{src: src, pos: pos{1, 1}}
	for at.i < len(src) {
		start := at
		for at.i < len(src) && at.pos.line == start.pos.line {
			at.step()
		}
		line := strings.TrimSpace(string(src[start.i:at.i]))
		switch {
		case strings.HasPrefix(line, "%YAML"):
			if words := strings.Fields(line); len(words) > 1 {
				return start.pos, words[1]
			}
		case line != "" && line[0] != '#' && line[0] != '%':
			return pos{}, ""
		}
	}
	return pos{}, ""
}

var (
	yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
	// parserError are the messages whose lines the reader counts from 0; in those of its scanner it counts them from 1.
	parserError  = regexp.MustCompile(`^did not find expected (node content|',' or|key|'-' indicator|<)`)
	unknownAlias = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// syntaxCures by the message of the YAML reader.
var syntaxCures = []struct{ message, cure string }{
	{"mapping values are not allowed", "check the indentation, and put a text that holds a colon in quotes"},
	{"found a tab character", "indent with spaces"},
	{"did not find expected ',' or ']'", "close the list with ] and put commas between its items"},
	{"did not find expected ',' or '}'", "close the mapping with } and put commas between its fields"},
	{"did not find expected node content", "close the bracket that was opened, or remove the comma or bracket that is too many"},
	{"did not find expected key", "line the fields of one mapping up at the same column"},
	{"did not find expected '-' indicator", "line the items of one list up at the same column"},
	{"did not find expected <document start>", "remove what follows the end of the document"},
	{"could not find expected ':'", `write "field: value"`},
	{"found unexpected end of stream", "close the quote that was opened"},
	{"found unexpected document indicator", "close the quote that was opened"},
	{"found unknown escape character", `put the text in single quotes, or write \\ for a backslash`},
	{"hexdecimal number", `write \uXXXX with four hexadecimal digits`},
	{"invalid Unicode character escape", `write the character itself, or \UXXXXXXXX with eight hexadecimal digits; only JSON has surrogate pairs`},
	{"found character that cannot start any token", "put the text in quotes"},
	{"incompatible YAML document", "remove the %YAML line"},
	{"exceeded max depth", "a flow needs four levels of nesting"},
}

// syntaxError reports what stopped the YAML reader, where it says it was.
func syntaxError(src []byte, err error, r *report) {
	m := yamlError.FindStringSubmatch(err.Error())
	if m == nil {
		m = []string{"", "", err.Error()}
	}
	line, message := 1, m[2]
	if m[1] != "" {
		line, _ = strconv.Atoi(m[1])
		if parserError.MatchString(message) {
			line++
		}
	}
	if alias := unknownAlias.FindStringSubmatch(message); alias != nil {
		at := cursor{src: src, pos: pos{1, 1}}
		at.to(max(0, bytes.Index(src, []byte("*"+alias[1]))))
		r.add(at.pos, "", "aliases (*"+printable(alias[1])+") are not part of the flow language", "write the value out, or put the text in quotes")
		return
	}
	if jsonSyntaxError(src, r, "is not JSON: ") {
		return
	}
	at := firstText(src, line)
	if tabIndents(src, at) {
		r.add(at, "", "is not YAML: a tab indents this line", "indent with spaces")
		return
	}
	cure := "check the YAML around this line"
	for _, c := range syntaxCures {
		if strings.Contains(message, c.message) {
			cure = c.cure
			break
		}
	}
	r.add(at, "", "is not YAML: "+message, cure)
}

// tabIndents says whether a tab stands before the first text of a line.
func tabIndents(src []byte, first pos) bool {
	at := cursor{src: src, pos: pos{1, 1}}
	for at.i < len(src) && at.pos.line < first.line {
		at.step()
	}
	for at.i < len(src) && at.pos != first {
		if src[at.i] == '\t' {
			return true
		}
		at.step()
	}
	return false
}

// jsonSyntaxError reports where a file that looks like JSON is none. It knows the exact place.
func jsonSyntaxError(src []byte, r *report, message string) bool {
	rest, brace := bytes.CutPrefix(bytes.TrimSpace(src), []byte("{"))
	if !brace || !bytes.HasPrefix(bytes.TrimSpace(rest), []byte(`"`)) {
		return false
	}
	var into json.RawMessage
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal(src, &into), &syntax) {
		return false
	}
	at := cursor{src: src, pos: pos{1, 1}}
	at.to(min(len(src), max(0, int(syntax.Offset)-1)))
	r.add(at.pos, "", message+syntax.Error(), "mend the JSON here, or write the file as YAML")
	return true
}

// firstText is the first character of a line that is not a blank; the end of the text when the line is beyond it.
func firstText(src []byte, line int) pos {
	at := cursor{src: bytes.TrimRight(src, "\r\n"), pos: pos{1, 1}}
	for at.i < len(at.src) && at.pos.line < line {
		at.step()
	}
	for at.i < len(at.src) && (at.src[at.i] == ' ' || at.src[at.i] == '\t') {
		at.step()
	}
	return at.pos
}
