package group

import (
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/sources"
)

// Assigner is sources.Assigner: it says which partitions this process works on. Handler is sources.Handler, which Member implements. They are
// declared beside the sources, so that an edge can offer an Assigner without knowing the engine.
type (
	Assigner = sources.Assigner
	Handler  = sources.Handler
)

// RunID is the run of one partition of a run that is spread over processes: RUN/N. It has its own lease (control.StreamLease), its own row
// in the journal and its own checkpoints.
func RunID(run string, partition int32) string { return control.PartID(run, partition) }

// PartitionOf is the partition of a run id made by RunID for a run; false when it is of none.
func PartitionOf(run, id string) (int32, bool) {
	whole, n, ok := control.PartOf(id)
	return n, ok && whole == run
}

// IsPart says whether a run id reads as that of a partition, RUN/N. Such an id is never given to a run by itself: whoever shares RUN out would take it
// for the run of partition N.
func IsPart(id string) bool {
	_, _, is := control.PartOf(id)
	return is
}
