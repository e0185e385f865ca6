package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// ForkRun is control.Checkpoints'. It holds the write lock while it copies results and loads state, so other writers wait for it, and Load must
// not write to this file.
func (s *Store) ForkRun(ctx context.Context, l control.Lease, f control.Fork) error {
	if err := f.Validate(l); err != nil {
		return err
	}
	k := &forking{f: f}
	err := s.write(ctx, func(t *txn) error {
		k.t = t
		return k.run(l)
	})
	if k.own != nil {
		return k.own
	}
	return s.fail(ctx, fmt.Sprintf("fork %q of run %q at epoch %d", f.Header.RunID, f.From, f.Epoch), err)
}

// forking is one call of ForkRun.
type forking struct {
	t *txn
	f control.Fork
	// own is the error of the caller's Load; it goes back unchanged.
	own error
}

func (k *forking) run(l control.Lease) error {
	if _, err := k.t.verified(&l); err != nil {
		return err
	}
	stands, err := k.t.readRun(k.f.Header.RunID)
	if err == nil {
		return k.again(stands, l)
	}
	if !codes.Has(err, codes.RunUnknown) {
		return err
	}
	from, err := k.t.readRun(k.f.From)
	if err != nil {
		return err
	}
	cuts, err := k.t.s.cuts(k.t.ctx, k.t.tx, from)
	if err != nil {
		return err
	}
	if err := control.CheckFork(from.state(from.header(cuts), cuts), k.f); err != nil {
		return err
	}
	run, err := k.t.create(k.f.Header, runRow{epoch: int64(k.f.Epoch), watermark: int64(k.f.Watermark), committed: time.Now().UnixNano(),
		fence: int64(l.Token), forkedFrom: k.f.From, forkedEpoch: int64(k.f.Epoch)})
	if err != nil {
		return err
	}
	return k.partitions(from, cuts, run)
}

// again takes over the run that is there, if it is this very fork.
func (k *forking) again(stands *runRow, l control.Lease) error {
	if err := stands.raise(l.Token); err != nil {
		return err
	}
	cuts, err := k.t.s.cuts(k.t.ctx, k.t.tx, stands)
	if err != nil {
		return err
	}
	h := stands.header(cuts)
	if err := control.CheckForked(stands.state(h, cuts), stands.forkedFrom, uint64(stands.forkedEpoch), k.f); err != nil {
		return err
	}
	return k.t.change(stands, h, nil) // it belongs to the term that asks now
}

// partitions fills the new run: the results of the old one up to the epoch, and the state of the checkpoint.
func (k *forking) partitions(from *runRow, cuts []cutRow, run *runRow) error {
	for i := range cuts {
		old := &cuts[i]
		row, err := k.t.cut(run, int32(old.partition))
		if err != nil {
			return err
		}
		if err := k.results(from, old, row); err != nil {
			return err
		}
		cut, has := k.f.Cuts[int32(old.partition)]
		if !has {
			if row.parts+row.quarantined+row.decided > 0 {
				return control.ForkLacksCut(k.f, int32(old.partition))
			}
			continue
		}
		if err := k.load(row); err != nil {
			return err
		}
		row.epoch = run.epoch
		if err := k.t.updateCut(row, &cut); err != nil {
			return err
		}
	}
	return nil
}

func (k *forking) load(row *cutRow) error {
	var failed error
	err := k.f.Load(int32(row.partition), func(b partitions.StateBlob) error {
		failed = k.keep(row, b)
		return failed
	})
	if failed == nil {
		k.own = err
		return err
	}
	return failed
}

func (k *forking) keep(row *cutRow, b partitions.StateBlob) error {
	if n := len(b.Data) + len(b.Name); n > k.t.s.cfg.maxBlob {
		return codes.New(codes.LimitReached, "journal %s: run %q, partition %d: the state blob %q has %d bytes, SQLite takes %d", k.t.s.cfg.Path, k.f.Header.RunID, row.partition, b.Name, n, k.t.s.cfg.maxBlob)
	}
	return k.t.blobs(row, &partitions.Cut{Partition: int32(row.partition), Put: []partitions.StateBlob{b}})
}

// results copies what a partition of the old run brought up to the epoch. Every row is checked, and gets a sum of its own.
func (k *forking) results(from *runRow, old, row *cutRow) error {
	if err := k.outputs(from, old, row); err != nil {
		return err
	}
	if err := k.quarantine(from, old, row); err != nil {
		return err
	}
	return k.decisions(from, old, row)
}

func (k *forking) outputs(from *runRow, old, row *cutRow) error {
	t := k.t
	read := int64(0)
	err := t.s.query(t.ctx, t.tx, selectOutputs, []any{old.run, old.partition}, func(rows *sql.Rows) error {
		var o outputRow
		var raw sql.RawBytes
		if err := t.s.scanned(rows.Scan(&o.epoch, &o.part, &o.parts, &o.rows, &o.first, &o.last, &o.crc, &raw), "a row run"); err != nil {
			return err
		}
		data := notNil(raw)
		if o.crc != o.sum(old.run, int32(old.partition), data) {
			return t.s.corrupt("run %q, partition %d: the rows of epoch %d are damaged", from.runID, old.partition, o.epoch)
		}
		read++
		if uint64(o.epoch) > k.f.Epoch {
			return nil
		}
		row.parts++
		_, err := t.exec("copy output", t.s.st.insertOutput, row.run, row.partition, o.epoch, o.part, o.parts, o.rows, o.first, o.last, o.sum(row.run, int32(row.partition), data), data)
		return err
	})
	return k.whole(err, from, old, "parts of row runs", read, old.parts)
}

func (k *forking) quarantine(from *runRow, old, row *cutRow) error {
	t := k.t
	read := int64(0)
	err := t.s.query(t.ctx, t.tx, selectQuarantineOf, []any{old.run, old.partition}, func(rows *sql.Rows) error {
		q, err := t.s.scanQuarantined(rows, from)
		if err != nil {
			return err
		}
		read++
		if uint64(q.epoch) > k.f.Epoch {
			return nil
		}
		row.quarantined++
		_, err = t.exec("copy quarantine", t.s.st.quarantine[len(batches)-1], quarantineArgs(row, q.epoch, q.Number, &q.Quarantined)...)
		return err
	})
	return k.whole(err, from, old, "quarantined records", read, old.quarantined)
}

func (k *forking) decisions(from *runRow, old, row *cutRow) error {
	t := k.t
	read := int64(0)
	err := t.s.query(t.ctx, t.tx, selectDecisionsOf, []any{old.run, old.partition}, func(rows *sql.Rows) error {
		d, err := t.s.scanDecision(rows, from)
		if err != nil {
			return err
		}
		read++
		if uint64(d.epoch) > k.f.Epoch {
			return nil
		}
		row.decided++
		position, _ := d.Position.AppendBinary(nil)
		_, err = t.exec("copy decision", t.s.st.decisions[len(batches)-1], row.run, row.partition, position, d.epoch, d.n, d.Kind, d.Detail,
			decisionSum(row.run, d.epoch, d.n, position, &d.Decision))
		return err
	})
	return k.whole(err, from, old, "decisions", read, old.decided)
}

// whole says whether as many rows were read as belong to a partition of the old run.
func (k *forking) whole(err error, from *runRow, old *cutRow, what string, read, belong int64) error {
	if err == nil && read != belong {
		err = k.t.s.corrupt("run %q, partition %d has %d %s where %d belong", from.runID, old.partition, read, what, belong)
	}
	return err
}
