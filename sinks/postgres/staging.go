package postgres

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
)

// Staging keeps the rows of whole results. A staging named features has two tables and a view, which is what readers read:
//
//	features_staged                                         features_runs
//	run_id, artifact, row_number  primary key               run_id, artifact  primary key
//	event_time   timestamptz                                outputs  text[]
//	event_nanos  bigint                                     rows     bigint
//	event_id, event_key  text                               shown    boolean
//	values       double precision[]
//
// The view shows the rows of the results that are shown, with the names of their values. A result is staged in one transaction.
type Staging struct {
	s            *Sink
	staged, runs string // quoted
}

var _ sinks.Staging = (*Staging)(nil)

// NewStaging makes a staging; nothing is connected. Config.Hook is called between any two steps. Errors: those of New.
func NewStaging(cfg Config) (*Staging, error) {
	s, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return &Staging{s: s, staged: quote(s.schema) + "." + quote(s.base+"_staged"), runs: quote(s.schema) + "." + quote(s.base+"_runs")}, nil
}

var (
	stagedColumns = []column{
		{"run_id", "text"}, {"artifact", "text"}, {"row_number", "bigint"}, {"event_time", "timestamp with time zone"}, {"event_nanos", "bigint"},
		{"event_id", "text"}, {"event_key", "text"}, {"values", "double precision[]"},
	}
	runColumns = []column{{"run_id", "text"}, {"artifact", "text"}, {"outputs", "text[]"}, {"rows", "bigint"}, {"shown", "boolean"}}
)

// Definition are the statements that make the tables and the view.
func (g *Staging) Definition() string {
	declare := func(table string, cols []column, key string) string {
		var lines []string
		for _, c := range cols {
			lines = append(lines, "  "+quote(c.name)+" "+c.kind+" NOT NULL")
		}
		return "CREATE TABLE IF NOT EXISTS " + table + " (\n" + strings.Join(lines, ",\n") + ",\n  PRIMARY KEY (" + key + "));\n"
	}
	var shown []string
	for _, c := range stagedColumns {
		shown = append(shown, "s."+quote(c.name))
	}
	return declare(g.staged, stagedColumns, "run_id, artifact, row_number") + declare(g.runs, runColumns, "run_id, artifact") +
		"CREATE OR REPLACE VIEW " + g.s.table + " AS SELECT " + strings.Join(shown, ", ") + ", r.outputs\n  FROM " + g.staged + " s JOIN " + g.runs +
		" r ON r.run_id = s.run_id AND r.artifact = s.artifact WHERE r.shown;"
}

// with does something over a connection of its own.
func (g *Staging) with(ctx context.Context, do func(w *writer) error) error {
	conn, err := g.s.connect(ctx)
	if err != nil {
		return err
	}
	w := &writer{s: g.s, conn: conn}
	defer w.Close()
	return do(w)
}

// Check implements sinks.Staging.
func (g *Staging) Check(ctx context.Context) error {
	return g.with(ctx, func(w *writer) error {
		if err := w.usable(ctx); err != nil {
			return err
		}
		var tables int
		var view bool
		err := w.conn.QueryRow(ctx, `SELECT (to_regclass($1) IS NOT NULL)::int + (to_regclass($2) IS NOT NULL)::int, EXISTS (SELECT FROM pg_class WHERE oid = to_regclass($3) AND relkind = 'v')`,
			g.staged, g.runs, g.s.table).Scan(&tables, &view)
		if err != nil {
			return w.fail(ctx, "looking at the tables", err)
		}
		if whole := tables == 2 && view; !whole && !g.s.cfg.Create {
			return codes.New(codes.SinkInvalid, "%s: a table or the view is missing: let weir create them, or run:\n%s", g.s.name, g.Definition())
		} else if !whole {
			lock := "BEGIN; SELECT pg_advisory_xact_lock(hashtext('weir sink'), hashtext('" + g.s.schema + "." + g.s.base + "'));\n"
			if _, err := w.conn.Exec(ctx, lock+g.Definition()+"\nCOMMIT"); err != nil {
				return w.fail(ctx, "creating the tables", err)
			}
		}
		key := []string{"artifact", "row_number", "run_id"}
		if err := w.checkTable(ctx, false, g.s.base+"_staged", stagedColumns, key, "SELECT", "INSERT", "DELETE"); err != nil {
			return err
		}
		return w.checkTable(ctx, false, g.s.base+"_runs", runColumns, []string{"artifact", "run_id"}, "SELECT", "INSERT", "UPDATE", "DELETE")
	})
}

