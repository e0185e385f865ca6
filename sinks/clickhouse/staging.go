package clickhouse

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/chclient"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
)

// Staging keeps the rows of whole results. A staging named features has two tables and a view, which is what readers read:
//
//	features_staged                                   features_runs
//	run_id, artifact, row_number  ORDER BY            run_id, artifact  ORDER BY
//	event_time, event_nanos                           outputs  Array(String)
//	event_id, event_key                               rows     UInt64
//	values   Array(Nullable(Float64))                 shown    UInt8, the version
//
// The view shows the rows of the results that are shown, with the names of their values: ARRAY JOIN outputs AS output, values AS value makes a row of each.
type Staging struct {
	s *Sink
}

var _ sinks.Staging = (*Staging)(nil)

// NewStaging makes a staging; nothing is connected. Config.Hook is called between any two steps. Errors: those of New.
func NewStaging(cfg Config) (*Staging, error) {
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return &Staging{s}, nil
}

var (
	stagedColumns = []column{
		{"run_id", "String"}, {"artifact", "String"}, {"row_number", "Int64"}, {"event_time", "DateTime"}, {"event_nanos", "Int64"},
		{"event_id", "String"}, {"event_key", "String"}, {"values", "Array(" + outputKind + ")"},
	}
	runColumns = []column{{"run_id", "String"}, {"artifact", "String"}, {"outputs", "Array(String)"}, {"rows", "UInt64"}, {"shown", "UInt8"}}
)

func (g *Staging) rows() string { return g.s.table("_staged") }
func (g *Staging) runs() string { return g.s.table("_runs") }

// Definition are the statements that make the tables and the view.
func (g *Staging) Definition() []string {
	return []string{
		"CREATE TABLE IF NOT EXISTS " + g.rows() + " (\n" + declare(stagedColumns) + "\n) ENGINE = ReplacingMergeTree() ORDER BY (run_id, artifact, row_number)",
		"CREATE TABLE IF NOT EXISTS " + g.runs() + " (\n" + declare(runColumns) + "\n) ENGINE = ReplacingMergeTree(shown) ORDER BY (run_id, artifact)",
		"CREATE VIEW IF NOT EXISTS " + g.s.table("") + " AS SELECT " + list(stagedColumns) + ", outputs FROM " + g.rows() + " FINAL" +
			"\n  ALL INNER JOIN (SELECT run_id, artifact, any(outputs) AS outputs FROM " + g.runs() + " WHERE shown = 1 GROUP BY run_id, artifact) AS shown" +
			"\n  USING (run_id, artifact)",
	}
}

// with does something over a connection of its own.
func (g *Staging) with(ctx context.Context, do func(w *writer) error) error {
	conn, err := g.s.dial(ctx)
	if err != nil {
		return err
	}
	w := &writer{s: g.s, conn: conn}
	defer w.Close()
	if err := w.usable(ctx); err != nil {
		return err
	}
	return do(w)
}

// Check implements sinks.Staging.
func (g *Staging) Check(ctx context.Context) error {
	return g.with(ctx, func(w *writer) error {
		if g.s.cfg.Create {
			for _, statement := range g.Definition() {
				if err := w.conn.Exec(ctx, statement); err != nil {
					return w.fail(ctx, "creating the tables", err)
				}
			}
		}
		w.definition = g.Definition()
		return w.checkAll(ctx, false, append([]column{{"outputs", ""}}, stagedColumns...), shape{"_staged", "", "run_id, artifact, row_number", stagedColumns},
			shape{"_runs", "shown", "run_id, artifact", runColumns})
	})
}

