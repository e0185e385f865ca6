// Package logfile reads and writes arrival logs: what arrived, when and in which order, with an audit of the faults that were put in.
//
// # Format arrival-log/1
//
// A UTF-8 text file; every line, the last one too, ends with a line feed and is one document in canonical JSON (see package record).
// The lines, in this order:
//
//		{"fields":{"id":F,"key":F,"time":F,"unit":U},"format":"arrival-log/1","schedule_hash":H,"seed":N,"snapshot_hash":H,"type":"header"}
//		{"event_id":S,"kind":K,"n":N,…,"type":"fault"}
//		{"arrival_time":T,"event_id":S,…,"key":S,"n":N,…,"type":"arrival","value":V}
//		{"arrivals":N,"faults_applied":N,"log_hash":H,"type":"end"}
//
//	  - The header is the first line and the end is the last; between them stand arrivals and faults.
//	  - An arrival is numbered by n from 0. arrival_time is RFC 3339 in UTC, in whole milliseconds, and never goes back. key is a
//	    string or null. value is an object, or null for a tombstone. A reader keeps the value's bytes as they are.
//	  - An arrival that a fault touches lists the kinds in "faults", sorted. "pause_ms" is the wall time that the log stands still
//	    before the arrival, "failure_ms" the wall time for which the source fails before it.
//	  - A fault line is the audit of one fault that was applied. It stands before the arrival n that it touches and after the one before,
//	    and holds the fault's parameters, as far as it has them: count, domain_ms, values, wall_ms.
//	  - The end counts both, and log_hash is "sha256:" and the hex SHA-256 of all bytes before the end line.
//	  - A line is at most [MaxLine] bytes long.
//
// A file that differs in anything from this is refused with LOG_INVALID and the line. A log that was cut short has no end line; one
// that was changed does not match its hash, which is checked when the end is reached. Both the Reader and the Source do that check,
// and neither answers io.EOF before it has passed.
//
// # As a source
//
// [NewSource] presents a log as a bounded source of any number of partitions: an arrival belongs to the partition that Kafka's
// default partitioner chooses for its key, and positions count the arrivals of a partition from 0.
package logfile