// Stage implements sinks.Staging. What stands of the result is replaced, unless it is shown.
func (g *Staging) Stage(ctx context.Context, r sinks.Staged, rows func(fn func(row *partitions.Row) error) error) error {
	return g.with(ctx, func(w *writer) error {
		if err := w.step(ctx, "connected"); err != nil {
			return err
		}
		tx, err := w.conn.Begin(ctx)
		if err != nil {
			return w.fail(ctx, "beginning", err)
		}
		var shown bool
		err = tx.QueryRow(ctx, `INSERT INTO `+g.runs+` AS r (run_id, artifact, outputs, rows, shown) VALUES ($1, $2, $3, $4, false)
			ON CONFLICT (run_id, artifact) DO UPDATE SET rows = r.rows RETURNING shown`, r.RunID, r.Artifact, append([]string{}, r.Outputs...), r.Rows).Scan(&shown)
		if err != nil || shown {
			return w.fail(ctx, "naming a result", err) // the server undoes what it did
		}
		if _, err := tx.Exec(ctx, `DELETE FROM `+g.staged+` WHERE run_id = $1 AND artifact = $2`, r.RunID, r.Artifact); err != nil {
			return w.fail(ctx, "staging rows", err)
		}
		if err := w.step(ctx, "named"); err != nil {
			return err
		}
		if err := g.copy(ctx, w, tx, r, rows); err != nil {
			return err
		}
		if err := w.step(ctx, "copied"); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return w.fail(ctx, "committing", err)
		}
		return w.step(ctx, "staged")
	})
}

// copyRows is how many rows are copied by one statement.
const copyRows = 2048

func (g *Staging) copy(ctx context.Context, w *writer, tx pgx.Tx, r sinks.Staged, rows func(fn func(row *partitions.Row) error) error) error {
	names := make([]string, len(stagedColumns))
	for i, c := range stagedColumns {
		names[i] = c.name
	}
	var pending [][]any
	flush := func() error {
		if len(pending) == 0 {
			return nil
		}
		_, err := tx.CopyFrom(ctx, pgx.Identifier{g.s.schema, g.s.base + "_staged"}, names, pgx.CopyFromRows(pending))
		pending = pending[:0]
		return w.fail(ctx, "staging rows", err)
	}
	n := int64(0)
	err := rows(func(row *partitions.Row) error {
		values := make([]pgtype.Float8, len(row.Values))
		for i, v := range row.Values {
			values[i] = pgtype.Float8{Float64: v.F, Valid: v.OK}
		}
		at := time.UnixMicro(time.Unix(0, int64(row.Time)).UnixMicro())
		pending = append(pending, []any{r.RunID, r.Artifact, n, at, int64(row.Time), plain(row.ID), plain(row.Key), values})
		if n++; len(pending) < copyRows {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err == nil && n != r.Rows {
		err = codes.New(codes.Internal, "%s: a result of %d rows has %d", g.s.name, r.Rows, n)
	}
	return err
}

// plain is a text as appendText writes it.
func plain(text []byte) string { return string(appendText(nil, text)[4:]) }

// Show implements sinks.Staging.
func (g *Staging) Show(ctx context.Context, name sinks.StagedName) error {
	return g.with(ctx, func(w *writer) error {
		if err := w.step(ctx, "connected"); err != nil {
			return err
		}
		done, err := w.conn.Exec(ctx, `UPDATE `+g.runs+` SET shown = true WHERE run_id = $1 AND artifact = $2`, name.RunID, name.Artifact)
		switch {
		case err != nil:
			return w.fail(ctx, "showing a result", err)
		case done.RowsAffected() == 0:
			return codes.New(codes.SinkRefused, "%s: the result %s of run %q was never staged, or was dropped", g.s.name, name.Artifact, name.RunID)
		}
		return w.step(ctx, "shown")
	})
}

// Hidden implements sinks.Staging.
func (g *Staging) Hidden(ctx context.Context, fn func(sinks.StagedName) error) error {
	var names []sinks.StagedName
	err := g.with(ctx, func(w *writer) error {
		rows, _ := w.conn.Query(ctx, `SELECT run_id, artifact FROM `+g.runs+` WHERE NOT shown ORDER BY run_id, artifact`) // its error comes from ForEachRow
		var name sinks.StagedName
		_, err := pgx.ForEachRow(rows, []any{&name.RunID, &name.Artifact}, func() error { names = append(names, name); return nil })
		return w.fail(ctx, "listing results", err)
	})
	for name := range slices.Values(names) {
		if err == nil {
			err = fn(name)
		}
	}
	return err
}

// Drop implements sinks.Staging, in one transaction.
func (g *Staging) Drop(ctx context.Context, name sinks.StagedName) error {
	return g.with(ctx, func(w *writer) error {
		tx, err := w.conn.Begin(ctx)
		if err != nil {
			return w.fail(ctx, "beginning", err)
		}
		gone, err := tx.Exec(ctx, `DELETE FROM `+g.runs+` WHERE run_id = $1 AND artifact = $2 AND NOT shown`, name.RunID, name.Artifact)
		if err == nil && gone.RowsAffected() > 0 {
			_, err = tx.Exec(ctx, `DELETE FROM `+g.staged+` WHERE run_id = $1 AND artifact = $2`, name.RunID, name.Artifact)
		}
		if err != nil {
			return w.fail(ctx, "dropping a result", err)
		}
		if err := w.step(ctx, "deleted"); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return w.fail(ctx, "committing", err)
		}
		return w.step(ctx, "dropped")
	})
}
