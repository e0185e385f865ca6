package clickhouse

import (
	"context"

	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/internal/chclient"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// Read calls fn with every row of a run that the view shows, in any order, as a reader of the view finds it. A row is valid during the call. Errors are those of Sink.Open, and fn's.
func (s *Sink) Read(ctx context.Context, run string, outputs []string, fn func(partition int32, number int64, row *partitions.Row) error) error {
	if err := s.names(outputs); err != nil {
		return err
	}
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	query := "SELECT " + list(columns(outputs)) + " FROM " + s.table("") + " WHERE run_id = " + chclient.Quote(run)
	row := partitions.Row{Values: make([]operators.Value, len(outputs))}
	var stopped error
	err = conn.Query(ctx, query, func(v []any) error {
		row.Time, row.ID, row.Key = record.EventTime(v[4].(int64)), []byte(v[5].(string)), []byte(v[6].(string))
		for i, value := range v[len(fixed):] {
			row.Values[i] = operators.Gap
			if f, ok := value.(float64); ok {
				row.Values[i] = operators.Number(f)
			}
		}
		stopped = fn(int32(v[1].(int64)), v[2].(int64), &row)
		return stopped
	})
	if stopped != nil {
		return stopped
	}
	return s.fail(ctx, "reading the view", err)
}
