// Package checkpoint keeps cuts of runs: the port of blob stores, the manifest, and how a journal becomes a checkpoint and a checkpoint a run.
//
// # Blobs
//
// A blob never changes: its name is its content, the SHA-256. Writing the same bytes again is harmless, whoever does it, and a reader can tell
// by itself whether what it got is what was written. Every store verifies on every read; package checkpointtest is the suite that
// each one passes.
//
// The order that keeps references whole: the blob first, durable, then whatever refers to it. A process that is killed in between
// leaves a blob that nobody refers to, never a reference to a blob that is not there.
//
// # Checkpoints
//
//	pointer row (run, epoch)  ──names──▶  manifest  ──names──▶  state blobs
//	in the store, written last            canonical JSON        "core", "dedupe/…", "keys/…", "reorder/…" of each partition
//	under the lease of the run            and its own hash      shared by all checkpoints that have the same content
//
//	Saver         journal → checkpoint; costs what has changed
//	Load, Audit   the manifest against its pointer; every byte
//	Diff          what differs between two
//	CheckRestore  whether a checkpoint can be restored under a flow, with a verdict for each operator
//	Restorer      checkpoint → new run; the old one stays as it is
//	GC            what is dropped and removed, and why nothing that is needed is lost
//
// A checkpoint is named by its run and epoch. Nothing takes the latest one by itself, and what cannot be trusted is refused with
// CHECKPOINT_CORRUPT: there is no falling back, and no fresh start.
package checkpoint
