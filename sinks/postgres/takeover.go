package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
)

// progressColumns are those of the table of progress. The last one came later: a table without it gets it from whoever may give it one.
var progressColumns = []column{{"run_id", "text"}, {"partition", "integer"}, {"rows_published", "bigint"}, {"fence_token", "bigint"}, {"sequence", "text"}}

// create makes the tables that are missing, in one transaction. Of rows that were there before their table was dropped, the progress of every run is taken
// back: what they lack is filled from their journals, and a writer that is at work finds out before it writes.
func (w *writer) create(ctx context.Context) error {
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		return w.fail(ctx, "creating the tables", err)
	}
	var dropped bool
	_, err = tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('weir sink'), hashtext($1))`, w.s.schema+"."+w.s.base)
	if err == nil {
		err = tx.QueryRow(ctx, `SELECT to_regclass($1) IS NULL AND to_regclass($2) IS NOT NULL`, w.s.table, w.s.progress).Scan(&dropped)
	}
	if err == nil {
		_, err = tx.Exec(ctx, w.s.definition(w.to))
	}
	if err == nil && dropped {
		_, err = tx.Exec(ctx, `UPDATE `+w.s.progress+` SET rows_published = 0 WHERE rows_published <> 0`)
	}
	if err != nil {
		return w.fail(ctx, "creating the tables", err)
	}
	old, err := w.mayName(ctx)
	if err == nil && old {
		_, err = tx.Exec(ctx, `ALTER TABLE `+w.s.progress+` ADD COLUMN IF NOT EXISTS "sequence" text`)
	}
	if err != nil {
		return w.fail(ctx, "adding a column to the table of progress", err)
	}
	return w.fail(ctx, "creating the tables", tx.Commit(ctx))
}

// mayName says that the table of progress is one of a former release, without the column for the sequence, and that this role may add it.
func (w *writer) mayName(ctx context.Context) (old bool, err error) {
	err = w.conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class c WHERE c.oid = to_regclass($1) AND c.relkind IN ('r', 'p') AND pg_has_role(c.relowner, 'USAGE')
		AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'sequence' AND NOT a.attisdropped))`, w.s.progress).Scan(&old)
	return old, w.fail(ctx, "looking at the table of progress", err)
}

// takeOver compares the sequence of the run with ours, raises the token of the partitions to ours and reads what stands: where there is no progress, up to the
// last row in the table. Of a run, one owner at a time does that.
func (w *writer) takeOver(ctx context.Context) (map[int32]int64, error) {
	parts := slices.Sorted(slices.Values(w.to.Partitions))
	tx, err := w.conn.Begin(ctx)
	if err != nil {
		return nil, w.fail(ctx, "taking over", err)
	}
	if err := w.sameSequence(ctx, tx); err != nil {
		return nil, err
	}
	if err := tx.QueryRow(ctx, `SELECT `+w.storage()).Scan(&w.stored); err != nil {
		return nil, w.fail(ctx, "taking over", err)
	}
	rows, _ := tx.Query(ctx, `INSERT INTO `+w.s.progress+` AS p (run_id, partition, rows_published, fence_token, sequence)
		SELECT $1, n, CASE WHEN EXISTS (SELECT FROM `+w.s.progress+` k WHERE k.run_id = $1 AND k.partition = n) THEN 0 ELSE coalesce((`+w.afterLast("n")+`), 0) END, $3, nullif($4, '')
		FROM unnest($2::int[]) n ORDER BY n
		ON CONFLICT (run_id, partition) DO UPDATE SET fence_token = excluded.fence_token, sequence = coalesce(p.sequence, excluded.sequence) WHERE p.fence_token <= excluded.fence_token
		RETURNING p.partition, p.rows_published`, w.to.RunID, parts, int64(w.to.Token), w.to.Sequence)
	at := map[int32]int64{}
	if err := w.collect(ctx, rows, at); err != nil {
		return nil, err
	}
	for _, p := range parts {
		if _, ours := at[p]; !ours {
			return nil, w.stale(p)
		}
	}
	if err := w.takeBack(ctx, tx, parts, at); err != nil {
		return nil, err
	}
	if err := w.step(ctx, "taken over"); err != nil {
		return nil, err
	}
	return at, w.fail(ctx, "taking over", tx.Commit(ctx))
}

