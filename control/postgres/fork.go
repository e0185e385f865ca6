package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

const (
	insertFork = `INSERT INTO weir.journal (run_id, fingerprint, source, source_id, source_group, status, epoch, watermark, fence, forked_from, forked_epoch, created, committed)
		VALUES ($1, $2, $3, $4, $5, 'OPEN', $6, $7, $8, $9, $6, clock_timestamp(), clock_timestamp())
		ON CONFLICT (run_id) DO NOTHING RETURNING id`
	selectForked = `SELECT coalesce(forked_from, ''), coalesce(forked_epoch, 0) FROM weir.journal WHERE id = $1`
	// selectUncut finds a partition without a cut, of those in $3, that brought something.
	selectUncut = `SELECT partition FROM weir.journal_outputs WHERE run = $1 AND epoch <= $2 AND partition <> ALL ($3)
		UNION ALL SELECT partition FROM weir.quarantine WHERE run = $1 AND epoch <= $2 AND partition <> ALL ($3)
		UNION ALL SELECT partition FROM weir.decisions WHERE run = $1 AND epoch <= $2 AND partition <> ALL ($3) LIMIT 1`

	forkOutputs = `INSERT INTO weir.journal_outputs (run, partition, epoch, part, parts, rows, first, last, data)
		SELECT $1, partition, epoch, part, parts, rows, first, last, data FROM weir.journal_outputs WHERE run = $2 AND epoch <= $3`
	forkAside = `INSERT INTO weir.quarantine (run, partition, position, epoch, n, reason, detail, event_id, event_time, key, value, sub, arrival, headers)
		SELECT $1, partition, position, epoch, n, reason, detail, event_id, event_time, key, value, sub, arrival, headers FROM weir.quarantine WHERE run = $2 AND epoch <= $3`
	forkDecisions = `INSERT INTO weir.decisions (run, partition, position, epoch, n, kind, detail)
		SELECT $1, partition, position, epoch, n, kind, detail FROM weir.decisions WHERE run = $2 AND epoch <= $3`
)

// ForkRun is control.Checkpoints'. What the journal holds already is copied within the server. Statements are not bounded by a time-out, since a
// journal has any size; a client that dies meanwhile is noticed.
func (s *Store) ForkRun(ctx context.Context, l control.Lease, f control.Fork) error {
	if err := f.Validate(l); err != nil {
		return err
	}
	var own error // of f.Load, which goes back unchanged
	err := s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return s.transaction(ctx, conn, &l, func(last *pgx.Batch) error { return s.fork(ctx, conn, l, f, last, &own) })
	})
	if own != nil && errors.Is(err, own) {
		return own
	}
	return s.fail(ctx, fmt.Sprintf("fork of run %q at epoch %d into run %q", f.From, f.Epoch, f.Header.RunID), refusal(err, l))
}

func (s *Store) fork(ctx context.Context, conn *pgx.Conn, l control.Lease, f control.Fork, last *pgx.Batch, own *error) error {
	there, err := s.forked(ctx, conn, l, f, last)
	if there || err != nil {
		return err
	}
	from, err := runAt(ctx, conn, f.From)
	if err != nil {
		return err
	}
	cuts, err := from.cuts(ctx, conn)
	if err != nil {
		return err
	}
	if err := control.CheckFork(from.state(from.header, cuts), f); err != nil {
		return err
	}
	if err := uncut(ctx, conn, from.id, f); err != nil {
		return err
	}
	h := f.Header
	if err := checkScope(ctx, conn, h.RunID); err != nil {
		return err
	}
	var run int64
	err = conn.QueryRow(ctx, insertFork, h.RunID, []byte(h.Fingerprint), []byte(h.Source), []byte(h.SourceID), []byte(h.Group),
		int64(f.Epoch), int64(f.Watermark), int64(l.Token), f.From).Scan(&run)
	if errors.Is(err, pgx.ErrNoRows) { // another call of this owner was faster
		_, err = s.forked(ctx, conn, l, f, last)
		return err
	}
	if err != nil {
		return err
	}
	if err := s.inherit(ctx, conn, from.id, run, f.Epoch); err != nil {
		return err
	}
	w := &flush{s: s, ctx: ctx, conn: conn, run: run, epoch: int64(f.Epoch), batch: last}
	addCuts(last, run, h.Partitions)
	return w.fork(f, own)
}

// uncut refuses a fork that lacks a cut of a partition that brought something: it would all come again.
func uncut(ctx context.Context, q querier, from int64, f control.Fork) error {
	var n int32
	err := q.QueryRow(ctx, selectUncut, from, int64(f.Epoch), some(f.Parts())).Scan(&n)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	}
	return control.ForkLacksCut(f, n)
}

// inherit copies what a run says up to an epoch to another run. It is written once and never changed, so nobody is locked out.
func (s *Store) inherit(ctx context.Context, conn *pgx.Conn, from, to int64, epoch uint64) error {
	b := &pgx.Batch{}
	b.Queue(`SELECT set_config('statement_timeout', '0', true)`)
	for _, text := range []string{forkOutputs, forkAside, forkDecisions} {
		b.Queue(text, to, from, int64(epoch))
	}
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	return s.step("copied", conn)
}

// forked says whether the new run is there already, as this very fork. Then it belongs to the term that asks now.
func (s *Store) forked(ctx context.Context, conn *pgx.Conn, l control.Lease, f control.Fork, last *pgx.Batch) (there bool, err error) {
	row, err := lockRun(ctx, conn, f.Header.RunID)
	if codes.Has(err, codes.RunUnknown) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := control.CheckFence(f.Header.RunID, row.fence, l.Token); err != nil {
		return true, err
	}
	var from string
	var epoch int64
	if err := conn.QueryRow(ctx, selectForked, row.id).Scan(&from, &epoch); err != nil {
		return true, err
	}
	cuts, err := row.cuts(ctx, conn)
	if err != nil {
		return true, err
	}
	if err := control.CheckForked(row.state(row.header, cuts), from, uint64(epoch), f); err != nil {
		return true, err
	}
	last.Queue(`UPDATE weir.journal SET fence = $2 WHERE id = $1`, row.id, int64(l.Token))
	return true, nil
}

// fork writes the cuts and the state of a fork.
func (f *flush) fork(k control.Fork, own *error) error {
	for _, p := range k.Parts() {
		cut := k.Cuts[p]
		f.cut(&cut)
		if err := f.state(p, k.Load, own); err != nil {
			return err
		}
	}
	return nil
}

// state writes the blobs of a partition as they are loaded. Their data is valid only while it is yielded, so it is copied until it is sent.
func (f *flush) state(partition int32, load func(int32, func(partitions.StateBlob) error) error, own *error) error {
	puts, gathered := f.puts(partition), map[string]bool{}
	var failed error // ours, which load may pass on or not
	*own = load(partition, func(b partitions.StateBlob) error {
		if gathered[b.Name] { // of two of one name the last one counts
			failed = puts.end()
			clear(gathered)
		}
		gathered[b.Name] = true
		b.Data = append([]byte{}, b.Data...)
		if failed == nil {
			failed = puts.add(b)
		}
		return failed
	})
	if failed != nil {
		*own = nil
		return failed
	}
	if *own != nil {
		return *own
	}
	return puts.end()
}
