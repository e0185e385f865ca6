package snapshot

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

// csvRows reads CSV and writes each row as a canonical JSON object.
type csvRows struct {
	in     *input
	fields Fields
	// columns are sorted by name, as canonical JSON wants them.
	columns       []column
	id, key, time int // indices in the order of the file
	cells         []cell
	raw, text     []byte // the row as it stands, and its quoted cells without quotes
	value         []byte
}

// column is one column of the file.
type column struct {
	index  int    // in the order of the file
	name   string // as named in the first row
	prefix []byte // the name as a JSON key with its colon
	text   bool
}

// cell is one field of a row.
type cell struct {
	text   []byte
	line   int64
	column int
}

func newCSVRows(in *input, f Fields) (*csvRows, error) {
	c := &csvRows{in: in, fields: f}
	if err := c.read(); err != nil {
		if err == io.EOF {
			err = in.refuse(1, 1, errors.New("the file is empty; the first row of CSV names the columns"))
		}
		return nil, err
	}
	at := map[string]int{}
	for i, cell := range c.cells {
		name := string(cell.text)
		if name == "" {
			return nil, in.refuse(cell.line, cell.column, errors.New("a column has no name"))
		}
		if _, twice := at[name]; twice {
			return nil, in.refuse(cell.line, cell.column, fmt.Errorf("two columns are named %q", name))
		}
		at[name] = i
		c.columns = append(c.columns, column{
			index: i, name: name, prefix: append(record.AppendString(nil, name), ':'),
			text: name == f.ID || name == f.Key || name == f.Time && f.Unit == flow.RFC3339 || slices.Contains(f.Text, name),
		})
	}
	for name, index := range map[string]*int{f.ID: &c.id, f.Key: &c.key, f.Time: &c.time} {
		if _, ok := at[name]; !ok {
			return nil, in.refuse(1, 1, fmt.Errorf("the first row names no column %q", name))
		}
		*index = at[name]
	}
	slices.SortFunc(c.columns, func(a, b column) int { return cmp.Compare(a.name, b.name) })
	return c, nil
}

func (c *csvRows) next(row *Row) error {
	if err := c.read(); err != nil {
		return err
	}
	if got, want := len(c.cells), len(c.columns); got != want {
		return c.in.refuse(c.cells[0].line, 1, fmt.Errorf("the row has %d fields, the first row names %d", got, want))
	}
	row.Line = c.cells[0].line
	c.value = append(c.value[:0], '{')
	for i := range c.columns {
		if i > 0 {
			c.value = append(c.value, ',')
		}
		col := &c.columns[i]
		c.value = append(c.value, col.prefix...)
		c.value = appendCell(c.value, c.cells[col.index].text, col.text)
	}
	c.value = append(c.value, '}')
	row.Value = c.value
	var err error
	row.ID, row.Key = c.cells[c.id].text, c.cells[c.key].text
	if row.Time, err = c.eventTime(); err != nil {
		return c.refuse(c.time, err)
	}
	for _, i := range [...]int{c.id, c.key} {
		if len(c.cells[i].text) == 0 {
			return c.refuse(i, wrongKind(record.Field{}, "one"))
		}
	}
	return nil
}

func (c *csvRows) eventTime() (record.EventTime, error) {
	field := record.Field{Kind: record.String, Raw: c.cells[c.time].text}
	switch {
	case len(field.Raw) == 0:
		field.Kind = record.Missing
	case c.fields.Unit != flow.RFC3339 && isNumber(field.Raw):
		field.Kind = record.Number
	}
	return c.fields.time(field)
}

func (c *csvRows) refuse(index int, err error) error {
	i := slices.IndexFunc(c.columns, func(col column) bool { return col.index == index })
	return c.in.refuse(c.cells[index].line, c.cells[index].column, fmt.Errorf("column %q: %w", c.columns[i].name, err))
}

// appendCell writes a field as JSON.
func appendCell(dst, s []byte, text bool) []byte {
	if len(s) == 0 {
		return append(dst, "null"...)
	}
	if text {
		return record.AppendString(dst, s)
	}
	switch string(s) {
	case "NaN", "Infinity", "-Infinity":
		return append(dst, "null"...)
	}
	if !isNumber(s) {
		return record.AppendString(dst, s)
	}
	if !bytes.ContainsAny(s, ".eE") {
		if string(s) == "-0" {
			s = s[1:]
		}
		return append(dst, s...)
	}
	f := record.ParseFloat(s)
	if math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	return record.AppendFloat(dst, f)
}

