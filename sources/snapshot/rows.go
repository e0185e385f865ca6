package snapshot

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// MaxRow bounds a row, in bytes: a line of JSON, or a record of CSV, which may go over several lines.
const MaxRow = 16 << 20

// Row is one row of a snapshot. Its slices are valid until the next one is read.
type Row struct {
	Time    record.EventTime
	ID, Key []byte
	// Value is the row as a JSON object: of JSON Lines as it stands, of CSV in canonical form.
	Value []byte
	// Line of the file where the row starts, from 1.
	Line int64
}

// before says whether r comes before the row with this time and id.
func (r *Row) before(t record.EventTime, id []byte) bool {
	return r.Time < t || r.Time == t && bytes.Compare(r.ID, id) < 0
}

// rowReader reads rows in the order of the file; io.EOF after the last.
type rowReader interface{ next(*Row) error }

// input reads lines and knows where it is.
type input struct {
	name string
	r    *bufio.Reader
	line int64 // the line read last
	long []byte
}

const bom = "\ufeff"

func newInput(name string, r io.Reader) (*input, error) {
	in := &input{name: name, r: bufio.NewReaderSize(r, 256<<10)}
	if head, err := in.r.Peek(len(bom)); err == nil && string(head) == bom {
		if _, err := in.r.Discard(len(bom)); err != nil {
			return nil, in.failed(err)
		}
	}
	return in, nil
}

// next returns the next line with its line feed, if it has one. It is valid until the next call.
func (in *input) next() ([]byte, error) {
	line, err := in.r.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		in.long = in.long[:0]
		for err == bufio.ErrBufferFull {
			if in.long = append(in.long, line...); len(in.long) > MaxRow {
				in.line++
				return nil, in.refuse(in.line, 1, errLong)
			}
			line, err = in.r.ReadSlice('\n')
		}
		if in.long = append(in.long, line...); len(in.long) > MaxRow {
			in.line++
			return nil, in.refuse(in.line, 1, errLong)
		}
		line = in.long
	}
	if err != nil && err != io.EOF {
		return nil, in.failed(err)
	}
	if len(line) == 0 {
		return nil, io.EOF
	}
	in.line++
	return line, nil
}

var errLong = fmt.Errorf("the row is longer than %d bytes", MaxRow)

// refuse makes the error of a place in the file. Columns count bytes from 1.
func (in *input) refuse(line int64, column int, err error) error {
	return codes.New(codes.SnapshotInvalid, "%s:%d:%d: %w", in.name, line, column, err)
}

func (in *input) failed(err error) error {
	return codes.New(codes.FileMissing, "%s cannot be read: %w", in.name, err)
}

// jsonRows reads JSON Lines.
type jsonRows struct {
	in      *input
	fields  Fields
	scanner *record.Scanner
	found   [3]record.Field // id, key, time
}

func newJSONRows(in *input, f Fields) *jsonRows {
	return &jsonRows{in: in, fields: f, scanner: record.NewScanner([]string{f.ID, f.Key, f.Time})}
}

func (j *jsonRows) next(row *Row) error {
	for {
		line, err := j.in.next()
		if err != nil {
			return err
		}
		if value := trimJSON(line); len(value) > 0 {
			return j.row(row, value)
		}
	}
}

func (j *jsonRows) row(row *Row, value []byte) error {
	if err := j.scanner.Scan(value, j.found[:]); err != nil {
		var syntax *record.SyntaxError
		if errors.As(err, &syntax) {
			return j.in.refuse(j.in.line, syntax.Column, errors.New(syntax.Msg))
		}
		return j.in.refuse(j.in.line, 1, err)
	}
	row.Value, row.Line = value, j.in.line
	var err error
	if row.ID, err = text(j.found[0]); err != nil {
		return j.refuse(value, j.fields.ID, err)
	}
	if row.Key, err = text(j.found[1]); err != nil {
		return j.refuse(value, j.fields.Key, err)
	}
	if row.Time, err = j.fields.time(j.found[2]); err != nil {
		return j.refuse(value, j.fields.Time, err)
	}
	return nil
}

// refuse names a field and, where it is found, its column.
func (j *jsonRows) refuse(value []byte, field string, err error) error {
	return j.in.refuse(j.in.line, 1+max(0, bytes.Index(value, record.AppendString(nil, field))), fmt.Errorf("field %q: %w", field, err))
}

func trimJSON(line []byte) []byte {
	for len(line) > 0 && isSpace(line[len(line)-1]) {
		line = line[:len(line)-1]
	}
	for len(line) > 0 && isSpace(line[0]) {
		line = line[1:]
	}
	return line
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }
