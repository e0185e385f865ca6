// Package checkpoint is the port of blob stores: bytes under the name of their SHA-256.
//
// A blob never changes: its name is its content. Writing the same bytes again is harmless, whoever does it, and a reader can tell
// by itself whether what it got is what was written. Every store verifies on every read; package checkpointtest is the suite that
// each one passes.
//
// The order that keeps references whole: the blob first, durable, then whatever refers to it. A process that is killed in between
// leaves a blob that nobody refers to, never a reference to a blob that is not there.
package checkpoint
