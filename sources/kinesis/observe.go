package kinesis

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/weirstream/weir/sources"
)

var _ sources.Observer = (*Stream)(nil)

// Observe implements [sources.Observer]: how far the shards that are read here at present are behind their ends, as Kinesis has said with the last
// page of each. It asks nothing, and never fails. Positions cannot be subtracted from each other, so there are no extents.
func (s *Stream) Observe(context.Context) (sources.Observation, error) {
	seen := s.lags.all()
	return sources.Observation{Info: sources.Info{Name: "kinesis:" + s.cfg.Stream, Partitions: slices.Sorted(maps.Keys(seen))}, Lags: seen}, nil
}

// lags are what was said of the shards that are read.
type lags struct {
	mu sync.Mutex
	of map[int32]said
}

// said is what Kinesis has said with a page, and who read it: a shard may be opened anew before the reader before was closed.
type said struct {
	by  *shard
	lag sources.Lag
}

func (l *lags) note(sh *shard, lag sources.Lag) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.of == nil {
		l.of = map[int32]said{}
	}
	l.of[sh.number] = said{sh, lag}
}

func (l *lags) forget(shards []*shard) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sh := range shards {
		if l.of[sh.number].by == sh {
			delete(l.of, sh.number)
		}
	}
}

func (l *lags) all() map[int32]sources.Lag {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[int32]sources.Lag, len(l.of))
	for n, s := range l.of {
		all[n] = s.lag
	}
	return all
}
