// Package kafka reads a Kafka topic as a [sources.Source], over franz-go.
//
// # What it promises
//
// Partitions are read directly, without a consumer group: each one exactly from the position that the caller gives, never from
// anywhere else. Where a client would by default go to the nearest offset that still exists, this one stops:
//
//   - The position lies outside the log, or records between it and the first one delivered were removed: OFFSET_LOST, with the
//     position that was needed and those that the log has. It comes once, and the partition is not asked again.
//   - The topic was deleted and created again: TOPIC_RECREATED, also when the old position exists in the new log. Deleted: TOPIC_MISSING.
//   - A batch is damaged, or decompresses to more than Config.BatchBytes: POISON_BATCH, with the partition and the offset.
//
// A failure of one partition is a [sources.Fault] within the error, which says where the log goes on. Once that partition is paused the
// reader goes on with the others; it never asks for the failed one again.
//
// Input topics are never created. Only committed records are delivered (read_committed). A nil value (tombstone) stays nil, an empty
// one stays empty; the same for keys.
//
// # Positions
//
// Offsets are not dense: aborted transactions, transaction markers and compaction leave holes, also at the end of the log. The
// reader follows the fetch position, not "last offset + 1". A hole that no record follows is answered by a batch without records
// whose Next stands behind it, so that whoever compares positions with [Source.HighWaters] reaches the end.
//
// # How the topic stands
//
// [Source.Observe], and the same on a reader, says where each partition begins, up to where it is committed and where it ends, and which
// transaction, since when, keeps what is written from being delivered. A reader reads what it was opened with; with Config.Follow it ends
// with PARTITIONS_ADDED once the topic has more.
//
// # Empty answers
//
// Poll answers empty only when every partition that is not paused was asked and stands at the end of what is committed. While the
// brokers do not answer, Poll waits: the client tries again with back-off, and Config.OnOutage and the logger tell. An outage is
// therefore never mistaken for an idle log.
//
// # Pause
//
// Once Pause returns, only the Poll that is running may still deliver the partition. What was fetched before stays in the reader and
// is delivered first after Resume: nothing is thrown away and nothing is skipped.
//
// A partition that is paused goes on being fetched until the reader holds Config.FetchBytes of what is paused, and is left out of the
// fetches after that, if the pause lasts. So a pause of milliseconds costs nothing. A failure of a partition that is paused is told
// once it is resumed.
//
// # Memory
//
// A fetch is decoded into pooled memory that goes back when the last of its batches is released. Records alias it. One reader holds,
// beside what its caller holds, at most [Config.MemoryBound].
package kafka
