// Package handoff is how a run changes hands: a manifest that says where it stands, the checks of what a manifest claims, and the batch that
// takes a history in and leaves a run that the log continues.
//
// # The manifest
//
// Canonical JSON; hash covers all of it but itself. Positions and the fence token are decimal strings, times RFC 3339, null where there
// is nothing to say.
//
//	format          "weir-handoff/1"
//	kind            "OWNER"  where a run stands in its journal
//	                "BATCH"  where a stream continues the history that a batch has taken in
//	                "MARK"   where a topic ends: a history that holds everything before it can be continued there
//	run_id, fingerprint, group, epoch, fence_token, watermark
//	                of the run; null, "", 0 and null of a MARK
//	source          {"id", "name"}
//	partitions      ascending, each {"partition", "next", "high_water", "watermark"}: where the partition is read on, where its log ended
//	                when the manifest was made (null when nobody asked), how far its event time is closed
//	checkpoint      {"epoch", "manifest_hash", "run_id"} of the youngest that is kept, or null
//	history         {"id", "records"} of a BATCH, otherwise null
//	hash            "sha256:…"
//
// # A history that the log continues
//
//	mark ──▶ dump the history ──▶ FromHistory ──▶ a run that begins at the mark ──▶ weir run
//
// The positions are taken before the history is, so that a record is in the history, or behind the seam, or in both: what both have is skipped
// by its event id. FromHistory reads the history in (event time, event id) order, deals it to the topic's partitions as Kafka's default
// partitioner deals keys, and runs one machine for each partition; the state they end with is the one that the log is read on with, at
// exactly the position of the mark. Nothing is late within a history. After the seam lateness is judged as in every stream, by the watermark
// that the history has left.
//
// It commits as it goes, in epochs of bounded size, and each of them says that the history is open: such a run is refused by whoever would
// continue it with the log, and taken up where it stood by FromHistory. The seam comes with the last epoch, for all partitions at once.
package handoff
