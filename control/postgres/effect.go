package postgres

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/control"
)

// Kinds of effect, as the function fenced numbers them.
const (
	kindPublish = iota + 1
	kindStart
	kindFinish
	kindDeliver
	kindStaged
)

const callFenced = `SELECT weir.fenced($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`

// maxFlat is the most bytes of values that are sent as one array.
const maxFlat = 64 << 20

// Fenced is control.Effects': one statement, which is one round trip; with many publications a transaction that copies them first.
func (s *Store) Fenced(ctx context.Context, l control.Lease, effects ...control.Effect) error {
	if err := control.CheckEffects(l, effects); err != nil {
		return err
	}
	c := newCall(effects, s.cfg.BulkRows)
	var moved []string
	err := s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if c.staged == nil {
			return conn.QueryRow(ctx, callFenced, c.args(l, s.lockMillis(l.TTL))...).Scan(&moved)
		}
		return s.fencedStaged(ctx, conn, l, c, &moved)
	})
	if err != nil {
		return s.fail(ctx, fmt.Sprintf("effects under lease %q", l.Name), refusal(err, l))
	}
	for i, to := range c.moved {
		if to != nil {
			*to = control.RunPhase(moved[i])
		}
	}
	return nil
}

// call is the arguments of the function fenced.
type call struct {
	kinds, from, to      []int32
	runs, phases, errors []string
	refs                 []string
	events               []int64
	keys                 []string
	values, digests      [][]byte
	publishers           []string
	moved                []*control.RunPhase
	staged               []control.Publication
}

// newCall makes the arguments out of effects. Effects that do nothing are left out.
func newCall(effects []control.Effect, bulk int) *call {
	c := &call{}
	if all := publications(effects); len(all) > bulk || bytesOf(all) > maxFlat {
		c.staged = all
	}
	for _, e := range effects {
		switch e := e.(type) {
		case control.Publish:
			c.publish(e.Publications)
		case control.StartRun:
			c.add(kindStart, 0, 0, e.RunID, "", "")
			c.moved = append(c.moved, e.Moved)
		case control.FinishRun:
			from := len(c.refs)
			if e.Phase == control.Succeeded {
				c.refs = append(c.refs, e.ResultRefs...)
				e.Error = ""
			}
			c.add(kindFinish, from+1, len(c.refs), e.RunID, string(e.Phase), control.RunError(e.Error))
		case control.Deliver:
			from := len(c.events)
			c.events = append(c.events, e.EventIDs...)
			if len(c.events) > from {
				c.add(kindDeliver, from+1, len(c.events), "", "", "")
			}
		}
	}
	return c
}

func publications(effects []control.Effect) (all []control.Publication) {
	for _, e := range effects {
		if p, ok := e.(control.Publish); ok {
			all = append(all, p.Publications...)
		}
	}
	return all
}

func bytesOf(all []control.Publication) (n int) {
	for i := range all {
		n += len(all[i].Key) + len(all[i].Value)
	}
	return n
}

func (c *call) add(kind int32, from, to int, run, phase, text string) {
	c.kinds, c.from, c.to = append(c.kinds, kind), append(c.from, int32(from)), append(c.to, int32(to))
	c.runs, c.phases, c.errors = append(c.runs, run), append(c.phases, phase), append(c.errors, text)
}

func (c *call) publish(all []control.Publication) {
	switch {
	case len(all) == 0:
		return
	case c.staged != nil:
		if !slices.Contains(c.kinds, kindStaged) { // everything that is published is staged together
			c.add(kindStaged, 1, len(c.staged), "", "", "")
		}
		return
	}
	from := len(c.keys)
	sums := make([]byte, 0, sha256.Size*len(all))
	for i := range all {
		sum := sha256.Sum256(all[i].Value)
		sums = append(sums, sum[:]...)
		c.keys, c.values, c.publishers = append(c.keys, all[i].Key), append(c.values, all[i].Value), append(c.publishers, all[i].RunID)
		c.digests = append(c.digests, sums[len(sums)-sha256.Size:])
	}
	c.add(kindPublish, from+1, len(c.keys), "", "", "")
}

func (c *call) args(l control.Lease, lock string) []any {
	return []any{l.Name, l.Owner, int64(l.Token), lock, some(c.kinds), some(c.from), some(c.to), some(c.runs), some(c.phases), some(c.errors),
		some(c.refs), some(c.events), some(c.keys), some(c.values), some(c.digests), some(c.publishers)}
}

// some is a list that is not nil: nil would become NULL.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

const createStaged = `CREATE TEMPORARY TABLE IF NOT EXISTS weir_staged (key text COLLATE "C" NOT NULL, value bytea NOT NULL, digest bytea NOT NULL, run_id text COLLATE "C" NOT NULL) ON COMMIT DELETE ROWS`

// fencedStaged copies the publications into the session's temporary table, then locks the lease and runs the effects in one flush with the commit.
func (s *Store) fencedStaged(ctx context.Context, conn *pgx.Conn, l control.Lease, c *call, moved *[]string) error {
	begin := &pgx.Batch{}
	begin.Queue("BEGIN")
	begin.Queue(createStaged)
	if lock := s.lockMillis(l.TTL); lock != "" {
		begin.Queue(`SELECT set_config('idle_in_transaction_session_timeout', $1, true)`, lock)
	}
	err := conn.SendBatch(ctx, begin).Close()
	if err == nil {
		err = s.step("copy", conn)
	}
	if err == nil {
		_, err = conn.CopyFrom(ctx, pgx.Identifier{"pg_temp", "weir_staged"}, []string{"key", "value", "digest", "run_id"}, pgx.CopyFromSlice(len(c.staged), func(i int) ([]any, error) {
			p := &c.staged[i]
			sum := sha256.Sum256(p.Value)
			return []any{p.Key, p.Value, sum[:], p.RunID}, nil
		}))
	}
	if err == nil {
		err = s.step("commit", conn)
	}
	if err == nil {
		end := &pgx.Batch{}
		end.Queue(callFenced, c.args(l, s.lockMillis(l.TTL))...).QueryRow(func(row pgx.Row) error { return row.Scan(moved) })
		end.Queue("COMMIT")
		err = conn.SendBatch(ctx, end).Close()
	}
	if err != nil {
		endTransaction(ctx, conn)
	}
	return err
}

// endTransaction rolls back a transaction whose error is known already. If that fails, the connection is gone, and the transaction with it.
func endTransaction(ctx context.Context, conn *pgx.Conn) {
	if !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "ROLLBACK")
	}
}
