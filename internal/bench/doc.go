// Package bench compares weir with the same work written by hand. `make bench` runs it.
//
// Each benchmark runs its contestants in turns within one process, several times, and reports the median of the ratios of the pairs:
// what another process takes from the machine meanwhile, it takes from both. Costs are CPU time of the whole process, the garbage
// collector's included; the throughput of whole pipelines is compared by wall time too.
package bench
