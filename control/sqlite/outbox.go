package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/weirstream/weir/control"
)

// Claim is control.Outbox's. There is one writer at a time, so nobody else is claiming at this moment and none is skipped.
func (s *Store) Claim(ctx context.Context, claimant string, limit int) (out []control.OutboxEvent, err error) {
	if err := control.CheckClaimant(claimant); err != nil {
		return nil, err
	}
	err = s.write(ctx, func(t *txn) error {
		pending, err := t.events(selectOutbox+` WHERE delivered = 0 AND claimant = '' ORDER BY id LIMIT ?`, control.ClaimSize(limit))
		if err != nil {
			return err
		}
		at := s.now().UnixNano()
		for _, r := range pending {
			r.claimant, r.claimed = claimant, at
			r.attempt++
			if err := t.putEvent(r); err != nil {
				return err
			}
			out = append(out, r.event())
		}
		return nil
	})
	if err != nil {
		return nil, s.fail(ctx, "claim", err)
	}
	return out, nil
}

// ReleaseEvents is control.Outbox's.
func (s *Store) ReleaseEvents(ctx context.Context, claimant string, ids []int64, ignored bool) error {
	var not []int64
	err := s.write(ctx, func(t *txn) error {
		for _, id := range ids {
			r, err := t.event(id)
			if err != nil {
				return err
			}
			if r == nil || r.delivered != 0 || r.claimant == "" || claimant != "" && r.claimant != claimant {
				not = append(not, id)
				continue
			}
			if ignored {
				r.delivered = 1
				err = t.putEvent(r)
			} else {
				err = t.pend(r)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return s.fail(ctx, "release of events", err)
	}
	if len(not) > 0 {
		return control.NotClaimed(claimant, not)
	}
	return nil
}

// pend makes an event pending again, and wakes who waits for one.
func (t *txn) pend(r *eventRow) error {
	r.claimant, r.claimed, r.delivered = "", 0, 0
	t.wakes = true
	return t.putEvent(r)
}

// event reads an event; nil when there is none.
func (t *txn) event(id int64) (*eventRow, error) {
	row, err := t.query("read event", t.s.st.event, id)
	if err != nil {
		return nil, err
	}
	return t.s.scanEvent(row)
}

func (s *Store) scanEvent(row interface{ Scan(...any) error }) (*eventRow, error) {
	var r eventRow
	err := row.Scan(r.columns()...)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, s.scanned(err, "an outbox event")
	case r.crc != r.sum():
		return nil, s.corrupt("outbox event %d is damaged", r.id)
	}
	return &r, nil
}

// events reads events of a query.
func (t *txn) events(text string, args ...any) (out []*eventRow, err error) {
	if err := t.next("read events"); err != nil {
		return nil, err
	}
	err = t.s.query(t.statement, t.tx, text, args, func(rows *sql.Rows) error {
		r, err := t.s.scanEvent(rows)
		out = append(out, r)
		return err
	})
	return out, err
}

func (t *txn) putEvent(r *eventRow) error {
	_, err := t.exec("write event", t.s.st.updateEvent, r.attempt, r.claimant, r.claimed, r.delivered, r.sum(), r.id)
	return err
}

// ListEvents is control.Outbox's.
func (s *Store) ListEvents(ctx context.Context, delivered bool, limit int) (out []control.OutboxEvent, err error) {
	text := selectOutbox
	if !delivered {
		text += ` WHERE delivered = 0`
	}
	if limit < 1 {
		limit = -1 // SQLite's own word for all
	}
	err = s.read(ctx, func(tx *sql.Tx) error {
		return s.query(ctx, tx, text+` ORDER BY id LIMIT ?`, []any{limit}, func(rows *sql.Rows) error {
			r, err := s.scanEvent(rows)
			if err != nil {
				return err
			}
			out = append(out, r.event())
			return nil
		})
	})
	return out, s.fail(ctx, fmt.Sprintf("listing of up to %d events", limit), err)
}
