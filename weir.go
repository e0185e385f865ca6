// Package weir is the root of an actor-model stream processor: batch, replay and stream give the same bits.
//
// The library is its packages; this one holds only the example of a flow that is run without a broker.
//
//   - [github.com/weirstream/weir/flow] compiles a flow file into a plan, and takes operators of your own.
//   - [github.com/weirstream/weir/partitions] is the pure machine of one partition.
//   - [github.com/weirstream/weir/batch] runs a plan over bounded input, [github.com/weirstream/weir/actors] over a live log.
//   - [github.com/weirstream/weir/sources] and [github.com/weirstream/weir/control] are the ports to bring your own log or store.
//   - [github.com/weirstream/weir/record] has the canonical JSON that every hash is taken of.
//
// docs/architecture.md has the picture and a reading order.
package weir
