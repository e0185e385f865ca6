package sources

import (
	"context"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// Only is a view of one partition of a source, for a run that reads no other. It is the same log: Info has its name and ID, and is TOPIC_MISSING when
// the log does not have the partition. It observes if the source does.
func Only(s Source, partition int32) Source {
	o := only{s, partition}
	if _, ok := s.(Observer); ok {
		return onlyObserved{o}
	}
	return o
}

type only struct {
	source    Source
	partition int32
}

// Info implements Source.
func (o only) Info(ctx context.Context) (Info, error) {
	i, err := o.source.Info(ctx)
	if err != nil {
		return Info{}, err
	}
	if !slices.Contains(i.Partitions, o.partition) {
		return Info{}, codes.New(codes.TopicMissing, "%q has no partition %d; it has %d", i.Name, o.partition, len(i.Partitions))
	}
	return o.info(i), nil
}

func (o only) info(i Info) Info {
	i.Partitions = slices.DeleteFunc(slices.Clone(i.Partitions), func(p int32) bool { return p != o.partition })
	return i
}

// Open implements Source.
func (o only) Open(ctx context.Context, from map[int32]record.Position) (Reader, error) {
	for p := range from {
		if p != o.partition {
			return nil, codes.New(codes.Internal, "partition %d is opened through a view of partition %d", p, o.partition)
		}
	}
	r, err := o.source.Open(ctx, from)
	if err != nil {
		return nil, err
	}
	if _, ok := r.(Observer); ok {
		return onlyReader{r, o}, nil
	}
	return r, nil
}

func (o only) observe(ctx context.Context, by Observer) (Observation, error) {
	seen, err := by.Observe(ctx)
	if err != nil {
		return Observation{}, err
	}
	seen.Info = o.info(seen.Info)
	seen.Extents, seen.Lags, seen.Unanswered = one(seen.Extents, o.partition), one(seen.Lags, o.partition), one(seen.Unanswered, o.partition)
	return seen, nil
}

// one keeps what a map has of one partition.
func one[T any](m map[int32]T, partition int32) map[int32]T {
	if v, ok := m[partition]; ok {
		return map[int32]T{partition: v}
	}
	return nil
}

type onlyObserved struct{ only }

// Observe implements Observer.
func (o onlyObserved) Observe(ctx context.Context) (Observation, error) {
	return o.observe(ctx, o.source.(Observer))
}

type onlyReader struct {
	Reader
	only only
}

// Observe implements Observer.
func (r onlyReader) Observe(ctx context.Context) (Observation, error) {
	return r.only.observe(ctx, r.Reader.(Observer))
}
