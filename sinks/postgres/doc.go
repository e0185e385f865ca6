// Package postgres publishes rows into a table of a PostgreSQL database, with a second table beside it that tells what stands.
//
//	results                                        results_progress
//	run_id, partition, row_number  primary key     run_id, partition  primary key
//	event_time   timestamptz                       rows_published     bigint
//	event_nanos  bigint                            fence_token        bigint
//	event_id, event_key  text                      sequence           text
//	one double precision column for each output
//
// A table of late events (sinks.Target.Entries) has a column entry of type json in place of event_id, event_key and the outputs.
//
// # What it promises
//
//   - A publication is one transaction: it locks the progress of its partitions, compares the fence token, copies the rows and moves the progress on.
//     So no row is there twice, nothing is there by half, and an owner that was taken over is refused with STALE_FENCE.
//   - Where the run's journal is in the same database (Sink.Within; the databases are compared, not their URLs), the rows of an epoch are written in the
//     transaction of the journal itself, by its role: an epoch is never seen in one of them and not in the other.
//   - Rows that are revisions (sinks.Target.Revised) are keyed by run_id, event_key and event_nanos instead: they are copied into a temporary table
//     and merged, so that of one key and time the row with the highest revision stands; an equal or a lower one that comes later is left out.
//   - The columns are checked when the target is opened, against the flow's outputs: types, the key, and this role's rights. The tables are created
//     only when Config.Create says so; otherwise the error has the statements. More columns do no harm if they have a default or may be null.
//   - The sequence (sinks.Target.Sequence) stands beside the progress of its run, and another one is refused, under a lock of the run. A table of progress of a former release gets the column
//     when it is opened with Config.Create by its owner; otherwise the error has the statement.
//   - Rows may be deleted from the table by whoever has the right; they do not come back, but for those behind the last row of a partition that is left. The progress has to stay.
//   - A table that was dropped, emptied or made anew while the progress stands is filled again from the journals: at opening, where the last row of a partition is gone (of revisions, where the run has no
//     row left), and under a writer that is at work, which compares the storage of the table in each transaction.
//   - event_time has microseconds, as PostgreSQL has, cut off; event_nanos is exact. A text that PostgreSQL cannot hold (a NUL, broken UTF-8) becomes
//     \x and its bytes in hex, and so does one that begins with \x itself.
//
// An owner that is stopped inside its transaction is ended by the server after Config.IdleTimeout, one that is stopped while it copies after
// Config.StatementTimeout; a heir waits that long at most.
package postgres
