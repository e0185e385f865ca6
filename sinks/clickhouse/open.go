package clickhouse

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/chclient"
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
		for _, statement := range w.s.Definition(w.to) {
			if err := w.conn.Exec(ctx, statement); err != nil {
				return nil, w.fail(ctx, "creating the tables", err)
			}
		}
		if err := w.addSequence(ctx); err != nil {
			return nil, err
		}
	}
	if err := w.check(ctx, false); err != nil {
		return nil, err
	}
	if err := w.step(ctx, "checked"); err != nil {
		return nil, err
	}
	if err := w.remember(ctx); err != nil {
		return nil, err
	}
	at, err := w.takeOver(ctx)
	if err == nil {
		err = w.takeBack(ctx, at)
	}
	if err != nil {
		return nil, err
	}
	return at, w.step(ctx, "opened")
}

// usable looks at what the server knows and what this user may.
func (w *writer) usable(ctx context.Context) error {
	var insert []string
	var readOnly, deduplicates bool
	err := w.conn.Query(ctx, "SELECT name, value FROM system.settings WHERE name IN ('readonly', 'async_insert', 'insert_deduplicate')", func(row []any) error {
		switch row[0] {
		case "readonly":
			readOnly = row[1] == "1"
		case "async_insert":
			// What is told to stand must stand, and not be on its way.
			insert = append(insert, "async_insert = 0")
		case "insert_deduplicate":
			deduplicates = true
		}
		return nil
	})
	switch {
	case err != nil:
		return w.fail(ctx, "looking at the settings", err)
	case readOnly:
		return codes.New(codes.SinkDenied, "%s: this user may only read (readonly = 1): use one that may insert", w.s.name)
	}
	w.settings = insert
	if deduplicates {
		// The server would leave out a block that it has seen before, whose rows may have been deleted since.
		err = w.conn.Exec(ctx, "SET insert_deduplicate = 0")
	}
	return w.fail(ctx, "switching the server's own deduplication off", err)
}

// shape is what a table has to be: the end of its name, the column by which the engine chooses among rows, and what it is ordered by.
type shape struct {
	suffix, version, sorted string
	want                    []column
}

// check compares the tables and the view with what is needed. missing says that what is not there yet is fine.
func (w *writer) check(ctx context.Context, missing bool) error {
	w.definition = w.s.Definition(w.to)
	all, progress := columns(w.to.Outputs), progressColumns
	if missing {
		// What opening will mend is fine.
		switch old, err := w.unnamed(ctx); {
		case err != nil:
			return err
		case old:
			progress = progress[:len(progress)-1]
		}
	}
	return w.checkAll(ctx, missing, all, shape{"_rows", "version", order(w.to), all},
		shape{"_progress", "rows_published", "run_id, partition, fence_token", progress})
}

// checkAll checks tables, tries the right to insert into each, and checks the view, which shows some columns.
func (w *writer) checkAll(ctx context.Context, missing bool, shown []column, tables ...shape) error {
	for _, t := range tables {
		name := w.s.base + t.suffix
		there, err := w.checkTable(ctx, name, t)
		switch {
		case err != nil:
			return err
		case !there && missing:
			continue
		case !there:
			return codes.New(codes.SinkInvalid, "%s: there is no table %s.%s: let weir create it, or run:\n%s", w.s.name, w.s.database, name, strings.Join(w.definition, ";\n")+";")
		}
		if err := w.checkColumns(ctx, name, t.want); err != nil {
			return err
		}
		// An insert of nothing finds what this user may not.
		if err := w.conn.Insert(ctx, w.insert(w.s.table(t.suffix), t.want)); err != nil {
			return w.fail(ctx, "trying the right to insert into "+name, err)
		}
	}
	return w.checkView(ctx, missing, shown)
}

// insert is an INSERT with every column named, so that more of them and another order do no harm.
func (w *writer) insert(table string, cols []column) string {
	query := "INSERT INTO " + table + " (" + list(cols) + ")"
	if len(w.settings) > 0 {
		query += " SETTINGS " + strings.Join(w.settings, ", ")
	}
	return query + " FORMAT Native"
}

func (w *writer) at(table string) string {
	return "database = " + chclient.Quote(w.s.database) + " AND table = " + chclient.Quote(table)
}

// replacing is the engine of a table in which the row with the highest version counts; the version is its last parameter.
var replacing = regexp.MustCompile(`^(?:Replicated|Shared)?ReplacingMergeTree(?:\((?:'[^']*', '[^']*'(?:, )?)?(\w*)\))?(?: |$)`)

