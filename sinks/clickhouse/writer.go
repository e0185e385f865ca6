package clickhouse

import (
	"context"
	"maps"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/chclient"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
)

type writer struct {
	s        *Sink
	to       sinks.Target
	conn     *chclient.Conn
	progress *sinks.Progress
	encode   *encoder
	// definition are the statements that make the tables and the view, for errors.
	definition []string
	// settings go with every insert.
	settings []string
	// sequence is what stands there once we have opened.
	sequence string
	// identity asks for what tells the table of rows from another one of its name, and stored is what it was.
	identity, stored string
	// lost are the last rows of partitions that the progress knows and the table does not. Each begins a block, so that it tells of those before it.
	lost map[int32]int64
}

// A block of rows is inserted once it has so many rows or bytes.
const (
	maxBlockRows  = 256 << 10
	maxBlockBytes = 8 << 20
)

// Published implements sinks.Writer.
func (w *writer) Published() map[int32]int64 { return w.progress.Published() }

// Close implements sinks.Writer. What was inserted and not published stays out of sight, and is given again.
func (w *writer) Close() error {
	_ = w.conn.Close() // it may be lost already, and nothing depends on it
	return nil
}

// Publish implements sinks.Writer: rows first, then the progress that shows them.
func (w *writer) Publish(ctx context.Context, batches []sinks.Rows) error {
	rest, err := w.progress.Rest(batches)
	if err == nil && len(rest) > 0 {
		if err = w.publish(ctx, rest); err == nil {
			w.progress.Done(rest)
		}
	}
	return w.progress.Fail(err)
}

func (w *writer) publish(ctx context.Context, rest []sinks.Rows) error {
	if err := w.step(ctx, "begin"); err != nil {
		return err
	}
	w.encode.reset()
	ends := map[int32]uint64{}
	for _, r := range rest {
		err := r.Each(len(w.to.Outputs), w.encode.values, func(number int64, row *partitions.Row) error {
			if last, lost := w.lost[r.Partition]; lost && number == last {
				if err := w.flush(ctx); err != nil {
					return err
				}
			}
			if err := w.encode.add(r.Partition, number, row); err != nil {
				return codes.New(codes.SinkInvalid, "%s: row %d of partition %d: %w", w.s.name, number, r.Partition, err)
			}
			if w.encode.rows < maxBlockRows && w.encode.bytes() < maxBlockBytes {
				return nil
			}
			return w.flush(ctx)
		})
		if err != nil {
			return err
		}
		ends[r.Partition] = uint64(r.End())
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	if err := w.step(ctx, "staged"); err != nil {
		return err
	}
	if err := w.sameTable(ctx); err != nil {
		return err
	}
	if err := w.moveOn(ctx, ends); err != nil {
		return err
	}
	if err := w.step(ctx, "published"); err != nil {
		return err
	}
	found, err := w.stands(ctx, slices.Sorted(maps.Keys(ends)))
	if err == nil {
		err = w.newest(found)
	}
	return err
}

// flush inserts the rows that were encoded, as one block.
func (w *writer) flush(ctx context.Context) error {
	e := w.encode
	if e.rows == 0 {
		return nil
	}
	err := w.conn.Insert(ctx, w.insert(w.s.rows(), e.columns), chclient.Block{Rows: e.rows, Columns: e.data})
	e.reset()
	return w.fail(ctx, "writing rows", err)
}

// moveOn writes the progress of partitions, in one block.
func (w *writer) moveOn(ctx context.Context, ends map[int32]uint64) error {
	block := chclient.Block{Columns: make([]chclient.Column, len(progressColumns))}
	for i, c := range progressColumns {
		block.Columns[i].Name, block.Columns[i].Type = c.name, c.kind
	}
	data := block.Columns
	for _, p := range slices.Sorted(maps.Keys(ends)) {
		block.Rows++
		data[0].Data = chclient.AppendString(data[0].Data, []byte(w.to.RunID))
		data[1].Data = chclient.AppendInt32(data[1].Data, uint32(p))
		data[2].Data = chclient.AppendInt64(data[2].Data, w.to.Token)
		data[3].Data = chclient.AppendInt64(data[3].Data, ends[p])
		data[4].Data = chclient.AppendString(data[4].Data, []byte(w.sequence))
	}
	return w.fail(ctx, "publishing rows", w.conn.Insert(ctx, w.insert(w.s.progress(), progressColumns), block))
}

func (w *writer) step(ctx context.Context, name string) error {
	if err := w.s.cfg.Hook(name); err != nil {
		return err
	}
	return ctx.Err()
}

func (w *writer) fail(ctx context.Context, doing string, err error) error {
	return w.s.fail(ctx, doing, err)
}