// Stage implements sinks.Staging: first that there is a result, so that whatever a kill leaves of it is found, and then its rows.
func (g *Staging) Stage(ctx context.Context, r sinks.Staged, rows func(fn func(row *partitions.Row) error) error) error {
	return g.with(ctx, func(w *writer) error {
		if err := w.step(ctx, "connected"); err != nil {
			return err
		}
		if err := w.conn.Insert(ctx, w.insert(g.runs(), runColumns), runBlock(r, 0)); err != nil {
			return w.fail(ctx, "naming a result", err)
		}
		if err := w.step(ctx, "named"); err != nil {
			return err
		}
		block := newStagedBlock(r)
		n := int64(0)
		err := rows(func(row *partitions.Row) error {
			block.add(n, row)
			if n++; block.rows < maxBlockRows && block.bytes < maxBlockBytes {
				return nil
			}
			return g.flush(ctx, w, block)
		})
		if err == nil {
			err = g.flush(ctx, w, block)
		}
		if err == nil && n != r.Rows {
			err = codes.New(codes.Internal, "%s: a result of %d rows has %d", g.s.name, r.Rows, n)
		}
		if err != nil {
			return err
		}
		return w.step(ctx, "staged")
	})
}

func (g *Staging) flush(ctx context.Context, w *writer, b *stagedBlock) error {
	if b.rows == 0 {
		return nil
	}
	err := w.conn.Insert(ctx, w.insert(g.rows(), stagedColumns), chclient.Block{Rows: b.rows, Columns: b.columns()})
	b.reset()
	if err != nil {
		return w.fail(ctx, "staging rows", err)
	}
	return w.step(ctx, "block")
}

// Show implements sinks.Staging. One row shows the result.
func (g *Staging) Show(ctx context.Context, name sinks.StagedName) error {
	return g.with(ctx, func(w *writer) error {
		r, shown, err := g.find(ctx, w, name)
		if err != nil || shown {
			return err
		}
		if err := w.step(ctx, "found"); err != nil {
			return err
		}
		if err := w.conn.Insert(ctx, w.insert(g.runs(), runColumns), runBlock(r, 1)); err != nil {
			return w.fail(ctx, "showing a result", err)
		}
		return w.step(ctx, "shown")
	})
}

// find looks a result up. One that is not there is SINK_REFUSED.
func (g *Staging) find(ctx context.Context, w *writer, name sinks.StagedName) (r sinks.Staged, shown bool, err error) {
	found := false
	query := "SELECT rows, shown, output FROM (SELECT rows, shown, arrayConcat([''], outputs) AS all FROM " + g.runs() + " FINAL WHERE " + named(name) + ") ARRAY JOIN all AS output"
	err = w.conn.Query(ctx, query, func(row []any) error {
		if output := row[2].(string); output != "" {
			r.Outputs = append(r.Outputs, output)
		}
		found, r.Rows, shown = true, int64(row[0].(uint64)), row[1].(uint64) == 1
		return nil
	})
	r.StagedName = name
	if err == nil && !found {
		return r, false, codes.New(codes.SinkRefused, "%s: the result %s of run %q was never staged, or was dropped", g.s.name, name.Artifact, name.RunID)
	}
	return r, shown, w.fail(ctx, "looking for a result", err)
}

func named(name sinks.StagedName) string {
	return "run_id = " + chclient.Quote(name.RunID) + " AND artifact = " + chclient.Quote(name.Artifact)
}

// Hidden implements sinks.Staging.
func (g *Staging) Hidden(ctx context.Context, fn func(sinks.StagedName) error) error {
	var names []sinks.StagedName
	err := g.with(ctx, func(w *writer) error {
		err := w.conn.Query(ctx, "SELECT run_id, artifact FROM "+g.runs()+" GROUP BY run_id, artifact HAVING max(shown) = 0 ORDER BY run_id, artifact", func(row []any) error {
			names = append(names, sinks.StagedName{RunID: row[0].(string), Artifact: row[1].(string)})
			return nil
		})
		return w.fail(ctx, "listing results", err)
	})
	for _, name := range names {
		if err == nil {
			err = fn(name)
		}
	}
	return err
}

// Drop implements sinks.Staging. The name goes last, so that a drop that was cut short is found again.
func (g *Staging) Drop(ctx context.Context, name sinks.StagedName) error {
	return g.with(ctx, func(w *writer) error {
		_, shown, err := g.find(ctx, w, name)
		if shown || codes.Has(err, codes.SinkRefused) {
			return nil
		}
		for _, table := range []string{"_staged", "_runs"} {
			if err == nil {
				err = w.step(ctx, "drop"+table)
			}
			if err == nil {
				err = w.remove(ctx, table, named(name))
			}
		}
		return err
	})
}

