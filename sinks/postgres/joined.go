package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/sinks"
)

// Journal is a store of runs in PostgreSQL, of whose transactions rows can be a part: the Store of control/postgres.
type Journal interface {
	// Join has fn called in the transaction of every epoch of a run, before its COMMIT, until leave. It is told under which token the epoch is committed.
	Join(runID string, fn func(ctx context.Context, conn *pgx.Conn, token control.FenceToken) error) (leave func())
	// Borrow runs fn on a connection of the store, as its role.
	Borrow(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error
}

// Joined is a sink in the database of the journal: its rows become visible in the journal's own transactions. They are written by the journal's role, which
// therefore needs the rights on the table; opening, and what the journal holds already, is done by the sink's.
type Joined struct {
	s *Sink
	j Journal
}

var (
	_ sinks.Sink   = (*Joined)(nil)
	_ sinks.Prober = (*Joined)(nil)
	_ sinks.Joiner = (*joinedWriter)(nil)
)

// Within is the sink as part of a journal, or nil when the journal is in another database, whatever the URLs look like. Errors: as Open's.
func (s *Sink) Within(ctx context.Context, j Journal) (*Joined, error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{s: s, conn: conn}
	defer w.Close()
	same, err := w.sameDatabase(ctx, j)
	if err != nil || !same {
		return nil, err
	}
	return &Joined{s, j}, nil
}

// identity is what a server says of itself and of a database.
type identity struct {
	system, oid int64
	name        string
}

func identify(ctx context.Context, conn *pgx.Conn) (id identity, err error) {
	err = conn.QueryRow(ctx, `SELECT (SELECT system_identifier FROM pg_control_system()), oid::bigint, datname FROM pg_database WHERE datname = current_database()`).
		Scan(&id.system, &id.oid, &id.name)
	return id, err
}

// sameDatabase compares what the two connections say. A copy of a server says the same, so the journal's connection also holds a lock, which is
// looked for here.
func (w *writer) sameDatabase(ctx context.Context, j Journal) (same bool, err error) {
	ours, err := identify(ctx, w.conn)
	if err != nil {
		return false, w.fail(ctx, "asking for the identity of the database", err)
	}
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails
	high, low := binary.BigEndian.Uint32(random[:4]), binary.BigEndian.Uint32(random[4:])
	err = j.Borrow(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		theirs, err := identify(ctx, conn)
		if err != nil || theirs != ours {
			return err
		}
		if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1, $2)`, int32(high), int32(low)); err != nil {
			return err
		}
		looked := w.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND database = $1::bigint::oid AND classid = $2::bigint::oid AND objid = $3::bigint::oid)`,
			ours.oid, int64(high), int64(low)).Scan(&same)
		if _, err := conn.Exec(ctx, `SELECT pg_advisory_unlock($1, $2)`, int32(high), int32(low)); err != nil {
			return err
		}
		return w.fail(ctx, "looking for the journal's lock", looked)
	})
	return same, err
}

// Features implements sinks.Sink.
func (j *Joined) Features() sinks.Features {
	f := j.s.Features()
	f.AtomicWithJournal = true
	return f
}

// Probe implements sinks.Prober.
func (j *Joined) Probe(ctx context.Context, target sinks.Target) error { return j.s.Probe(ctx, target) }

// Open implements sinks.Sink.
func (j *Joined) Open(ctx context.Context, target sinks.Target) (sinks.Writer, error) {
	w, err := j.s.open(ctx, target)
	if err != nil {
		return nil, err
	}
	if err := j.rights(ctx, w); err != nil {
		_ = w.Close() // the reason to give up says more
		return nil, err
	}
	out := &joinedWriter{writer: w}
	out.leave = j.j.Join(target.RunID, out.within)
	return out, nil
}

// rights looks at what the journal's role may do, so that it is found out before the first epoch. A sink that makes its tables grants it what it needs.
func (j *Joined) rights(ctx context.Context, w *writer) error {
	return j.j.Borrow(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		theirs := *w
		theirs.conn = conn
		err := theirs.checkTables(ctx, false)
		if codes.Has(err, codes.SinkDenied) && j.s.cfg.Create {
			if err := w.grant(ctx, conn); err != nil {
				return err
			}
			err = theirs.checkTables(ctx, false)
		}
		if codes.Has(err, codes.SinkDenied) {
			return codes.New(codes.SinkDenied, "rows are written in the transactions of the journal, by its role: %w", err)
		}
		return err
	})
}

// grant lets the role of another connection write, as far as ours may.
func (w *writer) grant(ctx context.Context, to *pgx.Conn) error {
	var role string
	if err := to.QueryRow(ctx, `SELECT current_user`).Scan(&role); err != nil {
		return err
	}
	_, err := w.conn.Exec(ctx, "GRANT "+strings.Join(w.rights(), ", ")+" ON "+w.s.table+" TO "+quote(role)+"; GRANT SELECT, INSERT, UPDATE ON "+w.s.progress+" TO "+quote(role))
	return w.fail(ctx, "granting the journal's role what it needs", err)
}

// joinedWriter writes within the transactions of the journal.
type joinedWriter struct {
	*writer
	leave func()
	// pending are the rows of the epoch that is about to be committed.
	pending []sinks.Rows
}

// Join implements sinks.Joiner.
func (w *joinedWriter) Join(ctx context.Context, batches []sinks.Rows) error {
	w.stood()
	rest, err := w.progress.Rest(batches)
	if err == nil {
		err = w.step(ctx, "handed over")
	}
	if err != nil {
		return w.progress.Fail(err)
	}
	w.pending = rest
	return nil
}

// stood notes that the epoch of the pending rows was committed.
func (w *joinedWriter) stood() {
	w.progress.Done(w.pending)
	w.pending = nil
}

// Published implements sinks.Writer.
func (w *joinedWriter) Published() map[int32]int64 {
	w.stood()
	return w.writer.Published()
}

// Publish implements sinks.Writer: in a transaction of its own, for what the journal holds already.
func (w *joinedWriter) Publish(ctx context.Context, batches []sinks.Rows) error {
	w.stood()
	return w.writer.Publish(ctx, batches)
}

// Close implements sinks.Writer.
func (w *joinedWriter) Close() error {
	w.leave()
	return w.writer.Close()
}

// within writes the pending rows in a transaction of the journal. It may be called again, after the server has undone that. Epochs of another owner in this
// process are not ours.
func (w *joinedWriter) within(ctx context.Context, conn *pgx.Conn, token control.FenceToken) error {
	if len(w.pending) == 0 || uint64(token) != w.to.Token {
		return nil
	}
	theirs, rows := *w.writer, slices.Clone(w.pending)
	theirs.conn, theirs.spare = conn, nil
	parts, ends := endsOf(rows)
	if theirs.to.Revised {
		if err := theirs.makeStage(ctx); err != nil {
			return err
		}
	}
	if err := theirs.lock(ctx, "", parts); err != nil {
		return err
	}
	if err := theirs.write(ctx, rows); err != nil {
		return err
	}
	return theirs.finish(ctx, "", parts, ends)
}
