// Package clickhouse publishes rows into ClickHouse, over its native protocol.
//
// A sink named results has two tables and a view, which is what readers read:
//
//	results_rows                                      results_progress
//	run_id, partition, row_number  ORDER BY           run_id, partition, fence_token  ORDER BY
//	event_time   DateTime                             rows_published  UInt64
//	event_nanos  Int64                                sequence        String
//	event_id, event_key  String
//	version      UInt64
//	one Nullable(Float64) column for each output
//
// Both are ReplacingMergeTree, by version and by rows_published. ClickHouse has no transactions; rows are staged and then published:
//
//  1. The rows are inserted, with the owner's fence token as their version. Nobody sees them: the view shows the rows below rows_published.
//  2. One block of results_progress moves rows_published on, for all partitions at once. A block of one table without partitions stands whole or not at all.
//  3. The highest token is read. If it is not ours, another owner has come, and the view goes by his rows_published: STALE_FENCE.
//
// # What it promises
//
//   - Readers of the view see each row once, and a publication whole. Copies of a row, after a lost answer or from a stale owner, have the same key; of them the one
//     with the highest token counts, in the view at once (FINAL) and on the disk after a merge. The server's own
//     deduplication of blocks is switched off for our session: it would leave out rows that were deleted meanwhile and are given again.
//   - An owner that was taken over changes nothing that the view shows. While an owner takes over, for the time between two statements, rows that the former one
//     publishes at that very moment may be seen and then hidden until the new owner has adopted or written them.
//   - The sequence (sinks.Target.Sequence) is kept with the claim of an owner, and compared before it and after it; another one is refused.
//   - A partition whose last row is gone when the target is opened, because the table was dropped, emptied or lost a part, is filled again from the journal, from the last row on that is there; readers
//     see it grow. What goes while a writer is at work is noticed when the table was made anew, before rows are shown. Who removes rows leaves the last one of each partition.
//   - Who reads results_rows instead of the view, with FINAL, sees each row once too, and sometimes before its publication is whole; without FINAL he sees copies.
//
// With Target.Revised, results_rows is ordered by (run_id, event_key, event_nanos), the version is the revision first and counts row numbers down second, and the view shows the row
// with the highest revision as soon as it stands: a revision that waited for its publication would hide the one that it replaces. Of equal revisions the first counts. A stale owner's rows are then the same
// rows as those of the new one.
//
// event_time has seconds, as DateTime has, between 1970 and 2106; what is outside stands at the nearer end. event_nanos is exact. Ids and keys may be any bytes.
//
// Only what the server calls done is promised: it answers before its disk has the bytes, unless fsync_after_insert says otherwise. Over several replicas, the
// user's profile needs insert_quorum and select_sequential_consistency, or a lagging replica would tell too little of what stands; the result is copies, which merge.
package clickhouse
