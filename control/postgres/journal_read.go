package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// pgxTime scans a moment that may be NULL, which is the zero time.
type pgxTime struct{ t time.Time }

// ScanTimestamptz implements pgtype.TimestamptzScanner.
func (p *pgxTime) ScanTimestamptz(v pgtype.Timestamptz) error {
	p.t = time.Time{}
	if v.Valid {
		p.t = v.Time
	}
	return nil
}

var _ control.Journal = (*Store)(nil)

// LoadBlobs is control.Journal's.
func (s *Store) LoadBlobs(ctx context.Context, runID string, partition int32, fn func(partitions.StateBlob) error) error {
	return s.reading(ctx, "state", runID, &partition, func(tx pgx.Tx, run int64, give func(error) error) error {
		return each(ctx, tx, selectState+` ORDER BY name`, []any{run, partition}, func(rows pgx.Rows) error {
			b, err := s.scanState(rows, runID, partition)
			if err != nil {
				return err
			}
			return give(fn(b))
		})
	})
}

const selectState = `SELECT name, data, digest FROM weir.checkpoint_blobs WHERE run = $1 AND partition = $2`

// scanState reads a state blob and verifies its digest. Its data is valid until the next row.
func (s *Store) scanState(rows pgx.Rows, runID string, partition int32) (b partitions.StateBlob, err error) {
	var name, data, digest pgtype.DriverBytes
	if err := rows.Scan(&name, &data, &digest); err != nil {
		return b, err
	}
	if sum := sha256.Sum256(data); !bytes.Equal(sum[:], digest) {
		return b, s.corrupt("run %q, partition %d: the state blob %q is damaged", runID, partition, name)
	}
	return partitions.StateBlob{Name: string(name), Data: data}, nil
}

// Outputs is control.Journal's.
func (s *Store) Outputs(ctx context.Context, runID string, partition int32, fn func(partitions.Rows) error) error {
	return s.reading(ctx, "outputs", runID, &partition, func(tx pgx.Tx, run int64, give func(error) error) error {
		join := joiner{}
		query := `SELECT epoch, part, parts, rows, first, last, data FROM weir.journal_outputs WHERE run = $1 AND partition = $2 ORDER BY epoch, part`
		err := each(ctx, tx, query, []any{run, partition}, func(rows pgx.Rows) error {
			var o outputRow
			var data pgtype.DriverBytes
			if err := rows.Scan(&o.epoch, &o.part, &o.parts, &o.rows, &o.first, &o.last, &data); err != nil {
				return err
			}
			if !join.add(o, data) {
				return s.corrupt("run %q, partition %d: parts of the rows of epoch %d are missing", runID, partition, o.epoch)
			}
			if !join.complete() {
				return nil
			}
			return give(fn(partitions.Rows{Data: join.data, Count: int(o.rows), First: record.EventTime(o.first), Last: record.EventTime(o.last)}))
		})
		if err == nil && !join.complete() {
			err = s.corrupt("run %q, partition %d: parts of the rows of epoch %d are missing", runID, partition, join.last.epoch)
		}
		return err
	})
}

func (s *Store) corrupt(format string, args ...any) error {
	return codes.New(codes.JournalCorrupt, "store %s: %s; restore it from a backup, or start a new run id", s.name, fmt.Sprintf(format, args...))
}

// outputRow is a row of the table journal_outputs without its data.
type outputRow struct {
	epoch             int64
	part, parts       int32
	rows, first, last int64
}

// joiner puts the parts of an epoch's rows together.
type joiner struct {
	last outputRow
	// data of the parts so far: of a single part as it was read, of several in buf, which is kept for the next epoch.
	data, buf []byte
}

// add takes the next part. It is false for one that does not follow.
func (j *joiner) add(o outputRow, data []byte) bool {
	first := o.part == 0 && j.complete() && o.epoch > j.last.epoch
	switch {
	case first && o.parts == 1:
		j.data = data
	case first && o.parts > 1:
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
	return s.reading(ctx, "quarantine", runID, nil, func(tx pgx.Tx, run int64, give func(error) error) error {
		query := `SELECT partition, position, row_number() OVER (PARTITION BY partition ORDER BY epoch, n) - 1, sub, reason, detail, event_id, event_time, arrival, key, value, headers
			FROM weir.quarantine WHERE run = $1 ORDER BY partition, position, epoch, n`
		return each(ctx, tx, query, []any{run}, func(rows pgx.Rows) error {
			var q partitions.Quarantined
			var position, reason, detail, id, headers pgtype.DriverBytes
			err := rows.Scan(&q.Partition, &position, &q.Number, &q.Sub, &reason, &detail, &id, &q.EventTime, &q.Arrival, &q.Key, &q.Value, &headers)
			if err != nil {
				return err
			}
			var bad error
			q.Headers, bad = partitions.DecodeHeaders(headers)
			if q.Position, _, err = record.DecodePosition(position); err != nil || bad != nil {
				return s.corrupt("run %q, partition %d: a quarantined record is damaged", runID, q.Partition)
			}
			q.Reason, q.Detail, q.EventID = string(reason), string(detail), string(id)
			return give(fn(q))
		})
	})
}

// Decisions is control.Journal's.
func (s *Store) Decisions(ctx context.Context, runID string, fn func(partitions.Decision) error) error {
	return s.reading(ctx, "decisions", runID, nil, func(tx pgx.Tx, run int64, give func(error) error) error {
		query := `SELECT partition, position, kind, detail FROM weir.decisions WHERE run = $1 ORDER BY partition, position, epoch, n`
		return each(ctx, tx, query, []any{run}, func(rows pgx.Rows) error {
			var d partitions.Decision
			var position, kind, detail pgtype.DriverBytes
			err := rows.Scan(&d.Partition, &position, &kind, &detail)
			if err != nil {
				return err
			}
			if d.Position, _, err = record.DecodePosition(position); err != nil {
				return s.corrupt("run %q, partition %d: a decision is damaged", runID, d.Partition)
			}
			d.Kind, d.Detail = string(kind), string(detail)
			return give(fn(d))
		})
	})
}
