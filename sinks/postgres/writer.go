package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

type writer struct {
	s    *Sink
	to   sinks.Target
	conn *pgx.Conn
	// copy is the statement by which rows arrive; merge brings them from the stage to the table, where they are revisions.
	copy, merge string
	// stored is what storage gave when the table was opened.
	stored   string
	progress *sinks.Progress
	// spare is memory for the next copying.
	spare []byte
}

// Published implements sinks.Writer.
func (w *writer) Published() map[int32]int64 { return w.progress.Published() }

// Close implements sinks.Writer. A transaction that is open is undone by the server.
func (w *writer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = w.conn.Close(ctx) // it may be lost already, and nothing depends on it
	return nil
}

// Publish implements sinks.Writer: one transaction.
func (w *writer) Publish(ctx context.Context, batches []sinks.Rows) error {
	rest, err := w.progress.Rest(batches)
	if err == nil && len(rest) > 0 {
		if err = w.transaction(ctx, rest); err == nil {
			w.progress.Done(rest)
		}
	}
	return w.progress.Fail(err)
}

func (w *writer) transaction(ctx context.Context, rest []sinks.Rows) error {
	if err := w.step(ctx, "begin"); err != nil {
		return err
	}
	parts, ends := endsOf(rest)
	if err := w.lock(ctx, "BEGIN", parts); err != nil {
		return err
	}
	if err := w.write(ctx, rest); err != nil {
		return err
	}
	if err := w.finish(ctx, "COMMIT", parts, ends); err != nil {
		return err
	}
	return w.step(ctx, "committed")
}

// endsOf are the partitions of rows, and where each will stand.
func endsOf(rest []sinks.Rows) (parts []int32, ends []int64) {
	for _, r := range rest {
		if n := len(parts); n > 0 && parts[n-1] == r.Partition {
			ends[n-1] = r.End()
			continue
		}
		parts, ends = append(parts, r.Partition), append(ends, r.End())
	}
	return parts, ends
}

// write brings rows into the table, within a transaction that holds the progress.
func (w *writer) write(ctx context.Context, rest []sinks.Rows) error {
	if err := w.step(ctx, "locked"); err != nil {
		return err
	}
	source := newRowReader(w.to, rest, w.spare)
	w.spare = nil
	_, err := w.conn.PgConn().CopyFrom(ctx, source, w.copy)
	wrong := source.stop()
	switch {
	case wrong != nil:
		return wrong
	case err != nil:
		return w.fail(ctx, "copying rows", err)
	}
	w.spare = source.buf
	if err := w.step(ctx, "copied"); err != nil || w.merge == "" {
		return err
	}
	if _, err := w.conn.Exec(ctx, w.merge); err != nil {
		return w.fail(ctx, "merging revisions", err)
	}
	return w.step(ctx, "merged")
}

// lock locks the progress of the partitions, after a statement unless it is "", and compares it with what we know.
func (w *writer) lock(ctx context.Context, first string, parts []int32) error {
	var batch pgx.Batch
	if first != "" {
		batch.Queue(first)
	}
	// That the table is named here keeps it from being dropped or emptied until we are done.
	batch.Queue(`SELECT partition, rows_published, fence_token, `+w.storage()+` FROM `+w.s.progress+` WHERE run_id = $1 AND partition = ANY ($2)
		AND NOT EXISTS (SELECT FROM `+w.s.table+` WHERE false) ORDER BY partition FOR NO KEY UPDATE`, w.to.RunID, parts)
	answers := w.conn.SendBatch(ctx, &batch)
	defer answers.Close()
	if first != "" {
		if _, err := answers.Exec(); err != nil {
			return w.fail(ctx, "beginning", err)
		}
	}
	rows, _ := answers.Query() // its error comes from ForEachRow
	known, found := w.progress.Published(), 0
	var partition int32
	var at, token int64
	var stored string
	_, err := pgx.ForEachRow(rows, []any{&partition, &at, &token, &stored}, func() error {
		found++
		switch {
		case token > int64(w.to.Token):
			return w.stale(partition)
		case at != known[partition] || token != int64(w.to.Token):
			return codes.New(codes.SinkUnavailable, "%s: partition %d stands at row %d under token %d and not at row %d: another writer was there; what stands is read again",
				w.s.name, partition, at, token, known[partition])
		case stored != w.stored:
			return codes.New(codes.SinkUnavailable, "%s: the table was made anew, emptied or rewritten; what stands is read again", w.s.name)
		}
		return nil
	})
	if err == nil && found != len(parts) {
		err = codes.New(codes.SinkUnavailable, "%s: the progress of a partition is gone; what stands is read again", w.s.name)
	}
	return w.fail(ctx, "locking the progress", err)
}

// finish notes where the partitions stand, before a last statement unless it is "".
func (w *writer) finish(ctx context.Context, last string, parts []int32, ends []int64) error {
	var batch pgx.Batch
	batch.Queue(`UPDATE `+w.s.progress+` p SET rows_published = n.at FROM unnest($2::int[], $3::bigint[]) n(part, at) WHERE p.run_id = $1 AND p.partition = n.part`, w.to.RunID, parts, ends)
	if last != "" {
		batch.Queue(last)
	}
	return w.fail(ctx, "committing", w.conn.SendBatch(ctx, &batch).Close())
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
