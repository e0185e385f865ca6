package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// reading is one call of a reader: what it reads, and what the caller's function returned.
type reading struct {
	s   *Store
	ctx context.Context
	tx  *sql.Tx
	run *runRow
	// own is the error of the caller's function; it goes back unchanged.
	own error
}

// reading runs fn on a consistent moment of a run.
func (s *Store) reading(ctx context.Context, what, runID string, fn func(r *reading) error) error {
	r := &reading{s: s, ctx: ctx}
	err := s.read(ctx, func(tx *sql.Tx) (err error) {
		r.tx = tx
		if r.run, err = s.scanRun(tx.QueryRowContext(ctx, selectRuns+` WHERE run_id = ?`, runID), runID); err != nil {
			return err
		}
		return fn(r)
	})
	if r.own != nil {
		return r.own
	}
	return s.fail(ctx, fmt.Sprintf("%s of run %q", what, runID), err)
}

// errOwn ends a reading whose reason is in own.
var errOwn = errors.New("the reader's own error")

// give hands something to the caller's function.
func (r *reading) give(err error) error {
	if err != nil {
		r.own = err
		return errOwn
	}
	return nil
}

// cut reads a partition's row for its counts.
func (r *reading) cut(partition int32) (*cutRow, error) {
	return r.s.scanCut(r.tx.QueryRowContext(r.ctx, selectCuts+` WHERE run = ? AND partition = ?`, r.run.id, partition), r.run, partition)
}

// complete says whether as many rows were read as belong there.
func (r *reading) complete(what string, read, belong int64) error {
	if read != belong {
		return r.s.corrupt("run %q has %d %s where %d belong", r.run.runID, read, what, belong)
	}
	return nil
}

// LoadBlobs is control.Journal's.
func (s *Store) LoadBlobs(ctx context.Context, runID string, partition int32, fn func(partitions.StateBlob) error) error {
	return s.reading(ctx, "state", runID, func(r *reading) error {
		cut, err := r.cut(partition)
		if err != nil {
			return err
		}
		count := int64(0)
		err = s.query(ctx, r.tx, selectBlobs, []any{cut.run, partition}, func(rows *sql.Rows) error {
			var b partitions.StateBlob
			var crc int64
			var data sql.RawBytes
			if err := s.scanned(rows.Scan(&b.Name, &crc, &data), "a state blob"); err != nil {
				return err
			}
			b.Data = notNil(data)
			if crc != blobSum(cut.run, partition, b.Name, b.Data) {
				return s.corrupt("run %q, partition %d: the state blob %q is damaged", runID, partition, b.Name)
			}
			count++
			return r.give(fn(b))
		})
		if err != nil {
			return err
		}
		return r.complete("state blobs", count, cut.blobs)
	})
}

// Outputs is control.Journal's.
func (s *Store) Outputs(ctx context.Context, runID string, partition int32, fn func(partitions.Rows) error) error {
	return s.reading(ctx, "outputs", runID, func(r *reading) error {
		cut, err := r.cut(partition)
		if err != nil {
			return err
		}
		parts := int64(0)
		join := joiner{}
		err = s.query(ctx, r.tx, selectOutputs, []any{cut.run, partition}, func(rows *sql.Rows) error {
			var o outputRow
			var data sql.RawBytes
			if err := s.scanned(rows.Scan(&o.epoch, &o.part, &o.parts, &o.rows, &o.first, &o.last, &o.crc, &data), "a row run"); err != nil {
				return err
			}
			if o.crc != o.sum(cut.run, partition, notNil(data)) || !join.add(o, data) {
				return s.corrupt("run %q, partition %d: the rows of epoch %d are damaged", runID, partition, o.epoch)
			}
			parts++
			if !join.complete() {
				return nil
			}
			return r.give(fn(partitions.Rows{Data: join.data, Count: int(o.rows), First: record.EventTime(o.first), Last: record.EventTime(o.last)}))
		})
		if err != nil {
			return err
		}
		return r.complete("parts of row runs", parts, cut.parts)
	})
}

// joiner puts the parts of an epoch's rows together.
type joiner struct {
	last outputRow
	// data of the parts so far: of a single part as it was read, of several in buf, which is kept for the next epoch.
	data, buf []byte
}

// add takes the next part. It is false for one that does not follow.
func (j *joiner) add(o outputRow, data []byte) bool {
	switch {
	case o.part == 0 && j.complete() && o.epoch > j.last.epoch && o.parts == 1:
		j.data = data
	case o.part == 0 && j.complete() && o.epoch > j.last.epoch && o.parts > 1:
		j.buf = append(j.buf[:0], data...)
		j.data = j.buf
	case o.part == j.last.part+1 && o.epoch == j.last.epoch && o.parts == j.last.parts && o.part < o.parts:
		j.buf = append(j.buf, data...)
		j.data = j.buf
	default:
		return false
	}
	j.last = o
	return true
}

