package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
)

// open checks the tables and takes the partitions over.
func (w *writer) open(ctx context.Context) (map[int32]int64, error) {
	if err := w.step(ctx, "connected"); err != nil {
		return nil, err
	}
	if err := w.usable(ctx); err != nil {
		return nil, err
	}
	if w.s.cfg.Create {
		if err := w.create(ctx); err != nil {
			return nil, err
		}
	}
	if err := w.checkTables(ctx, false); err != nil {
		return nil, err
	}
	if err := w.step(ctx, "checked"); err != nil {
		return nil, err
	}
	if w.to.Revised {
		if err := w.makeStage(ctx); err != nil {
			return nil, err
		}
	}
	at, err := w.takeOver(ctx)
	if err != nil {
		return nil, err
	}
	return at, w.step(ctx, "opened")
}

// checkTables looks at both tables. missing says that one that is not there yet is fine.
func (w *writer) checkTables(ctx context.Context, missing bool) error {
	key := slices.Sorted(slices.Values(keyOf(w.to)))
	if err := w.checkTable(ctx, missing, w.s.base, columns(w.to), key, w.rights()...); err != nil {
		return err
	}
	progress := progressColumns
	if missing {
		// What opening will mend is fine.
		switch old, err := w.mayName(ctx); {
		case err != nil:
			return err
		case old:
			progress = progress[:len(progress)-1]
		}
	}
	return w.checkTable(ctx, missing, w.s.base+"_progress", progress, []string{"partition", "run_id"}, "SELECT", "INSERT", "UPDATE")
}

// rights are those on the table.
func (w *writer) rights() []string {
	if w.to.Revised {
		return []string{"INSERT", "SELECT", "UPDATE"}
	}
	return []string{"INSERT", "SELECT"}
}

// usable refuses a server on which a promise would be void.
func (w *writer) usable(ctx context.Context) error {
	var commit, readOnly string
	err := w.conn.QueryRow(ctx, `SELECT current_setting('synchronous_commit'), current_setting('transaction_read_only')`).Scan(&commit, &readOnly)
	switch {
	case err != nil:
		return w.fail(ctx, "looking at the settings", err)
	case commit == "off":
		return codes.New(codes.SinkInvalid, "%s: synchronous_commit is off, so that rows could be lost after they were confirmed; set it to on for this role", w.s.name)
	case readOnly == "on":
		return codes.New(codes.SinkUnavailable, "%s: the server is read-only; rows go to the primary", w.s.name)
	}
	return nil
}

const selectColumns = `SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
	FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

const selectKeys = `SELECT ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) ORDER BY a.attname COLLATE "C")
	FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE n.nspname = $1 AND c.relname = $2 AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL`

// checkTable compares a table with the columns and the key (sorted) that it needs, and this role's rights with those that are needed.
func (w *writer) checkTable(ctx context.Context, missing bool, table string, want []column, key []string, rights ...string) error {
	found := map[string]string{}
	rows, _ := w.conn.Query(ctx, selectColumns, w.s.schema, table) // its error comes from ForEachRow
	var c column
	var needed bool
	var stray string
	_, err := pgx.ForEachRow(rows, []any{&c.name, &c.kind, &needed}, func() error {
		found[c.name] = c.kind
		if needed && !slices.ContainsFunc(want, func(o column) bool { return o.name == c.name }) {
			stray = c.name
		}
		return nil
	})
	name := w.s.schema + "." + table
	switch {
	case err != nil:
		return w.fail(ctx, "looking at "+name, err)
	case len(found) == 0 && missing:
		return nil
	case len(found) == 0:
		return codes.New(codes.SinkInvalid, "%s: there is no table %s: let weir create it, or run:\n%s", w.s.name, name, w.s.definition(w.to))
	case stray != "":
		return codes.New(codes.SinkInvalid, "%s: the column %q of %s must have a value, and weir has none for it: give it a default, or let it be null", w.s.name, stray, name)
	}
	for _, c := range want {
		switch kind, has := found[c.name]; {
		case !has:
			return codes.New(codes.SinkInvalid, "%s: %s has no column %q: ALTER TABLE %s ADD COLUMN %s %s", w.s.name, name, c.name, quote(w.s.schema)+"."+quote(table), quote(c.name), c.kind)
		case kind != c.kind:
			return codes.New(codes.SinkInvalid, "%s: the column %q of %s is %s and must be %s", w.s.name, c.name, name, kind, c.kind)
		}
	}
	if err := w.checkKey(ctx, name, table, key); err != nil {
		return err
	}
	return w.checkRights(ctx, name, table, rights)
}

func (w *writer) checkKey(ctx context.Context, name, table string, key []string) error {
	rows, _ := w.conn.Query(ctx, selectKeys, w.s.schema, table) // its error comes from CollectRows
	keys, err := pgx.CollectRows(rows, pgx.RowTo[[]string])
	if err != nil {
		return w.fail(ctx, "looking at the keys of "+name, err)
	}
	if !slices.ContainsFunc(keys, func(k []string) bool { return slices.Equal(k, key) }) {
		return codes.New(codes.SinkInvalid, "%s: %s has no primary key or unique index over just (%s), without which rows could stand twice", w.s.name, name, strings.Join(key, ", "))
	}
	return nil
}

func (w *writer) checkRights(ctx context.Context, name, table string, rights []string) error {
	for _, right := range rights {
		var has bool
		if err := w.conn.QueryRow(ctx, `SELECT has_table_privilege($1, $2)`, quote(w.s.schema)+"."+quote(table), right).Scan(&has); err != nil {
			return w.fail(ctx, "looking at the rights on "+name, err)
		}
		if !has {
			return codes.New(codes.SinkDenied, "%s: this role may not %s: GRANT %s ON %s", w.s.name, right, strings.Join(rights, ", "), name)
		}
	}
	return nil
}
