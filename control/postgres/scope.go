package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/control"
)

// checkScope refuses to make a run that would stand beside those of its own partitions, or beside the run of which it is one. Whoever makes one of these
// waits for the other here, until the end of the transaction, since a row that another transaction has not committed yet cannot be seen. A name that shares its hash with
// another one waits for nothing.
func checkScope(ctx context.Context, conn *pgx.Conn, id string) error {
	whole, _, part := control.PartOf(id)
	if !part {
		whole = id
	}
	b := &pgx.Batch{}
	b.Queue(`SELECT pg_advisory_xact_lock(hashtextextended('weir run ' || $1, 0))`, whole)
	var there []string
	b.Queue(`SELECT run_id FROM weir.journal WHERE run_id = $1 OR starts_with(run_id, $1 || '/')`, whole).Query(func(rows pgx.Rows) (err error) {
		there, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	return control.CheckScope(id, there)
}