// complete says whether the last part of an epoch was added (or none at all yet).
func (j *joiner) complete() bool { return j.last.parts == 0 || j.last.part == j.last.parts-1 }

// Quarantine is control.Journal's.
func (s *Store) Quarantine(ctx context.Context, runID string, fn func(partitions.Quarantined) error) error {
	return s.reading(ctx, "quarantine", runID, func(r *reading) error {
		count := int64(0)
		err := s.query(ctx, r.tx, selectQuarantine, []any{r.run.id}, func(rows *sql.Rows) error {
			q, err := s.scanQuarantined(rows, r.run)
			if err != nil {
				return err
			}
			count++
			return r.give(fn(q.Quarantined))
		})
		if err != nil {
			return err
		}
		return r.total("quarantined records", count, func(c *cutRow) int64 { return c.quarantined })
	})
}

// quarantineRow is a row of the table quarantine.
type quarantineRow struct {
	partitions.Quarantined
	epoch int64
}

func (s *Store) scanQuarantined(rows *sql.Rows, run *runRow) (q quarantineRow, err error) {
	var position, headers, key, value sql.RawBytes
	var crc int64
	var noHeaders, noKey, noValue bool
	err = rows.Scan(&q.Partition, &position, &q.epoch, &q.Number, &q.Reason, &q.Detail, &q.EventID, &q.EventTime, &q.Sub, &q.Arrival, &noHeaders, &headers, &crc, &noKey, &key, &noValue, &value)
	if err := s.scanned(err, "a quarantined record"); err != nil {
		return q, err
	}
	if !noKey {
		q.Key = bytes.Clone(notNil(key))
	}
	if !noValue {
		q.Value = bytes.Clone(notNil(value))
	}
	encoded := notNil(headers)
	if noHeaders {
		encoded = nil
	}
	var bad error
	q.Headers, bad = partitions.DecodeHeaders(encoded)
	if q.Position, _, err = record.DecodePosition(position); err != nil || bad != nil || crc != quarantineSum(run.id, q.epoch, q.Number, position, encoded, &q.Quarantined) {
		return q, s.corrupt("run %q, partition %d: a quarantined record is damaged", run.runID, q.Partition)
	}
	return q, nil
}

// Decisions is control.Journal's.
func (s *Store) Decisions(ctx context.Context, runID string, fn func(partitions.Decision) error) error {
	return s.reading(ctx, "decisions", runID, func(r *reading) error {
		count := int64(0)
		err := s.query(ctx, r.tx, selectDecisions, []any{r.run.id}, func(rows *sql.Rows) error {
			d, err := s.scanDecision(rows, r.run)
			if err != nil {
				return err
			}
			count++
			return r.give(fn(d.Decision))
		})
		if err != nil {
			return err
		}
		return r.total("decisions", count, func(c *cutRow) int64 { return c.decided })
	})
}

// decisionRow is a row of the table decisions.
type decisionRow struct {
	partitions.Decision
	epoch, n int64
}

func (s *Store) scanDecision(rows *sql.Rows, run *runRow) (d decisionRow, err error) {
	var position sql.RawBytes
	var crc int64
	if err := s.scanned(rows.Scan(&d.Partition, &position, &d.epoch, &d.n, &d.Kind, &d.Detail, &crc), "a decision"); err != nil {
		return d, err
	}
	if d.Position, _, err = record.DecodePosition(position); err != nil || crc != decisionSum(run.id, d.epoch, d.n, position, &d.Decision) {
		return d, s.corrupt("run %q, partition %d: a decision is damaged", run.runID, d.Partition)
	}
	return d, nil
}

// total compares what was read of a run with the sum over its partitions.
func (r *reading) total(what string, read int64, of func(*cutRow) int64) error {
	cuts, err := r.s.cuts(r.ctx, r.tx, r.run)
	if err != nil {
		return err
	}
	belong := int64(0)
	for i := range cuts {
		belong += of(&cuts[i])
	}
	return r.complete(what, read, belong)
}

// Runs is control.RunLister's.
func (s *Store) Runs(ctx context.Context) (out []control.RunInfo, err error) {
	err = s.read(ctx, func(tx *sql.Tx) error {
		runs, err := s.runs(ctx, tx)
		if err != nil {
			return err
		}
		for _, run := range runs {
			cuts, err := s.cuts(ctx, tx, run)
			if err != nil {
				return err
			}
			out = append(out, run.info(cuts))
		}
		return nil
	})
	return out, s.fail(ctx, "listing of runs", err)
}
