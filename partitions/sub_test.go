package partitions

import (
	"fmt"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// aggregate is a record of the log that carries n records of its own.
func aggregate(position int64, n int) []record.Record {
	var out []record.Record
	for i := range n {
		value := fmt.Sprintf(`{"id":"%d.%d","key":"k","at":%d,"x":1}`, position, i, 1000*position+int64(i))
		out = append(out, record.Record{Position: record.Offset(position), Sub: uint32(i), Arrival: record.NoTime, Key: []byte("k"), Value: []byte(value)})
	}
	return out
}

// The records of an aggregate share a position, each is counted, and the position moves behind all of them at once.
func TestAggregateIsOnePosition(t *testing.T) {
	t.Parallel()
	h := newHarness(planOf(t, emaFlow), 0)
	records := append(append(aggregate(3, 5), aggregate(7, 1)...), aggregate(8, 3)...)
	h.step(t, Deliver{Batch: &record.Batch{Records: records, Next: record.Offset(9)}})
	if h.m.Next() != record.Offset(9) || h.m.Counts().Records != 9 || h.m.Counts().Consumed != 9 {
		t.Errorf("stands at %s with %+v", h.m.Next(), h.m.Counts())
	}
}

// A batch that tears an aggregate apart would leave a position between its records, which no log can be read from.
func TestAggregateIsNotTornApart(t *testing.T) {
	t.Parallel()
	whole := aggregate(3, 3)
	for name, records := range map[string][]record.Record{
		"begins in the middle":      whole[1:],
		"leaves one out":            {whole[0], whole[2]},
		"another position":          {whole[0], {Position: record.Offset(4), Sub: 1, Value: whole[1].Value}},
		"the same position, no sub": {whole[0], {Position: record.Offset(3), Value: whole[1].Value}},
	} {
		m := New(planOf(t, emaFlow), 0)
		err := m.Step(Deliver{Batch: &record.Batch{Records: records, Next: record.Offset(9)}}, new(Effects))
		if !codes.Has(err, codes.Internal) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
