package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/control"
)

const (
	eventColumns = `id, kind, run_id, attempt, coalesce(claimant, ''), claimed_at, delivered IS NOT NULL, created`
	// claimDue claims in order what is due, skipping what others are claiming at this moment. Its commit does not wait for the disk, for this
	// transaction alone: a claim that a crash of the server undoes is an event that is due again, and whatever follows from a claim (a run's start,
	// its end, a delivery) is committed after it, and is not durable without it.
	claimDue = `WITH due AS MATERIALIZED (
	  SELECT id FROM weir.outbox WHERE claimant IS NULL AND delivered IS NULL ORDER BY id LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED)
	UPDATE weir.outbox SET claimant = $1, claimed_at = clock_timestamp(), attempt = attempt + 1
	WHERE id = ANY (ARRAY (SELECT id FROM due)) AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off' RETURNING ` + eventColumns
	// channel is what the schema's functions notify.
	channel = "weir_outbox"
)

func scanEvent(row pgx.Row) (e control.OutboxEvent, err error) {
	var claimed *time.Time
	err = row.Scan(&e.ID, &e.Kind, &e.RunID, &e.Attempt, &e.Claimant, &claimed, &e.Delivered, &e.Created)
	if claimed != nil {
		e.ClaimedAt = *claimed
	}
	return e, err
}

// Claim is control.Outbox's.
func (s *Store) Claim(ctx context.Context, claimant string, limit int) (out []control.OutboxEvent, err error) {
	if err := control.CheckClaimant(claimant); err != nil {
		return nil, err
	}
	err = s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		out = out[:0]
		return each(ctx, conn, claimDue, []any{claimant, control.ClaimSize(limit)}, func(rows pgx.Rows) error {
			e, err := scanEvent(rows)
			out = append(out, e)
			return err
		})
	})
	if err != nil {
		return nil, s.fail(ctx, "claim", err)
	}
	slices.SortFunc(out, func(a, b control.OutboxEvent) int { return cmp.Compare(a.ID, b.ID) })
	return out, nil
}

// ReleaseEvents is control.Outbox's.
func (s *Store) ReleaseEvents(ctx context.Context, claimant string, ids []int64, ignored bool) error {
	held := map[int64]bool{}
	err := s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		clear(held)
		return each(ctx, conn, `SELECT weir.release_events($1, $2, $3)`, []any{text(claimant), some(ids), ignored}, func(rows pgx.Rows) error {
			var id int64
			err := rows.Scan(&id)
			held[id] = true
			return err
		})
	})
	if err != nil {
		return s.fail(ctx, "release of events", err)
	}
	var not []int64
	for _, id := range ids {
		if !held[id] {
			not = append(not, id)
		}
	}
	if len(not) > 0 {
		return control.NotClaimed(claimant, not)
	}
	return nil
}

// ListEvents is control.Outbox's.
func (s *Store) ListEvents(ctx context.Context, delivered bool, limit int) (out []control.OutboxEvent, err error) {
	var most *int // NULL is all
	if limit > 0 {
		most = &limit
	}
	err = s.read(ctx, func(tx pgx.Tx) error {
		return each(ctx, tx, `SELECT `+eventColumns+` FROM weir.outbox WHERE $1 OR delivered IS NULL ORDER BY id LIMIT $2`, []any{delivered, most}, func(rows pgx.Rows) error {
			e, err := scanEvent(rows)
			out = append(out, e)
			return err
		})
	})
	return out, s.fail(ctx, "listing of events", err)
}

// Wake is control.Outbox's, by LISTEN on a connection of its own, which is opened again when it is lost. A new connection wakes too: what
// was notified meanwhile was not heard. The channel is closed with ctx and by Close.
func (s *Store) Wake(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		cancel()
		close(out)
		return out
	}
	s.listeners.Add(1)
	stop := context.AfterFunc(s.closing, cancel)
	go func() {
		defer s.listeners.Done()
		defer close(out)
		defer cancel()
		defer stop()
		for n := 1; ctx.Err() == nil; n++ {
			if s.listen(ctx, out) {
				n = 1
			}
			_ = pause(ctx, min(n+4, 10)) // ctx is looked at by the loop
		}
	}()
	return out
}

// listen gives a value for each notification until the connection or ctx ends. It says whether it got as far as listening.
func (s *Store) listen(ctx context.Context, out chan<- struct{}) (listened bool) {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return false
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return false
	}
	for {
		select {
		case out <- struct{}{}:
		default:
		}
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return true
		}
	}
}
