package postgres

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"io"
	"math"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
)

// rowReader gives rows in the binary form of COPY, piece by piece:
//
//	"PGCOPY\n\xff\r\n\0" │ flags 4 │ extension 4 │ for each row: fields 2 │ for each field: length 4, bytes │ −1 as 2
//
// The driver may go on reading for a moment after it has told that the connection is lost; stop ends that.
type rowReader struct {
	mu    sync.Mutex
	run   string
	width int
	// fixed is how many columns come before the outputs, entries that an ID is the whole.
	fixed   int
	entries bool
	rows    []sinks.Rows
	number  int64
	row     partitions.Row
	buf     []byte
	at      int
	ended   bool
	err     error
}

const pieceBytes = 60 << 10

var signature = []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")

// newRowReader reads rows. buf is memory that nobody else uses, or nil.
func newRowReader(to sinks.Target, rows []sinks.Rows, buf []byte) *rowReader {
	return &rowReader{run: to.RunID, width: len(to.Outputs), fixed: len(fixedOf(to)), entries: to.Entries, rows: rows, number: rows[0].From, buf: append(buf[:0], signature...)}
}

// stop ends the reading and tells what was wrong with the rows. Their memory is not looked at any more.
func (r *rowReader) stop() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.err
	r.err, r.at = io.ErrClosedPipe, len(r.buf)
	return err
}

// Read implements io.Reader.
func (r *rowReader) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == len(r.buf) {
		if r.err != nil {
			return 0, r.err
		}
		if r.ended {
			return 0, io.EOF
		}
		r.buf, r.at = r.buf[:0], 0
		if r.err = r.fill(); r.err != nil {
			return 0, r.err
		}
	}
	n := copy(p, r.buf[r.at:])
	r.at += n
	return n, nil
}

// fill encodes rows until a piece is full, or all are done.
func (r *rowReader) fill() error {
	for len(r.buf) < pieceBytes {
		if len(r.rows) == 0 {
			r.buf, r.ended = binary.BigEndian.AppendUint16(r.buf, math.MaxUint16), true
			return nil
		}
		batch := &r.rows[0]
		if r.number == batch.End() {
			if len(batch.Data) > 0 {
				return (sinks.Rows{Partition: batch.Partition, From: batch.From, Rows: partitions.Rows{Data: batch.Data}}).Each(r.width, nil, nil)
			}
			if r.rows = r.rows[1:]; len(r.rows) > 0 {
				r.number = r.rows[0].From
			}
			continue
		}
		rest, err := partitions.DecodeRow(batch.Data, r.width, &r.row)
		if err != nil {
			return batch.Each(r.width, nil, func(int64, *partitions.Row) error { return nil }) // which says where
		}
		r.buf = r.appendRow(r.buf, batch.Partition)
		batch.Data, batch.From, batch.Count = rest, batch.From+1, batch.Count-1
		r.number++
	}
	return nil
}

// epoch2000 is PostgreSQL's, in microseconds since 1970.
var epoch2000 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

func (r *rowReader) appendRow(b []byte, partition int32) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(r.fixed+r.width))
	b = appendField(b, []byte(r.run))
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, 4), uint32(partition))
	b = appendInt(b, r.number)
	b = appendInt(b, time.Unix(0, int64(r.row.Time)).UnixMicro()-epoch2000)
	b = appendInt(b, int64(r.row.Time))
	if r.entries {
		return appendField(b, r.row.ID)
	}
	b = appendText(b, r.row.ID)
	b = appendText(b, r.row.Key)
	for _, v := range r.row.Values {
		if !v.OK {
			b = binary.BigEndian.AppendUint32(b, math.MaxUint32) // null
			continue
		}
		b = appendInt(b, int64(math.Float64bits(v.F)))
	}
	return b
}

func appendInt(b []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(b, 8), uint64(n))
}

func appendField(b, text []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(text))), text...)
}

// appendText writes what PostgreSQL takes as a text, and anything else in hex; what looks like that too, so that no two texts are written alike.
func appendText(b, text []byte) []byte {
	if utf8.Valid(text) && bytes.IndexByte(text, 0) < 0 && !bytes.HasPrefix(text, []byte(`\x`)) {
		return appendField(b, text)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(2+2*len(text)))
	return hex.AppendEncode(append(b, `\x`...), text)
}
