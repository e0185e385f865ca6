package chclient

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
)

// AppendString appends a value of a column of strings, which may be any bytes.
func AppendString(b, text []byte) []byte {
	return append(appendUvarint(b, uint64(len(text))), text...)
}

// AppendInt32, AppendInt64 and AppendFloat64 append values of columns of those types, and of the unsigned ones and dates of that size.
func AppendInt32(b []byte, n uint32) []byte { return binary.LittleEndian.AppendUint32(b, n) }

// AppendInt64 is described with AppendInt32.
func AppendInt64(b []byte, n uint64) []byte { return binary.LittleEndian.AppendUint64(b, n) }

// AppendFloat64 is described with AppendInt32.
func AppendFloat64(b []byte, f float64) []byte { return AppendInt64(b, math.Float64bits(f)) }

func appendUvarint(b []byte, n uint64) []byte { return binary.AppendUvarint(b, n) }

// Quote makes a literal of a text.
func Quote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

// The largest text, the largest block by columns and by rows, and the longest name of a type, that are believed. A server sends blocks of 65,536 rows.
const (
	maxText    = 64 << 20
	maxColumns = 10_000
	maxRows    = 16 << 20
	maxKind    = 1000
	// someRows is how many rows memory is taken for before they have come.
	someRows = 1 << 12
)

// reader reads values until the first error, which it keeps.
type reader struct {
	*bufio.Reader
	err error
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) uvarint() uint64 {
	if r.err != nil {
		return 0
	}
	n, err := binary.ReadUvarint(r.Reader)
	if err != nil {
		r.fail(err)
	}
	return n
}

// fixed reads an integer of some bytes.
func (r *reader) fixed(size int) uint64 {
	var b [8]byte
	if r.err == nil {
		if _, err := io.ReadFull(r.Reader, b[:size]); err != nil {
			r.fail(err)
			return 0
		}
	}
	return binary.LittleEndian.Uint64(b[:])
}

func (r *reader) text() string {
	n := r.uvarint()
	if n > maxText {
		r.fail(fmt.Errorf("%w: a text of %d bytes", ErrProtocol, n))
	}
	if r.err != nil || n == 0 {
		return ""
	}
	// Not at once: what comes may end before that.
	var b strings.Builder
	if _, err := io.CopyN(&b, r.Reader, int64(n)); err != nil {
		r.fail(err)
		return ""
	}
	return b.String()
}

// block reads a block and gives its rows.
func (r *reader) block(fn func(row []any) error) error {
	r.text() // the name of a temporary table
	for field := r.uvarint(); field != 0 && r.err == nil; field = r.uvarint() {
		switch field {
		case 1:
			r.fixed(1)
		case 2:
			r.fixed(4)
		default:
			return fmt.Errorf("%w: field %d of a block", ErrProtocol, field)
		}
	}
	columns, rows := r.uvarint(), r.uvarint()
	if columns > maxColumns || rows > maxRows || columns == 0 && rows > 0 {
		return fmt.Errorf("%w: a block of %d columns and %d rows", ErrProtocol, columns, rows)
	}
	if r.err != nil {
		return r.err
	}
	var values [][]any
	for range columns {
		r.text()
		kind := r.text()
		if len(kind) > maxKind {
			return fmt.Errorf("%w: a type of %d bytes", ErrProtocol, len(kind))
		}
		if values = append(values, r.column(kind, int(rows))); r.err != nil {
			return r.err
		}
	}
	row := make([]any, columns)
	for n := range int(rows) {
		for i := range values {
			row[i] = values[i][n]
		}
		if err := fn(row); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) column(kind string, rows int) []any {
	if rows == 0 {
		return nil // whatever the type
	}
	if inner, array := strings.CutPrefix(kind, "Array("); array {
		return r.array(strings.TrimSuffix(inner, ")"), rows)
	}
	if inner, nullable := strings.CutPrefix(kind, "Nullable("); nullable {
		nulls := make([]bool, 0, min(rows, someRows))
		for range rows {
			if nulls = append(nulls, r.fixed(1) != 0); r.err != nil {
				return nil
			}
		}
		values := r.column(strings.TrimSuffix(inner, ")"), rows)
		for i := range values {
			if nulls[i] {
				values[i] = nil
			}
		}
		return values
	}
	read := r.typed(kind)
	if read == nil {
		r.fail(fmt.Errorf("%w: a column of type %s, which is not read here", ErrProtocol, kind))
		return nil
	}
	values := make([]any, 0, min(rows, someRows))
	for range rows {
		if values = append(values, read()); r.err != nil {
			return nil
		}
	}
	return values
}

// array reads where each array ends, and then the items of all.
func (r *reader) array(kind string, rows int) []any {
	ends := make([]uint64, 0, min(rows, someRows))
	for range rows {
		end := r.fixed(8)
		if n := len(ends); end > maxRows || n > 0 && end < ends[n-1] {
			r.fail(fmt.Errorf("%w: an array that ends at item %d", ErrProtocol, end))
		}
		if ends = append(ends, end); r.err != nil {
			return nil
		}
	}
	items := []any{}
	if n := int(ends[rows-1]); n > 0 {
		items = r.column(kind, n)
	}
	if r.err != nil {
		return nil
	}
	values := make([]any, 0, len(ends))
	from := uint64(0)
	for _, end := range ends {
		values = append(values, items[from:end:end])
		from = end
	}
	return values
}

// typed is how a value of a type is read, nil for those that are not.
func (r *reader) typed(kind string) func() any {
	name, _, _ := strings.Cut(kind, "(")
	unsigned := map[string]int{"UInt8": 1, "UInt16": 2, "UInt32": 4, "UInt64": 8, "Date": 2, "DateTime": 4, "Bool": 1}
	if size, ok := unsigned[name]; ok {
		return func() any { return r.fixed(size) }
	}
	switch name {
	case "Int8":
		return func() any { return int64(int8(r.fixed(1))) }
	case "Int16":
		return func() any { return int64(int16(r.fixed(2))) }
	case "Int32":
		return func() any { return int64(int32(r.fixed(4))) }
	case "Int64":
		return func() any { return int64(r.fixed(8)) }
	case "Float64":
		return func() any { return math.Float64frombits(r.fixed(8)) }
	case "String":
		return func() any { return r.text() }
	case "Nothing":
		return func() any { r.fixed(1); return nil }
	}
	return nil
}
