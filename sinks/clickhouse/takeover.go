package clickhouse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/chclient"
	"github.com/weirstream/weir/sinks"
)

// unnamed says that the table of progress is one of a former release, without the column for the sequence.
func (w *writer) unnamed(ctx context.Context) (bool, error) {
	there, has := false, false
	err := w.conn.Query(ctx, "SELECT name FROM system.columns WHERE "+w.at(w.s.base+"_progress"), func(row []any) error {
		there, has = true, has || row[0] == sequenceColumn.name
		return nil
	})
	return there && !has, w.fail(ctx, "looking at the table of progress", err)
}

// addSequence gives the table of progress of a former release the column that it lacks.
func (w *writer) addSequence(ctx context.Context) error {
	old, err := w.unnamed(ctx)
	if err != nil || !old {
		return err
	}
	statement := "ALTER TABLE " + w.s.progress() + " ADD COLUMN `" + sequenceColumn.name + "` " + sequenceColumn.kind
	err = w.conn.Exec(ctx, statement)
	var told *chclient.Exception
	if !errors.As(err, &told) {
		return w.fail(ctx, "adding a column to the table of progress", err)
	}
	if told.Code == 15 || told.Code == 44 {
		return codes.New(codes.SinkUnavailable, "%s: another owner has just added a column to the table of progress", w.s.name)
	}
	return codes.New(codes.SinkInvalid, "%s: the table of progress is one of a former release, and this user may not change it (%s): have somebody run:\n%s;", w.s.name, short(told.Error()), statement)
}

// stand is what the progress tells of a partition: the highest token, its rows and its sequence, and the rows under the highest token below ours.
type stand struct {
	token, rows uint64
	sequence    string
	ours        bool
	former      uint64
}

