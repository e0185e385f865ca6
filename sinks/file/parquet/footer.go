package parquet

import (
	"encoding/binary"
	"errors"
	"io"
)

// Numbers of the format.
const (
	typeInt32, typeInt64, typeDouble, typeBytes = 1, 2, 5, 6

	encodingPlain, encodingRLE, encodingDelta, encodingDeltaBytes, encodingDictionary = 0, 3, 5, 7, 8

	pageData, pageDictionary = 0, 2

	required, optional = 0, 1
)

func (k Kind) nullable() bool { return k >= Words }

func (k Kind) physical() int64 {
	switch k {
	case Int32:
		return typeInt32
	case Int64, Moment:
		return typeInt64
	case Double:
		return typeDouble
	}
	return typeBytes
}

func (k Kind) encoding() int64 {
	switch k {
	case Words:
		return encodingDictionary
	case Text, Bytes:
		return encodingDeltaBytes
	case Double:
		return encodingPlain
	}
	return encodingDelta
}

// footer writes what a file says of itself, and the end.
func (w *Writer) footer() {
	t := &w.head
	t.buf = t.buf[:0]
	t.begin()
	t.i32(1, 2) // version
	t.list(2, thriftStruct, len(w.columns)+1)
	w.schema(t)
	rows := int64(0)
	for _, g := range w.groups {
		rows += int64(g.rows)
	}
	t.i64(3, rows)
	t.list(4, thriftStruct, len(w.groups))
	for i := range w.groups {
		w.groupMeta(t, i)
	}
	t.text(6, "weir")
	t.list(7, thriftStruct, len(w.columns)) // every column is ordered as its type says
	for range w.columns {
		t.begin()
		t.open(1)
		t.end()
		t.end()
	}
	t.end()
	t.buf = binary.LittleEndian.AppendUint32(t.buf, uint32(len(t.buf)))
	w.write(append(t.buf, magic...))
}

func (w *Writer) schema(t *thrift) {
	t.begin()
	t.text(4, "rows")
	t.i32(5, int64(len(w.columns)))
	t.end()
	for i := range w.columns {
		c := &w.columns[i]
		t.begin()
		t.i32(1, c.Kind.physical())
		if c.Kind.nullable() {
			t.i32(3, optional)
		} else {
			t.i32(3, required)
		}
		t.text(4, c.Name)
		switch c.Kind {
		case Words, Text:
			t.i32(6, 0) // UTF8, for readers older than the field below
			t.open(10)
			t.open(1)
			t.end()
			t.end()
		case Moment:
			t.open(10)
			t.open(8)
			t.bool(1, true) // in UTC
			t.open(2)
			t.open(3) // nanoseconds
			t.end()
			t.end()
			t.end()
			t.end()
		}
		t.end()
	}
}

func (w *Writer) groupMeta(t *thrift, i int) {
	g := &w.groups[i]
	t.begin()
	t.list(1, thriftStruct, len(g.chunks))
	for k := range g.chunks {
		t.begin()
		t.i64(2, 0)
		t.open(3)
		w.columns[k].meta(t, &g.chunks[k], g.rows)
		t.end()
		t.end()
	}
	t.i64(2, g.size)
	t.i64(3, int64(g.rows))
	t.i64(5, g.offset)
	t.i64(6, g.size)
	t.i16(7, int64(i))
	t.end()
}

func (c *column) meta(t *thrift, at *chunk, rows int) {
	t.i32(1, c.Kind.physical())
	encodings := []int64{c.Kind.encoding()}
	if c.Kind.nullable() {
		encodings = append(encodings, encodingRLE)
	}
	if c.Kind == Words {
		encodings = append(encodings, encodingPlain)
	}
	t.list(2, thriftI32, len(encodings))
	for _, e := range encodings {
		t.buf = binary.AppendVarint(t.buf, e)
	}
	t.list(3, thriftBinary, 1)
	t.item(c.Name)
	t.i32(4, 0) // uncompressed
	t.i64(5, int64(rows))
	t.i64(6, at.size)
	t.i64(7, at.size)
	t.i64(9, at.data)
	if at.dictionary > 0 {
		t.i64(11, at.dictionary)
	}
	t.open(12)
	t.i64(3, int64(at.nulls))
	if !c.Kind.nullable() {
		t.text(5, c.plain(at.greatest))
		t.text(6, c.plain(at.least))
	}
	t.end()
}

func (c *column) plain(v int64) string {
	if c.Kind == Int32 {
		return string(binary.LittleEndian.AppendUint32(nil, uint32(v)))
	}
	return string(binary.LittleEndian.AppendUint64(nil, uint64(v)))
}

// ErrFile says that a file is none of Parquet, or is cut short.
var ErrFile = errors.New("it is no whole file of Parquet")

// Rows is how many rows a file of a size says that it has. Of the rest it looks at the ends alone. Errors: ErrFile, and those of reading.
func Rows(in io.ReaderAt, size int64) (int64, error) {
	var head, tail [8]byte
	if size < 12 {
		return 0, ErrFile
	}
	if _, err := in.ReadAt(head[:4], 0); err != nil {
		return 0, err
	}
	if _, err := in.ReadAt(tail[:], size-8); err != nil {
		return 0, err
	}
	length := int64(binary.LittleEndian.Uint32(tail[:4]))
	if string(head[:4]) != magic || string(tail[4:]) != magic || length > size-12 {
		return 0, ErrFile
	}
	footer := make([]byte, length)
	if _, err := in.ReadAt(footer, size-8-length); err != nil {
		return 0, err
	}
	s := structure{data: footer}
	rows := int64(-1)
	s.fields(0, func(id int16, kind byte) {
		if id == 3 && kind == thriftI64 {
			rows = s.varint()
			return
		}
		s.skip(kind, 0)
	})
	if s.bad || rows < 0 {
		return 0, ErrFile
	}
	return rows, nil
}
