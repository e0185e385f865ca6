// Package sourcetest holds what tests of sources and of their users share:
//
//   - [Run], the conformance suite that every [sources.Source] passes, by the features that it declares;
//   - [Log], a source in memory that a test scripts: records, holes, retention, failures at a chosen record, empty answers,
//     bounded or endless, and cuts and interleavings drawn from a seed.
//
// A Log gives each batch its own memory and overwrites it when the batch is released, so that whoever keeps a slice for too long
// reads poison, and the race detector sees it. It counts the batches that are out, so that a test can ask for a leak.
//
// A Log has no clock of its own but Config.MaxWait, a timer, and starts no goroutine; it works inside a testing/synctest bubble
// when it is made there.
package sourcetest
