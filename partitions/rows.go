package partitions

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/record"
)

// Row is one tick's outputs: the event that ticked and a value per output of the flow. ID aliases the encoded rows.
type Row struct {
	Time   record.EventTime
	ID     []byte
	Key    []byte
	Values []operators.Value
}

// Rows is a sequence of rows in (event time, event id) order, but for those that a revision publishes again (flow.Plan.Revised), encoded as it is kept in the journal:
// for each row the time as 8 bytes big endian, the id and the key each with a uvarint length, then per output a byte
// (0 null, 1 number) and, for a number, its 8 bytes of IEEE 754 big endian.
type Rows struct {
	Data  []byte
	Count int
	// First and Last are the times of the first and last row, undefined while Count is 0.
	First, Last record.EventTime
}

// ErrRows says that encoded rows are damaged.
var ErrRows = errors.New("partitions: encoded rows are damaged")

// Append adds a row.
func (r *Rows) Append(t record.EventTime, id, key []byte, values []operators.Value) {
	if r.Count == 0 {
		r.First = t
	}
	r.Last = t
	r.Count++
	d := binary.BigEndian.AppendUint64(r.Data, uint64(t))
	d = binary.AppendUvarint(d, uint64(len(id)))
	d = append(d, id...)
	d = binary.AppendUvarint(d, uint64(len(key)))
	d = append(d, key...)
	for _, v := range values {
		if !v.OK {
			d = append(d, 0)
			continue
		}
		d = append(d, 1)
		d = binary.BigEndian.AppendUint64(d, math.Float64bits(v.F))
	}
	r.Data = d
}

// Reset empties the rows and keeps their memory.
func (r *Rows) Reset() { r.Data, r.Count = r.Data[:0], 0 }

// DecodeRow reads the first row of data into row (with width outputs) and returns what follows it.
func DecodeRow(data []byte, width int, row *Row) ([]byte, error) {
	if len(data) < 8 {
		return nil, ErrRows
	}
	row.Time = record.EventTime(binary.BigEndian.Uint64(data))
	data = data[8:]
	var err error
	if row.ID, data, err = lengthPrefixed(data); err != nil {
		return nil, err
	}
	if row.Key, data, err = lengthPrefixed(data); err != nil {
		return nil, err
	}
	row.Values = row.Values[:0]
	for range width {
		switch {
		case len(data) >= 1 && data[0] == 0:
			row.Values = append(row.Values, operators.Gap)
			data = data[1:]
		case len(data) >= 9 && data[0] == 1:
			row.Values = append(row.Values, operators.Number(math.Float64frombits(binary.BigEndian.Uint64(data[1:]))))
			data = data[9:]
		default:
			return nil, ErrRows
		}
	}
	return data, nil
}

func lengthPrefixed(data []byte) (field, rest []byte, err error) {
	n, w := binary.Uvarint(data)
	if w <= 0 || n > uint64(len(data)-w) {
		return nil, nil, ErrRows
	}
	return data[w : w+int(n)], data[w+int(n):], nil
}
