// Package kafka writes records to a Kafka topic as a sinks.Producer, over franz-go.
//
// # What it promises
//
//   - A write counts when all in-sync replicas have it. The producer is idempotent: a write whose answer is lost is repeated by the
//     client under the same sequence number, and there is one copy. That ends with the process: a producer that is started again
//     writes again what it is given again.
//   - One write is under way at each broker at a time. Kafka forgets a producer whose last record's timestamp is older than
//     producer.id.expiration.ms, a day, as those of a replay are: when the broker starts again, and every few minutes. A connection that is
//     lost then neither doubles nor reorders anything. A broker that crashes after a write and before its answer may then have that one
//     write twice, one copy right behind the other.
//   - Records of one key stay in the order in which they were handed over. When one fails, none that was handed over after it is
//     written to the same partition: there are no gaps.
//   - The partition is that of Kafka's own clients for the key (murmur2): record.PartitionOf. A nil key goes to partition 0.
//   - A nil value is written as null (a tombstone), an empty one as empty; the same for keys and header values.
//   - Arrival becomes the timestamp. Kafka keeps whole milliseconds; what is finer is cut off.
//
// The first error is kept and returned by every later Produce and Flush: a producer that failed stays failed.
//
// # Bounds
//
// What is handed over and not written yet is bounded in bytes and in records; Produce waits at the bound. Brokers that write nothing
// for Config.StallTimeout while something waits are BROKER_UNREACHABLE. The client's own delivery timeout would not do: it counts from the record's
// timestamp, which a replay sets to the past.
//
// Batches hold at most 1 MB, Kafka's default limit. A larger record is written alone, up to the limit of its topic
// (max.message.bytes); one beyond it is RECORD_TOO_LARGE.
package kafka