// remove deletes rows and waits until they are gone.
func (w *writer) remove(ctx context.Context, suffix, where string) error {
	if err := w.conn.Exec(ctx, "ALTER TABLE "+w.s.table(suffix)+" DELETE WHERE "+where); err != nil {
		return w.fail(ctx, "dropping a result", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		left := ""
		err := w.conn.Query(ctx, "SELECT toString(count()) FROM "+w.s.table(suffix)+" WHERE "+where, func(row []any) error {
			left = fmt.Sprint(row[0])
			return nil
		})
		if err != nil || left == "0" {
			return w.fail(ctx, "dropping a result", err)
		}
		select {
		case <-ctx.Done():
			return codes.New(codes.SinkUnavailable, "%s: the server has not deleted %s rows after a minute; it goes on with it", w.s.name, left)
		case <-tick.C:
		}
	}
}

// runBlock is a row of the results.
func runBlock(r sinks.Staged, shown byte) chclient.Block {
	outputs := chclient.AppendInt64(nil, uint64(len(r.Outputs)))
	for _, name := range r.Outputs {
		outputs = chclient.AppendString(outputs, []byte(name))
	}
	data := [][]byte{
		chclient.AppendString(nil, []byte(r.RunID)), chclient.AppendString(nil, []byte(r.Artifact)), outputs, chclient.AppendInt64(nil, uint64(r.Rows)), {shown},
	}
	block := chclient.Block{Rows: 1}
	for i, c := range runColumns {
		block.Columns = append(block.Columns, chclient.Column{Name: c.name, Type: c.kind, Data: data[i]})
	}
	return block
}

// stagedBlock is a block of rows of a result.
type stagedBlock struct {
	run, artifact []byte
	rows, bytes   int
	data          [7][]byte
	// The values of all rows: where those of each row end, which are null, and what they are.
	values       uint64
	ends         []byte
	nulls, items []byte
}

func newStagedBlock(r sinks.Staged) *stagedBlock {
	return &stagedBlock{run: chclient.AppendString(nil, []byte(r.RunID)), artifact: chclient.AppendString(nil, []byte(r.Artifact))}
}

func (b *stagedBlock) add(number int64, row *partitions.Row) {
	d := &b.data
	d[0] = append(d[0], b.run...)
	d[1] = append(d[1], b.artifact...)
	d[2] = chclient.AppendInt64(d[2], uint64(number))
	d[3] = chclient.AppendInt32(d[3], seconds(row.Time))
	d[4] = chclient.AppendInt64(d[4], uint64(row.Time))
	d[5] = chclient.AppendString(d[5], row.ID)
	d[6] = chclient.AppendString(d[6], row.Key)
	for _, v := range row.Values {
		null := byte(0)
		if !v.OK {
			null, v.F = 1, 0
		}
		b.nulls = append(b.nulls, null)
		b.items = chclient.AppendFloat64(b.items, v.F)
	}
	b.values += uint64(len(row.Values))
	b.ends = chclient.AppendInt64(b.ends, b.values)
	b.rows++
	b.bytes += len(b.run) + len(b.artifact) + len(row.ID) + len(row.Key) + 9*len(row.Values) + 30
}

func (b *stagedBlock) columns() []chclient.Column {
	out := make([]chclient.Column, 0, len(stagedColumns))
	for i, c := range stagedColumns[:len(b.data)] {
		out = append(out, chclient.Column{Name: c.name, Type: c.kind, Data: b.data[i]})
	}
	last := stagedColumns[len(b.data)]
	return append(out, chclient.Column{Name: last.name, Type: last.kind, Nulls: append(b.ends, b.nulls...), Data: b.items})
}

func (b *stagedBlock) reset() {
	b.rows, b.bytes, b.values = 0, 0, 0
	b.ends, b.nulls, b.items = b.ends[:0], b.nulls[:0], b.items[:0]
	for i := range b.data {
		b.data[i] = b.data[i][:0]
	}
}

// declare lists columns with their types.
func declare(cols []column) string {
	var lines []string
	for _, c := range cols {
		lines = append(lines, "  `"+c.name+"` "+c.kind)
	}
	return strings.Join(lines, ",\n")
}