// stands reads the progress of partitions.
func (w *writer) stands(ctx context.Context, parts []int32) (map[int32]stand, error) {
	out := map[int32]stand{}
	if len(parts) == 0 {
		return out, nil
	}
	query := "SELECT partition, fence_token, max(rows_published), max(sequence) FROM " + w.s.progress() + " WHERE " + w.of(parts) + " GROUP BY partition, fence_token ORDER BY partition, fence_token"
	err := w.conn.Query(ctx, query, func(row []any) error {
		partition, token, rows := int32(row[0].(int64)), row[1].(uint64), row[2].(uint64)
		s := out[partition]
		s.token, s.rows, s.sequence = token, rows, row[3].(string) // in order: the last is the highest
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
// The sequence is compared before and after: of two owners who come at the same time, at least one sees the other's.
func (w *writer) takeOver(ctx context.Context) (map[int32]int64, error) {
	parts := slices.Compact(slices.Sorted(slices.Values(w.to.Partitions)))
	before := map[int32]stand{} // as it was when we came
	for round := 0; ; round++ {
		if err := w.sameSequence(ctx); err != nil {
			return nil, err
		}
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
			switch s := found[p]; {
			case !s.ours || !before[p].ours && s.former > s.rows:
				claims[p] = s.former
			case s.sequence == "" && w.sequence != "":
				claims[p] = s.rows
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

// sameSequence refuses a run that stands there as another sequence. Who names none keeps what stands, and so does who finds the name of a former release: its
// owners may still come.
func (w *writer) sameSequence(ctx context.Context) error {
	w.sequence = w.to.Sequence
	other := ""
	err := w.conn.Query(ctx, "SELECT DISTINCT sequence FROM "+w.s.progress()+" WHERE run_id = "+chclient.Quote(w.to.RunID)+" AND sequence != '' ORDER BY sequence", func(row []any) error {
		switch found := row[0].(string); {
		case w.to.Sequence == "" || found == sinks.FormerSequence(w.to.Sequence):
			w.sequence = found
		case !sinks.SameSequence(found, w.to.Sequence):
			other = found
		}
		return nil
	})
	if err != nil || other == "" {
		return w.fail(ctx, "comparing the sequence", err)
	}
	where := " DELETE WHERE run_id = " + chclient.Quote(w.to.RunID)
	return codes.New(codes.SinkInvalid, "%s: the rows of run %q that stand there are of another sequence (%s) than these (%s), of another flow, input or store, and their numbers say nothing about each other: "+
		"name another table, or give the run another id; to give up what stands of it, stop it everywhere and run:\nALTER TABLE %s%s;\nALTER TABLE %s%s;",
		w.s.name, w.to.RunID, other, w.to.Sequence, w.s.rows(), where, w.s.progress(), where)
}

// storage is what changes when the table of rows is made anew.
func (w *writer) storage(ctx context.Context) (text string, err error) {
	err = w.conn.Query(ctx, "SELECT "+w.identity+" FROM system.tables WHERE "+strings.Replace(w.at(w.s.base+"_rows"), "table =", "name =", 1), func(row []any) error {
		text = row[0].(string)
		return nil
	})
	return text, w.fail(ctx, "looking at the table of rows", err)
}

// remember notes which table of rows was opened. Servers before 20.x know a table by when it was made only.
func (w *writer) remember(ctx context.Context) (err error) {
	w.identity = "toString(metadata_modification_time)"
	err = w.conn.Query(ctx, "SELECT name FROM system.columns WHERE database = 'system' AND table = 'tables' AND name = 'uuid'", func([]any) error {
		w.identity = "concat(toString(uuid), toString(metadata_modification_time))"
		return nil
	})
	if err != nil {
		return w.fail(ctx, "looking at what the server tells of tables", err)
	}
	w.stored, err = w.storage(ctx)
	return err
}

// sameTable says whether the table of rows is still the one that was opened. Rows behind those that went with the other one would hide that they are missing.
func (w *writer) sameTable(ctx context.Context) error {
	now, err := w.storage(ctx)
	if err == nil && now != w.stored {
		err = codes.New(codes.SinkUnavailable, "%s: the table of rows was made anew or changed; what stands is read again", w.s.name)
	}
	return err
}

// takeBack lowers at to the rows that are still there, where the last one is gone: the table was emptied, or made anew. What is given again replaces itself, so
// the progress stays as it is. Of revisions, whose table is not ordered by numbers, it is asked whether there are any.
func (w *writer) takeBack(ctx context.Context, at map[int32]int64) error {
	last := map[int32]int64{}
	for p, n := range at {
		if n > 0 {
			last[p] = n - 1
		}
	}
	if len(last) == 0 {
		return nil
	}
	if w.to.Revised {
		err := w.conn.Query(ctx, "SELECT run_id FROM "+w.s.rows()+" WHERE run_id = "+chclient.Quote(w.to.RunID)+" LIMIT 1", func([]any) error { clear(last); return nil })
		for p := range last {
			at[p] = 0
		}
		return w.fail(ctx, "looking for the last rows", err)
	}
	of := func(form string) string {
		var any []string
		for p, n := range last {
			any = append(any, fmt.Sprintf(form, p, n))
		}
		slices.Sort(any)
		return " FROM " + w.s.rows() + " WHERE run_id = " + chclient.Quote(w.to.RunID) + " AND (" + strings.Join(any, " OR ") + ")"
	}
	err := w.conn.Query(ctx, "SELECT DISTINCT partition"+of("partition = %d AND row_number = %d"), func(row []any) error { delete(last, int32(row[0].(int64))); return nil })
	if err != nil || len(last) == 0 {
		return w.fail(ctx, "looking for the last rows", err)
	}
	query := "SELECT partition, max(row_number)" + of("partition = %d AND row_number < %d") + " GROUP BY partition"
	for p, n := range last {
		at[p], w.lost[p] = 0, n
	}
	err = w.conn.Query(ctx, query, func(row []any) error {
		// A block that was cut off by the end of a server may be there in part.
		at[int32(row[0].(int64))] = max(0, row[1].(int64)+1-maxBlockRows)
		return nil
	})
	return w.fail(ctx, "looking for the last rows", err)
}

// newest is STALE_FENCE when another owner has come.
func (w *writer) newest(found map[int32]stand) error {
	for p, s := range found {
		if s.token > w.to.Token {
			return sinks.Overtaken(w.s.name, w.to, p)
		}
	}
	return nil
}
