package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// maxPart is the largest part of a row run, and the most that one insert of several quarantined records carries. Every value is copied on
// its way into SQLite, and a reader holds one at a time.
const maxPart = 4 << 20

// Commit is control.Journal's.
func (s *Store) Commit(ctx context.Context, c control.Commit) error { return s.commit(ctx, nil, c) }

// commit is Commit under a lease, or (nil) without one.
func (s *Store) commit(ctx context.Context, l *control.Lease, c control.Commit) error {
	if err := c.Validate(); err != nil {
		return err
	}
	if err := checkUnder(c.RunID, l); err != nil {
		return err
	}
	if err := s.fits(c); err != nil {
		return err
	}
	err := s.write(ctx, func(t *txn) error { return t.commit(l, c) })
	return s.fail(ctx, fmt.Sprintf("commit of epoch %d of run %q", c.Epoch, c.RunID), err)
}

// fits refuses values that SQLite does not take, before anything is written.
func (s *Store) fits(c control.Commit) error {
	tooLarge := func(p int32, what string, n int) error {
		return codes.New(codes.LimitReached, "journal %s: epoch %d of run %q, partition %d: %s has %d bytes, SQLite takes %d", s.cfg.Path, c.Epoch, c.RunID, p, what, n, s.cfg.maxBlob)
	}
	for _, p := range c.Partitions {
		for _, b := range p.Cut.Put {
			if n := len(b.Data) + len(b.Name); n > s.cfg.maxBlob {
				return tooLarge(p.Cut.Partition, fmt.Sprintf("the state blob %q", b.Name), n)
			}
		}
		for i := range p.Quarantine {
			if n := p.Quarantine[i].Size(); n > s.cfg.maxBlob {
				return tooLarge(p.Cut.Partition, fmt.Sprintf("the quarantined record at %s", p.Quarantine[i].Position), n)
			}
		}
	}
	return nil
}

func (t *txn) commit(l *control.Lease, c control.Commit) error {
	token, err := t.verified(l)
	if err != nil {
		return err
	}
	run, err := t.readRun(c.RunID)
	if err != nil {
		return err
	}
	if err := run.raise(token); err != nil {
		return err
	}
	if err := control.CheckCommit(control.RunStatus(run.status), uint64(run.epoch), c); err != nil {
		return err
	}
	if int64(c.Watermark) < run.watermark {
		return codes.New(codes.Internal, "run %q: the merged watermark would go back from %s to %s", c.RunID, record.EventTime(run.watermark), c.Watermark)
	}
	before := run.epoch
	run.status, run.epoch, run.watermark, run.committed = string(c.Status), int64(c.Epoch), int64(c.Watermark), time.Now().UnixNano()
	n, err := t.exec("compare and set", t.s.st.updateRun, run.status, run.epoch, run.watermark, run.committed, run.fence, run.sum(), run.id, before)
	if err != nil {
		return err
	}
	if n != 1 {
		return codes.New(codes.JournalConflict, "run %q no longer stands at epoch %d: another process has written to this run", c.RunID, before)
	}
	for i := range c.Partitions {
		if err := t.partition(run, &c.Partitions[i]); err != nil {
			return err
		}
	}
	return nil
}

// readRun reads the row of a run.
func (t *txn) readRun(runID string) (*runRow, error) {
	row, err := t.query("read run", t.s.st.run, runID)
	if err != nil {
		return nil, err
	}
	return t.s.scanRun(row, runID)
}

// scanRun reads a row of selectRuns by run id. Without one it is RunUnknown.
func (s *Store) scanRun(row *sql.Row, runID string) (*runRow, error) {
	var r runRow
	err := row.Scan(r.columns()...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, codes.New(codes.RunUnknown, "journal %s holds no run %q", s.cfg.Path, runID)
	case err != nil:
		return nil, s.scanned(err, fmt.Sprintf("run %q", runID))
	case r.crc != r.sum() || r.runID != runID:
		return nil, s.corrupt("the row of run %q is damaged", runID)
	}
	return &r, nil
}

// cut reads the row of a partition.
func (t *txn) cut(run *runRow, partition int32) (*cutRow, error) {
	row, err := t.query("read cut", t.s.st.cut, run.id, partition)
	if err != nil {
		return nil, err
	}
	return t.s.scanCut(row, run, partition)
}

// scanCut reads a row of selectCuts by run and partition.
func (s *Store) scanCut(row *sql.Row, run *runRow, partition int32) (*cutRow, error) {
	var r cutRow
	err := row.Scan(r.columns()...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, codes.New(codes.Internal, "run %q has no partition %d", run.runID, partition)
	case err != nil:
		return nil, s.scanned(err, fmt.Sprintf("run %q, the cut of partition %d", run.runID, partition))
	case r.crc != r.sum() || r.run != run.id || r.partition != int64(partition):
		return nil, s.corrupt("run %q: the cut of partition %d is damaged", run.runID, partition)
	}
	return &r, nil
}

// partition writes one partition's share.
func (t *txn) partition(run *runRow, p *control.PartitionCommit) error {
	row, err := t.cut(run, p.Cut.Partition)
	if err != nil {
		return err
	}
	stored, err := row.cut()
	if err != nil {
		return err
	}
	if err := control.CheckCut(run.runID, stored, p.Cut); err != nil {
		return err
	}
	row.epoch = run.epoch
	if err := t.blobs(row, &p.Cut); err != nil {
		return err
	}
	if err := t.rows(row, &p.Rows); err != nil {
		return err
	}
	if err := t.quarantine(row, p.Quarantine); err != nil {
		return err
	}
	if err := t.decisions(row, p.Decisions); err != nil {
		return err
	}
	return t.updateCut(row, &p.Cut)
}

