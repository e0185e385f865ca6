package sources_test

import (
	"slices"
	"testing"

	"github.com/weirstream/weir/sources"
)

func shard(n int32, parents ...int32) sources.Shard {
	return sources.Shard{Partition: n, Parents: parents}
}

// Which shards are worked on: each case lists the shards that the log holds and what the run has done.
func TestEligible(t *testing.T) {
	t.Parallel()
	type done = map[int32]sources.Progress
	split := []sources.Shard{shard(0), shard(1, 0), shard(2, 0)}
	merged := append(slices.Clone(split), shard(3, 1, 2))
	for _, test := range []struct {
		name       string
		shards     []sources.Shard
		done       done
		work, gone []int32
	}{
		{"a new run begins at the roots", merged, done{}, []int32{0}, nil},
		{"a closed shard is not a read one", split, done{0: sources.Reading}, []int32{0}, nil},
		{"children come after their parent", split, done{0: sources.Finished}, []int32{1, 2}, nil},
		{"a merge waits for both parents", merged, done{0: sources.Finished, 1: sources.Finished, 2: sources.Reading}, []int32{2}, nil},
		{"and then begins", merged, done{0: sources.Finished, 1: sources.Finished, 2: sources.Finished}, []int32{3}, nil},
		{"a parent that was trimmed before it was read", split[1:], done{}, []int32{1, 2}, nil},
		{"a finished parent that was trimmed", split[1:], done{0: sources.Finished, 1: sources.Reading}, []int32{1, 2}, nil},
		{"a parent that was trimmed while it was read", split[1:], done{0: sources.Reading}, nil, []int32{0}},
		{"all done", merged, done{0: sources.Finished, 1: sources.Finished, 2: sources.Finished, 3: sources.Finished}, nil, nil},
	} {
		work, gone := sources.Eligible(test.shards, func(p int32) sources.Progress { return test.done[p] })
		if !slices.Equal(work, test.work) || !slices.Equal(gone, test.gone) {
			t.Errorf("%s: work on %v, gone %v; want %v and %v", test.name, work, gone, test.work, test.gone)
		}
	}
}
