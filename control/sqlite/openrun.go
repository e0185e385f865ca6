package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// OpenRun is control.Journal's. It reads under the write lock, so it waits for a commit that is under way and sees it.
func (s *Store) OpenRun(ctx context.Context, h control.RunHeader) (control.RunState, error) {
	return s.openRun(ctx, nil, h)
}

// openRun is OpenRun under a lease, or (nil) without one.
func (s *Store) openRun(ctx context.Context, l *control.Lease, h control.RunHeader) (state control.RunState, err error) {
	if err := h.Validate(); err != nil {
		return state, err
	}
	if err := checkUnder(h.RunID, l); err != nil {
		return state, err
	}
	err = s.write(ctx, func(t *txn) (err error) {
		state, err = t.openRun(l, h)
		return err
	})
	if err != nil && !codes.Has(err, codes.RunFinished) {
		return control.RunState{}, s.fail(ctx, "open run", err)
	}
	return state, err
}

func (t *txn) openRun(l *control.Lease, h control.RunHeader) (control.RunState, error) {
	token, err := t.verified(l)
	if err != nil {
		return control.RunState{}, err
	}
	run, err := t.readRun(h.RunID)
	if codes.Has(err, codes.RunUnknown) {
		run, err = t.create(h, runRow{watermark: int64(record.NoTime), fence: int64(token)})
	}
	if err != nil {
		return control.RunState{}, err
	}
	before := run.fence
	if err := run.raise(token); err != nil {
		return control.RunState{}, err
	}
	cuts, err := t.s.cuts(t.ctx, t.tx, run)
	if err != nil {
		return control.RunState{}, err
	}
	stored := run.header(cuts)
	stands, added, err := control.CheckOpen(control.RunStatus(run.status), stored, h)
	if err != nil {
		return run.state(stored, cuts), err // OpenRun keeps the state beside RunFinished only
	}
	if run.fence != before || len(added) > 0 || stored.SourceID != stands.SourceID || stored.Group != stands.Group {
		if err := t.change(run, stands, added); err != nil {
			return control.RunState{}, err
		}
	}
	return run.state(stands, cuts), nil
}

// create adds a run. Before that it looks at every run there is without the index: were the run only lost from a damaged index, creating it
// would start it again from the beginning without a word. as is the row in all but its header.
func (t *txn) create(h control.RunHeader, as runRow) (*runRow, error) {
	all, err := t.s.runs(t.ctx, t.tx)
	if err != nil {
		return nil, err
	}
	run := &as
	run.id, run.runID, run.fingerprint, run.source, run.sourceID, run.group = 1, h.RunID, h.Fingerprint, h.Source, h.SourceID, h.Group
	run.status, run.partitions, run.created = string(control.RunOpen), int64(len(h.Partitions)), time.Now().UnixNano()
	var there []string
	for _, r := range all {
		if r.runID == h.RunID {
			return nil, t.s.corrupt("run %q is missing from an index", h.RunID)
		}
		run.id = max(run.id, r.id+1)
		there = append(there, r.runID)
	}
	if err := control.CheckScope(h.RunID, there); err != nil {
		return nil, err
	}
	err = t.adhoc("create run", insertRun, run.runID, run.fingerprint, run.source, run.sourceID, run.group, run.status, run.epoch, run.watermark, run.partitions, run.created, run.committed, run.sum(), run.id,
		run.fence, run.forkedFrom, run.forkedEpoch)
	if err != nil {
		return nil, err
	}
	return run, t.addCuts(run, h.Partitions)
}

func (t *txn) addCuts(run *runRow, ps []int32) error {
	st, err := t.tx.PrepareContext(t.statement, insertCut)
	if err != nil {
		return err
	}
	defer st.Close()
	for _, p := range ps {
		row := cutRow{run: run.id, partition: int64(p), watermark: int64(record.NoTime)}
		row.next, _ = record.Position{}.AppendBinary(nil) // its error is always nil
		if _, err := t.exec("add partition", st, row.run, row.partition, row.next, row.watermark, row.sum()); err != nil {
			return err
		}
	}
	return nil
}

// change writes what opening changed in the run's row.
func (t *txn) change(run *runRow, stands control.RunHeader, added []int32) error {
	run.sourceID, run.group, run.partitions = stands.SourceID, stands.Group, int64(len(stands.Partitions))
	if err := t.adhoc("change header", updateHeader, run.sourceID, run.group, run.partitions, run.fence, run.sum(), run.id); err != nil {
		return err
	}
	return t.addCuts(run, added)
}

