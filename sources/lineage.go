package sources

import "context"

// Shard is a partition of a log that is split and merged as it goes on: it is closed one day, and its keys go on in its children.
type Shard struct {
	Partition int32
	// Parents are the partitions that it goes on from, whether the log still holds them or not; none, one or two.
	Parents []int32
	// Closed: no record is written to it any more.
	Closed bool
	// Holds says whether the records of a key are written to it, while it is open.
	Holds func(key string) bool
}

// Lineage is a log of shards.
type Lineage interface {
	// Lineage lists every shard that the log holds, closed ones included, by partition. It is complete or fails.
	Lineage(ctx context.Context) ([]Shard, error)
}

// Progress is how far a run has come with a shard.
type Progress uint8

// The stages.
const (
	Unread   Progress = iota // the run has never read it
	Reading                  // the run has begun, and not come to its end
	Finished                 // it was closed, and the run has processed it to the end
)

// Eligible says which shards there are to work on, and which the log holds no longer although the run was not done with them (gone).
//
// A shard is worked on until it is Finished, closed ones too: a closed shard is not a read one. A child waits until each of its parents is Finished,
// or is no longer held and was never read; so the records of a key come in order. A child of a parent that is gone waits: what the
// parent held is lost, which nobody but an operator may pass over.
func Eligible(shards []Shard, progress func(partition int32) Progress) (work, gone []int32) {
	held := make(map[int32]bool, len(shards))
	for _, s := range shards {
		held[s.Partition] = true
	}
	missing := map[int32]bool{}
	for _, s := range shards {
		if progress(s.Partition) == Finished {
			continue
		}
		ready := true
		for _, p := range s.Parents {
			switch at := progress(p); {
			case at == Finished || at == Unread && !held[p]:
			case at == Reading && !held[p]:
				ready, missing[p] = false, true
			default:
				ready = false
			}
		}
		if ready {
			work = append(work, s.Partition)
		}
	}
	for p := range missing {
		gone = append(gone, p)
	}
	return work, gone
}
