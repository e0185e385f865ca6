package postgres

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

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

// Fenced is control.Effects': one statement, which is one round trip; with many publications a
// transaction that copies them first.
func (s *Store) Fenced(ctx context.Context, l control.Lease, effects ...control.Effect) error {
	if err := control.CheckEffects(l, effects); err != nil {
		return err
	}
	var c *call
	var moved []string
	plain := s.lockMillis(l.TTL) == "" // a shorter time-out can only be set by the function
	err := s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if c == nil && plain {
			if done, err := lone(ctx, conn, l, effects); done || err != nil {
				return err
			}
		}
		if c == nil {
			c = newCall(effects, s.cfg.BulkRows)
		}
		if c.staged != nil {
			return s.fencedCopied(ctx, conn, l, c, &moved)
		}
		return conn.QueryRow(ctx, callFenced, c.args(l, s.lockMillis(l.TTL))...).Scan(&moved)
	})
	if err != nil {
		return s.fail(ctx, fmt.Sprintf("effects under lease %q", l.Name), refusal(err, l))
	}
	if c == nil {
		return nil
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
		c.staged = inOrder(all)
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
	all = inOrder(all)
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

// fencedCopied copies the publications, then locks and verifies the lease, runs the other effects and commits in one flush: while much is
// on its way the lease is not locked, and nothing can be seen before the commit. It first copies straight into the table; when a key is
// there already, into the session's temporary table, and publishes what is absent.
func (s *Store) fencedCopied(ctx context.Context, conn *pgx.Conn, l control.Lease, c *call, moved *[]string) error {
	err := s.copied(ctx, conn, l, c, pgx.Identifier{"weir", "publications"}, moved)
	if stateOf(err) == "23505" {
		err = s.copied(ctx, conn, l, c, pgx.Identifier{"pg_temp", "weir_staged"}, moved)
	}
	return err
}

func (s *Store) copied(ctx context.Context, conn *pgx.Conn, l control.Lease, c *call, table pgx.Identifier, moved *[]string) (err error) {
	defer func() {
		if err != nil {
			endTransaction(ctx, conn)
		}
	}()
	begin := &pgx.Batch{}
	begin.Queue("BEGIN")
	begin.Queue(createStaged)
	// Who stops while he copies holds the keys that he has inserted.
	begin.Queue(`SELECT set_config('statement_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $1, true)`, millis(min(l.TTL, s.cfg.TTL)/2))
	begin.Queue(`SELECT weir.verify($1, $2, $3)`, l.Name, l.Owner, int64(l.Token))
	if err := conn.SendBatch(ctx, begin).Close(); err != nil {
		return err
	}
	if err := s.step("copy", conn); err != nil {
		return err
	}
	if _, err := conn.CopyFrom(ctx, table, []string{"key", "value", "digest", "run_id"}, &copying{all: c.staged}); err != nil {
		return err
	}
	if err := s.step("commit", conn); err != nil {
		return err
	}
	end := &pgx.Batch{}
	end.Queue(callFenced, c.withStaged(table[0] == "pg_temp").args(l, s.lockMillis(l.TTL))...).QueryRow(func(row pgx.Row) error { return row.Scan(moved) })
	end.Queue("COMMIT")
	return conn.SendBatch(ctx, end).Close()
}

// withStaged is the call with or without the publication of what is staged.
func (c *call) withStaged(keep bool) *call {
	i := slices.Index(c.kinds, kindStaged)
	if keep || i < 0 {
		return c
	}
	d := *c
	d.kinds, d.from, d.to = without(c.kinds, i), without(c.from, i), without(c.to, i)
	d.runs, d.phases, d.errors = without(c.runs, i), without(c.phases, i), without(c.errors, i)
	return &d
}

func without[T any](list []T, i int) []T { return slices.Delete(slices.Clone(list), i, i+1) }

// copying feeds publications to COPY.
type copying struct {
	all    []control.Publication
	sum    [sha256.Size]byte
	values [4]any
	next   int
}

func (c *copying) Next() bool { c.next++; return c.next <= len(c.all) }

func (c *copying) Values() ([]any, error) {
	p := &c.all[c.next-1]
	c.sum = sha256.Sum256(p.Value)
	c.values = [4]any{p.Key, p.Value, c.sum[:], p.RunID}
	return c.values[:], nil
}

func (c *copying) Err() error { return nil }

// inOrder is publications in the order of their keys.
func inOrder(all []control.Publication) []control.Publication {
	byKey := func(a, b control.Publication) int { return strings.Compare(a.Key, b.Key) }
	if slices.IsSortedFunc(all, byKey) {
		return all
	}
	all = slices.Clone(all)
	slices.SortStableFunc(all, byKey)
	return all
}

// endTransaction rolls back a transaction whose error is known already. If that fails, the connection is gone, and the transaction with it.
func endTransaction(ctx context.Context, conn *pgx.Conn) {
	if !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "ROLLBACK")
	}
}