// header of a run; its partitions are those that have a row in cuts.
func (r *runRow) header(cuts []cutRow) control.RunHeader {
	h := control.RunHeader{RunID: r.runID, Fingerprint: r.fingerprint, Source: r.source, SourceID: r.sourceID, Group: r.group}
	for _, c := range cuts {
		h.Partitions = append(h.Partitions, int32(c.partition))
	}
	return h
}

// state of a run under the header that stands.
func (r *runRow) state(h control.RunHeader, cuts []cutRow) control.RunState {
	state := control.RunState{Header: h, Status: control.RunStatus(r.status), Epoch: uint64(r.epoch), Watermark: record.EventTime(r.watermark), Fence: control.FenceToken(r.fence), Created: time.Unix(0, r.created),
		Cuts: map[int32]partitions.Cut{}}
	for i := range cuts {
		if cuts[i].epoch > 0 {
			cut, _ := cuts[i].cut() // cuts has checked that it can be decoded
			state.Cuts[cut.Partition] = cut
		}
	}
	return state
}

// cuts reads a run's partitions, sorted, and checks that none is damaged or lost.
func (s *Store) cuts(ctx context.Context, tx *sql.Tx, run *runRow) (out []cutRow, err error) {
	err = s.query(ctx, tx, selectCuts+` WHERE run = ? ORDER BY partition`, []any{run.id}, func(rows *sql.Rows) error {
		var r cutRow
		if err := s.scanned(rows.Scan(r.columns()...), "a cut"); err != nil {
			return err
		}
		if _, err := r.cut(); err != nil || r.crc != r.sum() || r.run != run.id || r.epoch > run.epoch {
			return s.corrupt("run %q: the cut of partition %d is damaged", run.runID, r.partition)
		}
		out = append(out, r)
		return nil
	})
	if err == nil && int64(len(out)) != run.partitions {
		err = s.corrupt("run %q has %d cuts where %d belong", run.runID, len(out), run.partitions)
	}
	return out, err
}

// runs reads every run, without an index, ordered by run id.
func (s *Store) runs(ctx context.Context, tx *sql.Tx) (out []*runRow, err error) {
	err = s.query(ctx, tx, selectRuns+` NOT INDEXED`, nil, func(rows *sql.Rows) error {
		r := &runRow{}
		if err := s.scanned(rows.Scan(r.columns()...), "a run"); err != nil {
			return err
		}
		if r.crc != r.sum() {
			return s.corrupt("the row of run %q is damaged", r.runID)
		}
		out = append(out, r)
		return nil
	})
	slices.SortFunc(out, func(a, b *runRow) int { return strings.Compare(a.runID, b.runID) })
	return out, err
}

// query calls fn with every row of a query.
func (s *Store) query(ctx context.Context, tx *sql.Tx, text string, args []any, fn func(*sql.Rows) error) error {
	rows, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := fn(rows); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// scanned gives a value of another type than the schema's its code: SQLite checks types when it writes, so it is damage.
func (s *Store) scanned(err error, what string) error {
	if err != nil && strings.HasPrefix(err.Error(), "sql: Scan error") {
		return s.corrupt("%s is damaged", what)
	}
	return err
}

// info is the line of a listing.
func (r *runRow) info(cuts []cutRow) control.RunInfo {
	info := control.RunInfo{Header: r.header(cuts), Status: control.RunStatus(r.status), Epoch: uint64(r.epoch), Watermark: record.EventTime(r.watermark), Created: time.Unix(0, r.created)}
	if r.committed != 0 {
		info.Committed = time.Unix(0, r.committed)
	}
	for _, c := range cuts {
		t := &info.Counts
		t.Records, t.Consumed, t.Filtered, t.Omitted = t.Records+c.counts.Records, t.Consumed+c.counts.Consumed, t.Filtered+c.counts.Filtered, t.Omitted+c.counts.Omitted
		t.Duplicates, t.Late, t.Future, t.Outputs = t.Duplicates+c.counts.Duplicates, t.Late+c.counts.Late, t.Future+c.counts.Future, t.Outputs+c.counts.Outputs
	}
	return info
}