func (w *writer) checkTable(ctx context.Context, table string, want shape) (there bool, err error) {
	name := w.s.database + "." + table
	var engine, key, partition string
	query := "SELECT engine_full, sorting_key, partition_key FROM system.tables WHERE " + strings.Replace(w.at(table), "table =", "name =", 1)
	err = w.conn.Query(ctx, query, func(row []any) error {
		there = true
		engine, key, partition = fmt.Sprint(row[0]), fmt.Sprint(row[1]), fmt.Sprint(row[2])
		return nil
	})
	m := replacing.FindStringSubmatch(engine)
	switch {
	case err != nil:
		return false, w.fail(ctx, "looking at "+name, err)
	case !there:
		return false, nil
	case m == nil || m[1] != want.version:
		return true, codes.New(codes.SinkInvalid, "%s: the engine of %s is %s and must be ReplacingMergeTree(%s), or rows could stand twice", w.s.name, name, short(engine), want.version)
	case strings.ReplaceAll(key, "`", "") != want.sorted:
		return true, codes.New(codes.SinkInvalid, "%s: %s is ordered by (%s) and must be by just (%s), or rows could stand twice or replace others", w.s.name, name, short(key), want.sorted)
	case partition != "" && want.version != "" && want.version != "version":
		return true, codes.New(codes.SinkInvalid, "%s: %s has partitions (%s) and must have none: a block of it has to stand whole or not at all", w.s.name, name, short(partition))
	case strings.Contains(partition, "version"):
		return true, codes.New(codes.SinkInvalid, "%s: %s has partitions by the version (%s), between which copies of a row do not merge", w.s.name, name, short(partition))
	}
	return true, nil
}

// checkColumns compares the columns of a table with those that are needed.
func (w *writer) checkColumns(ctx context.Context, table string, want []column) error {
	name := w.s.database + "." + table
	found := map[string]string{}
	computed := map[string]bool{}
	err := w.conn.Query(ctx, "SELECT name, type, default_kind FROM system.columns WHERE "+w.at(table), func(row []any) error {
		column := fmt.Sprint(row[0])
		found[column] = fmt.Sprint(row[1])
		computed[column] = row[2] != "" && row[2] != "DEFAULT"
		return nil
	})
	if err != nil {
		return w.fail(ctx, "looking at the columns of "+name, err)
	}
	for _, c := range want {
		kind, has := found[c.name]
		switch {
		case !has:
			cure := "ALTER TABLE " + name + " ADD COLUMN `" + c.name + "` " + c.kind
			if c.kind == outputKind {
				cure += ", and make the view again"
			}
			return codes.New(codes.SinkInvalid, "%s: %s has no column %q: %s", w.s.name, name, c.name, cure)
		case kind != c.kind && !(c.kind == "DateTime" && strings.HasPrefix(kind, "DateTime('")):
			return codes.New(codes.SinkInvalid, "%s: the column %q of %s is %s and must be %s", w.s.name, c.name, name, short(kind), c.kind)
		case computed[c.name]:
			return codes.New(codes.SinkInvalid, "%s: the column %q of %s is computed by the table and cannot be given: make it a plain one", w.s.name, c.name, name)
		}
	}
	return nil
}

// checkView looks whether the view shows what was agreed upon.
func (w *writer) checkView(ctx context.Context, missing bool, want []column) error {
	name := w.s.database + "." + w.s.base
	engine := ""
	err := w.conn.Query(ctx, "SELECT engine FROM system.tables WHERE "+strings.Replace(w.at(w.s.base), "table =", "name =", 1), func(row []any) error {
		engine = fmt.Sprint(row[0])
		return nil
	})
	found := map[string]bool{}
	if err == nil {
		err = w.conn.Query(ctx, "SELECT name FROM system.columns WHERE "+w.at(w.s.base), func(row []any) error { found[fmt.Sprint(row[0])] = true; return nil })
	}
	view := w.definition[2]
	switch {
	case err != nil:
		return w.fail(ctx, "looking at the view "+name, err)
	case engine == "" && missing:
		return nil
	case engine == "":
		return codes.New(codes.SinkInvalid, "%s: there is no view %s, by which rows are read: let weir create it, or run:\n%s;", w.s.name, name, view)
	case engine != "View":
		return codes.New(codes.SinkInvalid, "%s: %s is of the engine %s and must be a view, by which rows are read: name another table", w.s.name, name, short(engine))
	}
	for _, c := range want {
		if !found[c.name] {
			return codes.New(codes.SinkInvalid, "%s: the view %s does not show the column %q: DROP TABLE %s, and let weir create it, or run:\n%s;", w.s.name, name, c.name, name, view)
		}
	}
	return nil
}
