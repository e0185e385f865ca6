package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/postgres"
	"github.com/weirstream/weir/sinks/sinktest"
)

// TestEntries: late events go the same way as rows.
func TestEntries(t *testing.T) {
	sinktest.RunEntries(t, func(t testing.TB) sinktest.Place {
		db := pgtest.Database(t, nil)
		return sinktest.Place{
			PlainText: true,
			Sink: func(hook func(string) error) sinks.Sink {
				return sink(t, db.Super, func(c *postgres.Config) { c.Hook = hook })
			},
			Seen: func(t testing.TB, run string) (out []sinktest.Seen) {
				conn := pgtest.Connect(t, db.Super)
				var s sinktest.Seen
				rows, _ := conn.Query(t.Context(), `SELECT partition, row_number, entry::text FROM results WHERE run_id = $1 ORDER BY row_number`, run)
				_, err := pgx.ForEachRow(rows, []any{&s.Partition, &s.Number, &s.Text}, func() error {
					out = append(out, s)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return out
			},
		}
	})
}

// TestEntriesAsTheyAre: a late event of any bytes is taken, whatever its key and value are, and can be asked about with the operators of JSON.
func TestEntriesAsTheyAre(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t, nil)
	late := sinks.Target{RunID: "r", Partitions: []int32{0}, Entries: true}
	e := sinks.NewEntries("r", 0, 0)
	for _, bytes := range []string{"", "\x00", `\x00`, "\xff\xfe", "a\x00b", "\u2028"} {
		e.Add(&partitions.Quarantined{Reason: partitions.ReasonLate, EventID: "e" + bytes, Key: []byte(bytes), Value: []byte(bytes)})
	}
	publish(t, open(t, sink(t, db.Super, nil), late), e.Rows)
	conn := pgtest.Connect(t, db.Super)
	var n, reasons int
	var number string
	err := conn.QueryRow(t.Context(), `SELECT count(*), count(*) FILTER (WHERE entry->>'reason' = 'LATE'), max(entry->>'entry') FROM results WHERE run_id = 'r'`).Scan(&n, &reasons, &number)
	if err != nil || n != 6 || reasons != 6 || number != "5" {
		t.Errorf("%d entries, %d late, the last is %s: %v", n, reasons, number, err)
	}
}

// TestATableOfRowsTakesNoEntries: rows and late events need tables of different forms; the refusal names the column.
func TestATableOfRowsTakesNoEntries(t *testing.T) {
	t.Parallel()
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprint("entries first ", first), func(t *testing.T) {
			t.Parallel()
			db := pgtest.Database(t, nil)
			s := sink(t, db.Super, nil)
			rowsTo := sinks.Target{RunID: "r", Outputs: sinktest.Outputs, Partitions: []int32{0}}
			late := sinks.Target{RunID: "late", Partitions: []int32{0}, Entries: true}
			to, other, column := rowsTo, late, "event_key"
			if first {
				to, other, column = late, rowsTo, "entry"
			}
			open(t, s, to)
			if _, err := s.Open(t.Context(), other); !codes.Has(err, codes.SinkInvalid) || !strings.Contains(err.Error(), column) {
				t.Errorf("%v, want the column %s to be named", err, column)
			}
			if err := s.Probe(t.Context(), other); !codes.Has(err, codes.SinkInvalid) {
				t.Errorf("a look finds %v", err)
			}
		})
	}
}