// isNumber says whether s has the form of a JSON number.
func isNumber(s []byte) bool {
	s = bytes.TrimPrefix(s, []byte("-"))
	whole := digits(s)
	if whole == 0 || whole > 1 && s[0] == '0' {
		return false
	}
	s = s[whole:]
	if len(s) > 0 && s[0] == '.' {
		n := digits(s[1:])
		if n == 0 {
			return false
		}
		s = s[1+n:]
	}
	if len(s) > 0 && s[0]|0x20 == 'e' {
		s = s[1:]
		if len(s) > 0 && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		n := digits(s)
		return n > 0 && n == len(s)
	}
	return len(s) == 0
}

func digits(s []byte) int {
	n := 0
	for n < len(s) && s[n]-'0' <= 9 {
		n++
	}
	return n
}

// read takes the next row apart into cells. Blank lines are skipped.
func (c *csvRows) read() error {
	var line []byte
	var err error
	for len(line) == 0 {
		if line, err = c.in.next(); err != nil {
			return err
		}
		line = trimEnd(line)
	}
	c.cells, c.text = c.cells[:0], c.text[:0]
	c.raw = append(c.raw[:0], line...)
	row := parsing{csvRows: c, line: c.in.line, size: len(line)}
	for {
		if err := row.cell(); err != nil {
			return err
		}
		if row.at == len(c.raw) {
			break
		}
		row.at++ // the comma
	}
	for _, cell := range c.cells {
		if !utf8.Valid(cell.text) {
			return c.in.refuse(cell.line, cell.column, errors.New("invalid UTF-8"))
		}
	}
	return nil
}

// parsing is the state of taking one row apart.
type parsing struct {
	*csvRows
	at    int   // in raw
	line  int64 // of the file
	start int   // in raw, of that line
	size  int   // of the row so far
}

// cell reads up to a comma or the end of the row.
func (p *parsing) cell() error {
	c := cell{line: p.line, column: 1 + p.at - p.start}
	if p.at < len(p.raw) && p.raw[p.at] == '"' {
		return p.quoted(c)
	}
	end := bytes.IndexByte(p.raw[p.at:], ',')
	if end < 0 {
		end = len(p.raw) - p.at
	}
	c.text = p.raw[p.at : p.at+end]
	if q := bytes.IndexByte(c.text, '"'); q >= 0 {
		return p.in.refuse(c.line, c.column+q, errors.New("a quote inside a field; quote the whole field and double the quote"))
	}
	if cr := bytes.IndexByte(c.text, '\r'); cr >= 0 && p.columns == nil {
		// Lines that end with CR alone would make the whole file one row of names, without any data.
		return p.in.refuse(c.line, c.column+cr, errors.New("a carriage return without a line feed in the first row; end lines with LF or CR LF, or quote the name"))
	}
	p.at += end
	p.cells = append(p.cells, c)
	return nil
}

// quoted reads a field in quotes, which may go over lines. Its text is gathered apart, since doubled quotes become one.
func (p *parsing) quoted(c cell) error {
	p.at++
	first := len(p.text)
	for {
		end := bytes.IndexByte(p.raw[p.at:], '"')
		if end < 0 {
			p.text = append(p.text, p.raw[p.at:]...)
			if err := p.more(c); err != nil {
				return err
			}
			continue
		}
		p.text = append(p.text, p.raw[p.at:p.at+end]...)
		p.at += end + 1
		switch {
		case p.at == len(p.raw) || p.raw[p.at] == ',':
			c.text = p.text[first:len(p.text):len(p.text)]
			p.cells = append(p.cells, c)
			return nil
		case p.raw[p.at] == '"':
			p.text = append(p.text, '"')
			p.at++
		default:
			return p.in.refuse(p.line, 1+p.at-p.start, errors.New("something follows the closing quote of a field"))
		}
	}
}

// more puts the next line into raw, in the place of what has been read of the row. The cells so far keep their bytes: those that
// alias raw would not, so raw is a new slice then.
func (p *parsing) more(c cell) error {
	line, err := p.in.next()
	if err == io.EOF {
		return p.in.refuse(c.line, c.column, errors.New("the quote that opens this field is not closed"))
	}
	if err != nil {
		return err
	}
	if p.size += len(line); p.size > MaxRow {
		return p.in.refuse(c.line, c.column, errLong)
	}
	p.text = append(p.text, '\n')
	p.raw = append([]byte(nil), trimEnd(line)...)
	p.at, p.start, p.line = 0, 0, p.in.line
	return nil
}

// trimEnd takes the end of a line off.
func trimEnd(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	return bytes.TrimSuffix(line, []byte{'\r'})
}