func (t *txn) updateCut(row *cutRow, cut *partitions.Cut) error {
	row.next, _ = cut.Next.AppendBinary(nil) // its error is always nil
	row.watermark, row.finished, row.counts = int64(cut.Watermark), 0, cut.Counts
	if cut.Finished {
		row.finished = 1
	}
	c := &row.counts
	_, err := t.exec("update cut", t.s.st.updateCut, row.epoch, row.next, row.watermark, row.finished,
		c.Records, c.Consumed, c.Filtered, c.Omitted, c.Duplicates, c.Late, c.Future, c.Outputs,
		row.blobs, row.parts, row.quarantined, row.decided, row.sum(), row.run, row.partition)
	return err
}

// blobs applies a cut's delta and keeps count of what stands.
func (t *txn) blobs(row *cutRow, cut *partitions.Cut) error {
	for _, name := range cut.Delete {
		n, err := t.exec("delete blob", t.s.st.deleteBlob, row.run, row.partition, name)
		if err != nil {
			return err
		}
		row.blobs -= n
	}
	for _, b := range cut.Put {
		data := notNil(b.Data)
		digest, size := sha256.Sum256(data), int64(len(data))
		ref, sum := refSum(row.run, row.partition, b.Name, size, digest[:]), blobSum(row.run, cut.Partition, b.Name, data)
		n, err := t.exec("update blob", t.s.st.updateBlob, size, digest[:], ref, sum, data, row.run, row.partition, b.Name)
		if err != nil {
			return err
		}
		if n > 0 {
			continue
		}
		if _, err := t.exec("insert blob", t.s.st.insertBlob, size, digest[:], ref, sum, data, row.run, row.partition, b.Name); err != nil {
			return err
		}
		row.blobs++
	}
	return nil
}

// notNil makes an empty value out of a missing one: nil would become NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// rows writes the rows of an epoch in parts. A part ends anywhere, also within a row: where a row ends is not to be seen without the flow's
// plan, and a reader puts them together again.
func (t *txn) rows(row *cutRow, rows *partitions.Rows) error {
	if rows.Count == 0 {
		return nil
	}
	out := outputRow{epoch: row.epoch, parts: int64((len(rows.Data) + maxPart - 1) / maxPart), rows: int64(rows.Count), first: int64(rows.First), last: int64(rows.Last)}
	for data := rows.Data; out.part < out.parts; out.part++ {
		piece := data[:min(len(data), maxPart)]
		data = data[len(piece):]
		_, err := t.exec("insert output", t.s.st.insertOutput, row.run, row.partition, out.epoch, out.part, out.parts, out.rows, out.first, out.last, out.sum(row.run, int32(row.partition), piece), piece)
		if err != nil {
			return err
		}
	}
	row.parts += out.parts
	return nil
}

func (t *txn) quarantine(row *cutRow, all []partitions.Quarantined) error {
	size := func(i int) int { return all[i].Size() }
	err := t.inserted("insert quarantine", t.s.st.quarantine, len(all), size, func(args []any, i int) []any {
		q := all[i]
		q.Partition = int32(row.partition)
		return append(args, quarantineArgs(row, row.epoch, row.quarantined+int64(i), &q)...)
	})
	row.quarantined += int64(len(all))
	return err
}

// quarantineArgs are the columns of insertQuarantine. n is the number of q in its partition.
func quarantineArgs(row *cutRow, epoch, n int64, q *partitions.Quarantined) []any {
	position, _ := q.Position.AppendBinary(nil) // its error is always nil
	headers := partitions.EncodeHeaders(q.Headers)
	return []any{row.run, row.partition, position, epoch, n, q.Reason, q.Detail, q.EventID, int64(q.EventTime), int64(q.Sub), int64(q.Arrival), orNull(headers),
		quarantineSum(row.run, epoch, n, position, headers, q), orNull(q.Key), orNull(q.Value)}
}

func (t *txn) decisions(row *cutRow, all []partitions.Decision) error {
	size := func(i int) int { return len(all[i].Detail) }
	err := t.inserted("insert decisions", t.s.st.decisions, len(all), size, func(args []any, i int) []any {
		d := all[i]
		d.Partition = int32(row.partition)
		position, _ := d.Position.AppendBinary(nil)
		n := row.decided + int64(i)
		return append(args, row.run, row.partition, position, row.epoch, n, d.Kind, d.Detail, decisionSum(row.run, row.epoch, n, position, &d))
	})
	row.decided += int64(len(all))
	return err
}

// orNull keeps a missing value apart from an empty one.
func orNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// inserted writes count rows by statements of several rows, as many at once as there are and as maxPart allows.
func (t *txn) inserted(step string, sts [len(batches)]*sql.Stmt, count int, size func(i int) int, add func(args []any, i int) []any) error {
	var args []any
	for i := 0; i < count; {
		b := 0
		for batches[b] > 1 && !fitsBatch(i, batches[b], count, size) {
			b++
		}
		args = args[:0]
		for range batches[b] {
			args = add(args, i)
			i++
		}
		if _, err := t.exec(step, sts[b], args...); err != nil {
			return err
		}
	}
	return nil
}

// fitsBatch says whether n rows from the i-th on are there and small enough together.
func fitsBatch(i, n, count int, size func(i int) int) bool {
	if i+n > count {
		return false
	}
	total := 0
	for k := i; k < i+n; k++ {
		total += size(k)
	}
	return total <= maxPart
}
