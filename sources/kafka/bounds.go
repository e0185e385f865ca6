package kafka

import (
	"context"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// Bounds are where a partition begins and ends: the first position that the log still has, and the one after its last record or
// transaction marker, committed or not.
type Bounds struct{ Start, End record.Position }

// Bounds asks what the topic is and where every partition begins and ends, over one connection. The start is asked for first, so that it is
// not behind the end. Errors as Info.
func (s *Source) Bounds(ctx context.Context) (sources.Info, map[int32]Bounds, error) {
	q, err := s.session()
	if err != nil {
		return sources.Info{}, nil, err
	}
	defer q.Close()
	t, err := q.Find(ctx)
	if err != nil {
		return sources.Info{}, nil, err
	}
	within, cancel := context.WithTimeout(ctx, q.StartTimeout)
	defer cancel()
	starts, err := q.offsets(within, t.Partitions, startOffset, anyRecord)
	if err != nil {
		return sources.Info{}, nil, q.Unreachable(ctx, err)
	}
	ends, err := q.offsets(within, t.Partitions, endOffset, anyRecord)
	if err != nil {
		return sources.Info{}, nil, q.Unreachable(ctx, err)
	}
	bounds := make(map[int32]Bounds, len(ends))
	for p, end := range ends {
		bounds[p] = Bounds{Start: record.Offset(starts[p]), End: record.Offset(end)}
	}
	return sources.Info{Name: s.cfg.Topic, ID: t.ID.String(), Partitions: t.Partitions}, bounds, nil
}
