package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

// progressColumns are those of the table of progress. The last one came later: a table without it gets it from whoever may give it one.
var progressColumns = []column{{"run_id", "text"}, {"partition", "integer"}, {"rows_published", "bigint"}, {"fence_token", "bigint"}, {"sequence", "text"}}

// create makes the tables that are missing, in one transaction. Of rows that were there before their table was dropped, the progress of every run is taken
// back: what they lack is filled from their journals, and a writer that is at work finds out before it writes.
func (w *writer) create(ctx context.Context) error {
	old := "SELECT " + strings.Replace(unnamed, "$1", "'"+w.s.progress+"'", 1)
	// The names in it are of letters, digits and underscores. One message leaves no time in which the transaction would stand still.
	_, err := w.conn.Exec(ctx, "BEGIN; SELECT pg_advisory_xact_lock(hashtext('weir sink'), hashtext('"+w.s.schema+"."+w.s.base+"'));\nDO $weir$\n"+
		"DECLARE dropped boolean := to_regclass('"+w.s.table+"') IS NULL AND to_regclass('"+w.s.progress+"') IS NOT NULL;\nBEGIN\n"+w.s.definition(w.to)+"\n"+
		"IF dropped THEN UPDATE "+w.s.progress+" SET rows_published = 0 WHERE rows_published <> 0; END IF;\n"+
		"IF ("+old+") THEN ALTER TABLE "+w.s.progress+" ADD COLUMN \"sequence\" text; END IF;\nEND $weir$;\nCOMMIT")
	return w.fail(ctx, "creating the tables", err)
}

// unnamed says of a table of progress $1 that it is one of a former release, without the column for the sequence, and that this role may add it.
const unnamed = `EXISTS (SELECT FROM pg_class c WHERE c.oid = to_regclass($1) AND c.relkind IN ('r', 'p') AND pg_has_role(c.relowner, 'USAGE')
	AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'sequence' AND NOT a.attisdropped))`

// mayName says that opening will add the column.
func (w *writer) mayName(ctx context.Context) (old bool, err error) {
	err = w.conn.QueryRow(ctx, `SELECT `+unnamed, w.s.progress).Scan(&old)
	return old, w.fail(ctx, "looking at the table of progress", err)
}

// takeOver compares the sequence of the run with ours, raises the token of the partitions to ours and reads what stands: where there is no progress, up to the
// last row in the table. Of a run, one owner at a time does that. All of it is asked at once, and undone by the server if we do not commit.
func (w *writer) takeOver(ctx context.Context) (map[int32]int64, error) {
	parts := slices.Sorted(slices.Values(w.to.Partitions))
	var batch pgx.Batch
	batch.Queue(`BEGIN`)
	batch.Queue(`SELECT pg_advisory_xact_lock(hashtext('weir sink'), hashtext($1))`, w.s.schema+"."+w.s.base+"\n"+w.to.RunID)
	batch.Queue(`SELECT coalesce(min(sequence), '') FROM `+w.s.progress+` WHERE run_id = $1 AND $2 <> '' AND sequence NOT IN ($2, $3)`, w.to.RunID, w.to.Sequence,
		sinks.FormerSequence(w.to.Sequence))
	batch.Queue(`SELECT ` + w.storage())
	batch.Queue(`INSERT INTO `+w.s.progress+` AS p (run_id, partition, rows_published, fence_token, sequence)
		SELECT $1, n, CASE WHEN EXISTS (SELECT FROM `+w.s.progress+` k WHERE k.run_id = $1 AND k.partition = n) THEN 0 ELSE coalesce((`+w.afterLast("n")+`), 0) END, $3, nullif($4, '')
		FROM unnest($2::int[]) n ORDER BY n
		ON CONFLICT (run_id, partition) DO UPDATE SET fence_token = excluded.fence_token, sequence = coalesce(p.sequence, excluded.sequence) WHERE p.fence_token <= excluded.fence_token
		RETURNING p.partition, p.rows_published`, w.to.RunID, parts, int64(w.to.Token), w.to.Sequence)
	batch.Queue(w.takeBack(), w.to.RunID, parts, int64(w.to.Token))
	at, other, err := w.taken(ctx, &batch)
	switch {
	case err != nil:
		return nil, w.fail(ctx, "taking over", err)
	case other != "":
		return nil, w.another(other)
	}
	for _, p := range parts {
		if _, ours := at[p]; !ours {
			return nil, w.stale(p)
		}
	}
	if err := w.step(ctx, "taken over"); err != nil {
		return nil, err
	}
	_, err = w.conn.Exec(ctx, `COMMIT`)
	return at, w.fail(ctx, "taking over", err)
}

