package clickhouse

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/chclient"
)

// open checks the tables and takes the partitions over.
func (w *writer) open(ctx context.Context) (map[int32]int64, error) {
	if err := w.step(ctx, "connected"); err != nil {
		return nil, err
	}
	window, err := w.usable(ctx)
	if err != nil {
		return nil, err
	}
	if w.s.cfg.Create {
		for _, statement := range w.s.definition(w.to, window) {
			if err := w.conn.Exec(ctx, statement); err != nil {
				return nil, w.fail(ctx, "creating the tables", err)
			}
		}
	}
	if err := w.check(ctx, false); err != nil {
		return nil, err
	}
	if err := w.step(ctx, "checked"); err != nil {
		return nil, err
	}
	at, err := w.takeOver(ctx)
	if err != nil {
		return nil, err
	}
	return at, w.step(ctx, "opened")
}

// usable looks at what the server knows and what this user may. window is what a table of rows needs to know deduplication tokens.
func (w *writer) usable(ctx context.Context) (window string, err error) {
	var insert []string
	var readOnly bool
	err = w.conn.Query(ctx, "SELECT name, value FROM system.settings WHERE name IN ('readonly', 'async_insert', 'insert_deduplication_token')", func(row []any) error {
		switch row[0] {
		case "readonly":
			readOnly = row[1] == "1"
		case "async_insert":
			// What is told to stand must stand, and not be on its way.
			insert = append(insert, "async_insert = 0")
		case "insert_deduplication_token":
			w.tokens = true
		}
		return nil
	})
	switch {
	case err != nil:
		return "", w.fail(ctx, "looking at the settings", err)
	case readOnly:
		return "", codes.New(codes.SinkDenied, "%s: this user may only read (readonly = 1): use one that may insert", w.s.name)
	}
	w.settings = insert
	if !w.tokens {
		return "", nil
	}
	err = w.conn.Query(ctx, "SELECT name FROM system.merge_tree_settings WHERE name = 'non_replicated_deduplication_window'", func([]any) error {
		window = " SETTINGS non_replicated_deduplication_window = 1000"
		return nil
	})
	return window, w.fail(ctx, "looking at the settings of tables", err)
}

// shape is what a table has to be: the end of its name, the column by which the engine chooses among rows, and what it is ordered by.
type shape struct {
	suffix, version, sorted string
	want                    []column
}

// check compares the tables and the view with what is needed. missing says that what is not there yet is fine.
func (w *writer) check(ctx context.Context, missing bool) error {
	w.definition = w.s.definition(w.to, "")
	all := columns(w.to.Outputs)
	return w.checkAll(ctx, missing, all, shape{"_rows", "version", order(w.to), all},
		shape{"_progress", "rows_published", "run_id, partition, fence_token", progressColumns})
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
		if err := w.conn.Insert(ctx, w.insert(w.s.table(t.suffix), t.want, "")); err != nil {
			return w.fail(ctx, "trying the right to insert into "+name, err)
		}
	}
	return w.checkView(ctx, missing, shown)
}

// insert is an INSERT with every column named, so that more of them and another order do no harm.
func (w *writer) insert(table string, cols []column, token string) string {
	settings := slices.Clone(w.settings)
	if w.tokens && token != "" {
		settings = append(settings, "insert_deduplication_token = "+chclient.Quote(token))
	}
	query := "INSERT INTO " + table + " (" + list(cols) + ")"
	if len(settings) > 0 {
		query += " SETTINGS " + strings.Join(settings, ", ")
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
			return codes.New(codes.SinkInvalid, "%s: %s has no column %q: ALTER TABLE %s ADD COLUMN `%s` %s, and make the view again", w.s.name, name, c.name, name, c.name, c.kind)
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

// stand is what the progress tells of a partition: the highest token, its rows, and the rows under the highest token below ours.
type stand struct {
	token, rows uint64
	ours        bool
	former      uint64
}

// stands reads the progress of partitions.
func (w *writer) stands(ctx context.Context, parts []int32) (map[int32]stand, error) {
	out := map[int32]stand{}
	if len(parts) == 0 {
		return out, nil
	}
	query := "SELECT partition, fence_token, max(rows_published) FROM " + w.s.progress() + " WHERE " + w.of(parts) + " GROUP BY partition, fence_token ORDER BY partition, fence_token"
	err := w.conn.Query(ctx, query, func(row []any) error {
		partition, token, rows := int32(row[0].(int64)), row[1].(uint64), row[2].(uint64)
		s := out[partition]
		s.token, s.rows = token, rows // in order: the last is the highest
		switch {
		case token < w.to.Token:
			s.former = rows
		case token == w.to.Token:
			s.ours = true
		}
		out[partition] = s
		return nil
	})
	return out, w.fail(ctx, "reading what stands", err)
}

// of selects the rows of partitions of the run.
func (w *writer) of(parts []int32) string {
	numbers := make([]string, len(parts))
	for i, p := range parts {
		numbers[i] = strconv.Itoa(int(p))
	}
	return "run_id = " + chclient.Quote(w.to.RunID) + " AND partition IN (" + strings.Join(numbers, ", ") + ")"
}

// takeOver raises the token of the partitions to ours and reads what stands. What a former owner publishes between its reading and its writing is adopted.
func (w *writer) takeOver(ctx context.Context) (map[int32]int64, error) {
	parts := slices.Compact(slices.Sorted(slices.Values(w.to.Partitions)))
	before := map[int32]stand{} // as it was when we came
	for round := 0; ; round++ {
		found, err := w.stands(ctx, parts)
		if err != nil {
			return nil, err
		}
		if err := w.newest(found); err != nil {
			return nil, err
		}
		if round == 0 {
			before = found
		}
		claims := map[int32]uint64{}
		for _, p := range parts {
			if s := found[p]; !s.ours || !before[p].ours && s.former > s.rows {
				claims[p] = s.former
			}
		}
		if len(claims) == 0 || round == 5 {
			at := map[int32]int64{}
			for _, p := range parts {
				at[p] = int64(found[p].rows)
			}
			return at, nil
		}
		if err := w.moveOn(ctx, claims); err != nil {
			return nil, err
		}
		if err := w.step(ctx, "taken over"); err != nil {
			return nil, err
		}
	}
}

// newest is STALE_FENCE when another owner has come.
func (w *writer) newest(found map[int32]stand) error {
	for p, s := range found {
		if s.token > w.to.Token {
			return codes.New(codes.StaleFence, "%s: partition %d of run %q was taken over by an owner with a higher token than %d", w.s.name, p, w.to.RunID, w.to.Token)
		}
	}
	return nil
}
