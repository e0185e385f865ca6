// Package controltest tests journals, and what uses them.
//
//   - Journal is the conformance suite: every store passes all of it, the same way.
//   - Memory is a journal in memory for tests and simulation, with faults that can be injected into every operation. It is also the model
//     that the suite compares a store with.
//   - Workload makes epochs out of a seed, and Read and Diff compare what two journals hold. A test that kills a process needs no
//     more: whatever epoch the store stands at, it must hold what the model holds after that many epochs.
package controltest
