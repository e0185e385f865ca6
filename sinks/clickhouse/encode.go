package clickhouse

import (
	"errors"
	"math"

	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/internal/chclient"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

// encoder turns rows into a block. Its memory is used again.
type encoder struct {
	run     []byte // with its length, as a column has it
	token   uint64
	revised bool
	columns []column
	data    []chclient.Column
	rows    int
	values  []operators.Value
}

func newEncoder(to sinks.Target) *encoder {
	e := &encoder{run: chclient.AppendString(nil, []byte(to.RunID)), token: to.Token, revised: to.Revised, columns: columns(to.Outputs)}
	e.values = make([]operators.Value, 0, len(to.Outputs))
	for _, c := range e.columns {
		e.data = append(e.data, chclient.Column{Name: c.name, Type: c.kind})
		if c.kind == outputKind {
			e.data[len(e.data)-1].Nulls = []byte{}
		}
	}
	return e
}

func (e *encoder) reset() {
	e.rows = 0
	for i := range e.data {
		e.data[i].Data = e.data[i].Data[:0]
		if e.data[i].Nulls != nil {
			e.data[i].Nulls = e.data[i].Nulls[:0]
		}
	}
}

// bytes of the block so far, about.
func (e *encoder) bytes() int {
	return len(e.data[0].Data) + len(e.data[5].Data) + len(e.data[6].Data) + 8*e.rows*len(e.data)
}

// Of the version of a revision the upper bits are the revision, and the lower ones count row numbers down.
const (
	numberBits  = 40
	maxRevision = 1<<(64-numberBits) - 1
)

var errRevision = errors.New("its revision is not a whole number from 0 to 16777215, which the version of a row has room for")

// add adds a row. The order is that of the columns.
func (e *encoder) add(partition int32, number int64, row *partitions.Row) error {
	version, err := e.version(number, row)
	if err != nil {
		return err
	}
	d := e.data
	d[0].Data = append(d[0].Data, e.run...)
	d[1].Data = chclient.AppendInt32(d[1].Data, uint32(partition))
	d[2].Data = chclient.AppendInt64(d[2].Data, uint64(number))
	d[3].Data = chclient.AppendInt32(d[3].Data, seconds(row.Time))
	d[4].Data = chclient.AppendInt64(d[4].Data, uint64(row.Time))
	d[5].Data = chclient.AppendString(d[5].Data, row.ID)
	d[6].Data = chclient.AppendString(d[6].Data, row.Key)
	d[7].Data = chclient.AppendInt64(d[7].Data, version)
	for i, v := range row.Values {
		c := &d[len(fixed)+i]
		null := byte(0)
		if !v.OK {
			null, v.F = 1, 0
		}
		c.Nulls = append(c.Nulls, null)
		c.Data = chclient.AppendFloat64(c.Data, v.F)
	}
	e.rows++
	return nil
}

// version of a row: of its copies, the one with the highest counts. Of equal revisions that is the first.
func (e *encoder) version(number int64, row *partitions.Row) (uint64, error) {
	if !e.revised {
		return e.token, nil
	}
	v := row.Values[len(row.Values)-1]
	if !v.OK || v.F < 0 || v.F > maxRevision || v.F != math.Trunc(v.F) {
		return 0, errRevision
	}
	const first = 1<<numberBits - 1
	return uint64(v.F)<<numberBits | uint64(first-min(number, first)), nil
}

// seconds is a time as DateTime has it.
func seconds(t record.EventTime) uint32 {
	return uint32(min(max(int64(t)/1_000_000_000, 0), math.MaxUint32))
}
