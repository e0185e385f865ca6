package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/weirstream/weir/sinks"
)

// stageOf is where revisions arrive, at the speed of COPY, before those that count are merged into the table. It belongs to the session, which may be one
// that others use too, and is emptied by every commit.
func stageOf(to sinks.Target) string {
	sum := sha256.Sum256([]byte(strings.Join(to.Outputs, ",")))
	return "weir_stage_" + hex.EncodeToString(sum[:8])
}

// keyOf is the key of the table. Rows that are revisions are known by what they revise, and others by their number.
func keyOf(to sinks.Target) []string {
	if to.Revised {
		return []string{"run_id", "event_key", "event_nanos"}
	}
	return []string{"run_id", "partition", "row_number"}
}

func quotedAll(names []string) []string {
	out := make([]string, 0, len(names))
	for _, name := range names {
		out = append(out, quote(name))
	}
	return out
}

func (w *writer) makeStage(ctx context.Context) error {
	var defs []string
	for _, c := range columns(w.to) {
		defs = append(defs, quote(c.name)+" "+c.kind)
	}
	_, err := w.conn.Exec(ctx, "CREATE TEMPORARY TABLE IF NOT EXISTS "+stageOf(w.to)+" ("+strings.Join(defs, ", ")+") ON COMMIT DELETE ROWS")
	return w.fail(ctx, "making a temporary table, for which this role needs TEMPORARY on the database", err)
}

// mergeStatement brings the highest revision of each key and time into the table: it replaces a lower one that stands there, and leaves an equal or a
// higher one alone. So rows that are given again change nothing, in whatever order they come.
func (s *Sink) mergeStatement(to sinks.Target) string {
	names, key := quotedColumns(to), quotedAll(keyOf(to))
	revision := names[len(names)-1]
	var sets []string
	for _, name := range names {
		sets = append(sets, name+" = excluded."+name)
	}
	all := strings.Join(names, ", ")
	return "INSERT INTO " + s.table + " AS stands (" + all + ") SELECT DISTINCT ON (" + strings.Join(key, ", ") + ") " + all + " FROM pg_temp." + stageOf(to) +
		" ORDER BY " + strings.Join(key, ", ") + ", " + revision + " DESC NULLS LAST, \"row_number\" ON CONFLICT (" + strings.Join(key, ", ") + ") DO UPDATE SET " +
		strings.Join(sets, ", ") + " WHERE coalesce(stands." + revision + ", '-Infinity') < excluded." + revision
}
