// Package controltest tests stores of the control plane, and what uses them.
//
//   - Journal and Control are the conformance suites, of the journal and of the rest: every store passes all of both, the same way. Control drives
//     a store through a Harness, which also reaches into it (ends terms, plants damage, loses answers). It records the calls of concurrent
//     clients and checks that the history is linearizable.
//   - Memory is a store in memory for tests and simulation, with faults that can be injected into every operation. It is also the model
//     that the suite compares a journal with.
//   - Workload makes epochs out of a seed, and Read and Diff compare what two journals hold. A test that kills a process needs no
//     more: whatever epoch the store stands at, it must hold what the model holds after that many epochs.
package controltest