// taken reads what the statements of takeOver answer: what stands, and another sequence that stands there.
func (w *writer) taken(ctx context.Context, batch *pgx.Batch) (at map[int32]int64, other string, err error) {
	answers := w.conn.SendBatch(ctx, batch)
	defer answers.Close()
	for range 2 {
		if _, err = answers.Exec(); err != nil {
			return nil, "", err
		}
	}
	if err = answers.QueryRow().Scan(&other); err == nil {
		err = answers.QueryRow().Scan(&w.stored)
	}
	at = map[int32]int64{}
	for range 2 {
		if err != nil {
			break
		}
		rows, _ := answers.Query() // its error comes from ForEachRow
		var partition int32
		var n int64
		_, err = pgx.ForEachRow(rows, []any{&partition, &n}, func() error {
			at[partition] = n
			return nil
		})
	}
	return at, other, err
}

// afterLast asks for the number after the last row of a partition of the run $1 that is in the table.
func (w *writer) afterLast(partition string) string {
	return `SELECT max(row_number) + 1 FROM ` + w.s.table + ` r WHERE r.run_id = $1 AND r.partition = ` + partition
}

// takeBack lowers the progress of partitions whose last row is gone to what is still there, so that the rest is filled from the journal: the table was emptied,
// or made anew by somebody else. It runs after the locks of the progress are ours, so that nobody else's rows are on their way. Of revisions, whose table is
// not ordered by numbers and takes each of them again, it is asked whether there are any.
func (w *writer) takeBack() string {
	stands := `coalesce((` + w.afterLast("p.partition") + `), 0)`
	if w.to.Revised {
		stands = `CASE WHEN EXISTS (SELECT FROM ` + w.s.table + ` r WHERE r.run_id = $1) THEN p.rows_published ELSE 0 END`
	}
	return `UPDATE ` + w.s.progress + ` p SET rows_published = ` + stands + ` WHERE p.run_id = $1 AND p.partition = ANY ($2) AND p.fence_token = $3 AND p.rows_published > ` + stands + `
		RETURNING p.partition, p.rows_published`
}

// another refuses a run that stands there as another sequence.
func (w *writer) another(other string) error {
	where := " WHERE run_id = '" + strings.ReplaceAll(w.to.RunID, "'", "''") + "'"
	return codes.New(codes.SinkInvalid, "%s: the rows of run %q that stand there are of another sequence (%s) than these (%s), of another flow, input or store, and their numbers say nothing about each other: "+
		"name another table, or give the run another id; to give up what stands of it, stop it everywhere and run:\nDELETE FROM %s%s;\nDELETE FROM %s%s;",
		w.s.name, w.to.RunID, other, w.to.Sequence, w.s.table, where, w.s.progress, where)
}

// storage is what changes when the table is made anew or emptied (and sometimes when it is rewritten, which does no harm). It has no parameters.
func (w *writer) storage() string {
	table := "'" + w.s.table + "'::regclass"
	return table + `::oid::text || '/' || coalesce(pg_relation_filenode(` + table + `)::text, '')`
}

func (w *writer) stale(partition int32) error {
	return sinks.Overtaken(w.s.name, w.to, partition)
}
