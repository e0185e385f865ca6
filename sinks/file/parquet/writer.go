package parquet

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
)

// Kind is what a column holds.
type Kind uint8

// The kinds of a column.
const (
	Int32  Kind = iota // never null
	Int64              // never null
	Moment             // nanoseconds since 1970 in UTC, never null
	Words              // UTF-8 of which few are different; may be null
	Text               // UTF-8; may be null
	Bytes              // any bytes; may be null
	Double             // may be null
)

// Column is a column of a table.
type Column struct {
	Name string
	Kind Kind
}

const (
	groupRows  = 64 << 10
	groupBytes = 16 << 20
	magic      = "PAR1"
)

// Writer writes tables of the same columns, one after another. The values of a row are given by the numbers of their columns, each once, and then Row is
// called. It is for one goroutine, and keeps its memory from table to table: that of one row group.
type Writer struct {
	columns []column
	out     io.Writer
	err     error
	written int64
	rows    int
	texts   int // bytes of texts in the open group
	groups  []group
	page    []byte
	head    thrift
}

type column struct {
	Column
	ints    []int64 // of integers, moments; of other texts, the length that each has in common with the one before
	lengths []int64 // of what is left of other texts
	indices []uint64
	there   []byte // which values are not null, a bit each
	nulls   int
	data    []byte // doubles, the entries of a dictionary, or what is left of other texts
	words   map[string]uint64
	last    []byte
}

// group is what the footer says of a row group.
type group struct {
	rows   int
	offset int64
	size   int64
	chunks []chunk
}

type chunk struct {
	dictionary, data, size int64 // dictionary is 0 without one
	nulls                  int
	least, greatest        int64
}

// NewWriter makes a writer of tables with some columns.
func NewWriter(columns []Column) *Writer {
	w := &Writer{columns: make([]column, len(columns))}
	for i, c := range columns {
		w.columns[i].Column = c
		if c.Kind == Words {
			w.columns[i].words = map[string]uint64{}
		}
	}
	return w
}

// Begin begins a table, and forgets one that was not ended.
func (w *Writer) Begin(out io.Writer) {
	w.reset()
	w.out, w.err, w.written, w.groups = out, nil, 0, w.groups[:0]
	w.write([]byte(magic))
}

// Int sets an Int32, an Int64 or a Moment.
func (w *Writer) Int(c int, v int64) { w.columns[c].ints = append(w.columns[c].ints, v) }

// Double sets a Double.
func (w *Writer) Double(c int, v float64) {
	col := &w.columns[c]
	col.mark(w.rows, true)
	col.data = binary.LittleEndian.AppendUint64(col.data, math.Float64bits(v))
}

// Text sets Words, a Text or Bytes, and copies v.
func (w *Writer) Text(c int, v []byte) {
	col := &w.columns[c]
	col.mark(w.rows, true)
	if col.Kind == Words {
		i, known := col.words[string(v)]
		if !known {
			w.texts += len(v)
			i = uint64(len(col.words))
			col.words[string(v)] = i
			col.data = appendSized(col.data, v)
		}
		col.indices = append(col.indices, i)
		return
	}
	w.texts += len(v)
	n := 0
	for most := min(len(v), len(col.last)); n < most && v[n] == col.last[n]; n++ {
	}
	col.ints, col.lengths = append(col.ints, int64(n)), append(col.lengths, int64(len(v)-n))
	col.data, col.last = append(col.data, v[n:]...), append(col.last[:0], v...)
}

// Null leaves a value out.
func (w *Writer) Null(c int) { w.columns[c].mark(w.rows, false) }

// Row ends a row. Errors are those of the file.
func (w *Writer) Row() error {
	if w.rows++; w.rows == groupRows || w.texts >= groupBytes {
		w.flush()
	}
	return w.err
}

// End ends the table. Errors are those of the file.
func (w *Writer) End() error {
	w.flush()
	w.footer()
	w.out = nil
	return w.err
}

func (c *column) mark(row int, there bool) {
	if row%8 == 0 {
		c.there = append(c.there, 0)
	}
	if !there {
		c.nulls++
		return
	}
	c.there[row/8] |= 1 << (row % 8)
}

func appendSized(dst, v []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(dst, uint32(len(v))), v...)
}

func (w *Writer) reset() {
	w.rows, w.texts = 0, 0
	for i := range w.columns {
		c := &w.columns[i]
		c.ints, c.lengths, c.indices, c.there, c.nulls, c.data, c.last = c.ints[:0], c.lengths[:0], c.indices[:0], c.there[:0], 0, c.data[:0], c.last[:0]
		clear(c.words)
	}
}

func (w *Writer) write(data []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(data)
	}
	w.written += int64(len(data))
}

// flush writes the open row group.
func (w *Writer) flush() {
	if w.rows == 0 {
		return
	}
	g := group{rows: w.rows, offset: w.written, chunks: make([]chunk, len(w.columns))}
	for i := range w.columns {
		g.chunks[i] = w.chunk(&w.columns[i])
	}
	g.size = w.written - g.offset
	w.groups = append(w.groups, g)
	w.reset()
}

// chunk writes a column of the open row group.
func (w *Writer) chunk(c *column) chunk {
	begin := w.written
	out := chunk{nulls: c.nulls}
	if c.Kind == Words {
		out.dictionary = begin
		w.putPage(c.data, pageDictionary, int64(len(c.words)), encodingPlain)
	}
	out.data = w.written
	page := w.page[:0]
	if c.Kind.nullable() {
		page = appendLevels(page, c.there, w.rows, c.nulls)
	}
	switch c.Kind {
	case Words:
		page = appendIndices(page, c.indices, max(len(c.words), 1))
	case Double:
		page = append(page, c.data...)
	case Text, Bytes:
		page = append(appendDelta(appendDelta(page, c.ints, true), c.lengths, true), c.data...)
	default:
		page = appendDelta(page, c.ints, c.Kind == Int32)
		out.least, out.greatest = c.ints[0], c.ints[0]
		for _, v := range c.ints {
			out.least, out.greatest = min(out.least, v), max(out.greatest, v)
		}
	}
	w.page = page
	w.putPage(page, pageData, int64(w.rows), c.Kind.encoding())
	out.size = w.written - begin
	return out
}

// putPage writes a page with its head.
func (w *Writer) putPage(data []byte, kind, values, encoding int64) {
	t := &w.head
	t.buf = t.buf[:0]
	t.begin()
	t.i32(1, kind)
	t.i32(2, int64(len(data)))
	t.i32(3, int64(len(data)))
	t.i32(4, int64(int32(crc32.ChecksumIEEE(data))))
	if kind == pageDictionary {
		t.open(7)
		t.i32(1, values)
		t.i32(2, encoding)
	} else {
		t.open(5)
		t.i32(1, values)
		t.i32(2, encoding)
		t.i32(3, encodingRLE)
		t.i32(4, encodingRLE)
	}
	t.end()
	t.end()
	w.write(t.buf)
	w.write(data)
}
