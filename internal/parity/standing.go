package parity

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// standing is what stands of rows for a reader who takes, of each key and time, the one with the highest number of a revision, or the last where rows have
// no number. It holds them in memory, and is used only for flows that take revisions in behind the watermark.
type standing struct {
	rows map[rowName]standingRow
	// first has the first row of each event or tick, without its number.
	first map[rowID][]operators.Value
}

type rowName struct {
	at  record.EventTime
	key string
}

type rowID struct {
	rowName
	id string
}

type standingRow struct {
	number float64
	values []operators.Value
}

// of collects the rows of a run, where its flow asks for it.
func (s *standing) of(cfg *batch.Config) {
	if cfg.Plan.RevisionHorizon == 0 {
		return
	}
	s.rows, s.first = map[rowName]standingRow{}, map[rowID][]operators.Value{}
	width := cfg.Plan.Results()
	cfg.Row = func(row *partitions.Row) error {
		s.add(row, width)
		return nil
	}
}

func (s *standing) add(row *partitions.Row, width int) {
	id := rowID{rowName{row.Time, string(row.Key)}, string(row.ID)}
	now := standingRow{values: slices.Clone(row.Values[:width])}
	if len(row.Values) > width {
		now.number = row.Values[width].F
	}
	if was, ok := s.rows[id.rowName]; !ok || now.number >= was.number {
		s.rows[id.rowName] = now
	}
	if _, again := s.first[id]; !again {
		s.first[id] = now.values
	}
}

// firstAre says whether the first rows of both are the same.
func (s *standing) firstAre(o *standing) bool { return maps.EqualFunc(s.first, o.first, sameValues) }

func sameValues(a, b []operators.Value) bool {
	return slices.EqualFunc(a, b, func(x, y operators.Value) bool {
		return x.OK == y.OK && math.Float64bits(x.F) == math.Float64bits(y.F)
	})
}

// difference says which result differs first between batch and stream, or "".
func (s *standing) difference(stream *standing) string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(s.rows)), maps.Keys(stream.rows))
	var first *rowName
	for _, n := range names {
		a, inBatch := s.rows[n]
		b, inStream := stream.rows[n]
		differs := inBatch != inStream || !sameValues(a.values, b.values)
		if differs && (first == nil || n.at < first.at || n.at == first.at && n.key < first.key) {
			first = &n
		}
	}
	if first == nil {
		return ""
	}
	return fmt.Sprintf("the result of key %q at %s is %s in batch and %s in the stream", first.key, first.at, s.show(*first), stream.show(*first))
}

func (s *standing) show(n rowName) string {
	row, ok := s.rows[n]
	if !ok {
		return "absent"
	}
	return showValues(row.values)
}

func showValues(values []operators.Value) string {
	text := make([]string, len(values))
	for i, v := range values {
		if text[i] = "null"; v.OK {
			text[i] = string(record.AppendFloat(nil, v.F))
		}
	}
	return fmt.Sprint(text)
}