func (w *writer) collect(ctx context.Context, rows pgx.Rows, at map[int32]int64) error {
	var partition int32
	var n int64
	_, err := pgx.ForEachRow(rows, []any{&partition, &n}, func() error { at[partition] = n; return nil })
	return w.fail(ctx, "taking over", err)
}

// afterLast asks for the number after the last row of a partition of the run $1 that is in the table.
func (w *writer) afterLast(partition string) string {
	return `SELECT max(row_number) + 1 FROM ` + w.s.table + ` r WHERE r.run_id = $1 AND r.partition = ` + partition
}

// takeBack lowers the progress of partitions whose last row is gone to what is still there, so that the rest is filled from the journal: the table was emptied,
// or made anew by somebody else. It runs after the locks of the progress are ours, so that nobody else's rows are on their way. Of revisions, whose table is
// not ordered by numbers and takes each of them again, it is asked whether there are any.
func (w *writer) takeBack(ctx context.Context, tx pgx.Tx, parts []int32, at map[int32]int64) error {
	stands := `coalesce((` + w.afterLast("p.partition") + `), 0)`
	if w.to.Revised {
		stands = `CASE WHEN EXISTS (SELECT FROM ` + w.s.table + ` r WHERE r.run_id = $1) THEN p.rows_published ELSE 0 END`
	}
	rows, _ := tx.Query(ctx, `UPDATE `+w.s.progress+` p SET rows_published = `+stands+` WHERE p.run_id = $1 AND p.partition = ANY ($2) AND p.rows_published > `+stands+`
		RETURNING p.partition, p.rows_published`, w.to.RunID, parts)
	return w.collect(ctx, rows, at)
}

// sameSequence refuses a run that stands there as another sequence, under a lock that the next owner waits for.
func (w *writer) sameSequence(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('weir sink'), hashtext($1))`, w.s.schema+"."+w.s.base+"\n"+w.to.RunID); err != nil {
		return w.fail(ctx, "taking over", err)
	}
	if w.to.Sequence == "" {
		return nil
	}
	var other string
	err := tx.QueryRow(ctx, `SELECT coalesce(min(sequence), '') FROM `+w.s.progress+` WHERE run_id = $1 AND sequence <> $2`, w.to.RunID, w.to.Sequence).Scan(&other)
	if err != nil || other == "" {
		return w.fail(ctx, "comparing the sequence", err)
	}
	where := " WHERE run_id = '" + strings.ReplaceAll(w.to.RunID, "'", "''") + "'"
	return codes.New(codes.SinkInvalid, "%s: the rows of run %q that stand there are of another sequence (%s) than these (%s), of another flow for example, and their numbers say nothing about each other: "+
		"name another table, or give the run another id; to give up what stands of it, stop it everywhere and run:\nDELETE FROM %s%s;\nDELETE FROM %s%s;",
		w.s.name, w.to.RunID, other, w.to.Sequence, w.s.table, where, w.s.progress, where)
}

// storage is what changes when the table is made anew or emptied (and sometimes when it is rewritten, which does no harm). It has no parameters.
func (w *writer) storage() string {
	table := "'" + w.s.table + "'::regclass"
	return table + `::oid::text || '/' || coalesce(pg_relation_filenode(` + table + `)::text, '')`
}

func (w *writer) stale(partition int32) error {
	return codes.New(codes.StaleFence, "%s: partition %d of run %q was taken over by an owner with a higher token than %d", w.s.name, partition, w.to.RunID, w.to.Token)
}
