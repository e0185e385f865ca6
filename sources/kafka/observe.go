package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

var (
	_ sources.Observer = (*Source)(nil)
	_ sources.Observer = (*reader)(nil)
)

// Observe implements [sources.Observer], over a connection of its own.
func (s *Source) Observe(ctx context.Context) (sources.Observation, error) {
	q, err := s.session()
	if err != nil {
		return sources.Observation{}, err
	}
	defer q.Close()
	return q.observe(ctx)
}

// Observe implements [sources.Observer], over the connections of the reader.
func (r *reader) Observe(ctx context.Context) (sources.Observation, error) {
	o, err := r.observe(ctx)
	if errors.Is(err, kgo.ErrClientClosed) {
		err = sources.ErrClosed
	}
	return o, err
}

// observe asks for the start of every partition first, and for the end last, so that they stand in that order whatever happens between. It fails
// only if no partition is answered.
func (q session) observe(ctx context.Context) (sources.Observation, error) {
	t, err := q.Find(ctx)
	if err != nil {
		return sources.Observation{}, err
	}
	within, cancel := context.WithTimeout(ctx, q.StartTimeout)
	defer cancel()
	unanswered := map[int32]error{}
	for _, p := range t.Leaderless {
		unanswered[p] = q.leaderless(p)
	}
	var starts, stable, ends map[int32]int64
	for _, ask := range []struct {
		into      *map[int32]int64
		which     int64
		isolation int8
	}{{&starts, startOffset, anyRecord}, {&stable, endOffset, committedRecord}, {&ends, endOffset, anyRecord}} {
		left := slices.DeleteFunc(slices.Clone(t.Partitions), func(p int32) bool { return unanswered[p] != nil })
		var failed map[int32]error
		*ask.into, failed = q.offsetsOfEach(within, left, ask.which, ask.isolation)
		if len(left) > 0 && len(failed) == len(left) {
			return sources.Observation{}, q.Unreachable(ctx, failed[left[0]])
		}
		for p, err := range failed {
			unanswered[p] = q.silent(p, err)
		}
	}
	o := sources.Observation{
		Info:       sources.Info{Name: q.Topic, ID: t.ID.String(), Partitions: t.Partitions},
		Extents:    make(map[int32]sources.Extent, len(ends)),
		Unanswered: unanswered,
	}
	var held []int32
	for p, end := range ends {
		o.Extents[p] = sources.Extent{Start: record.Offset(starts[p]), Stable: record.Offset(stable[p]), End: record.Offset(end)}
		if stable[p] < end {
			held = append(held, p)
		}
	}
	for p, h := range q.holds(within, held) {
		e := o.Extents[p]
		e.Hold = h
		o.Extents[p] = e
	}
	return o, nil
}

// leaderless is why nobody answers for a partition without a leader.
func (q session) leaderless(p int32) error {
	return codes.New(codes.BrokerUnreachable, "topic %q partition %d has no leader: its brokers are down, or are choosing one", q.Topic, p)
}

// silent is why a partition was not answered.
func (q session) silent(p int32, err error) error {
	var ke *kerr.Error
	code := codes.BrokerUnreachable
	switch {
	case q.Denied(err) != nil:
		code = codes.AccessDenied
	case errors.As(err, &ke):
		code = codes.BrokerRefused
	}
	return codes.New(code, "topic %q partition %d is not answered for: %w", q.Topic, p, err)
}

// holds finds out who keeps the last stable offset of partitions. That is detail: where the brokers do not say, or not to us, what they do not
// say is left out.
func (q session) holds(ctx context.Context, partitions []int32) map[int32]*sources.Hold {
	holds := make(map[int32]*sources.Hold, len(partitions))
	if len(partitions) == 0 {
		return holds
	}
	asked := kadm.TopicsSet{}
	for _, p := range partitions {
		holds[p] = &sources.Hold{Reason: sources.LSOBlocked}
		asked.Add(q.Topic, p)
	}
	adm := kadm.NewClient(q.Client)
	described, err := adm.DescribeProducers(ctx, asked)
	if err != nil && len(described) == 0 {
		return holds
	}
	holders := map[int64][]*sources.Hold{}
	var ids []int64
	for _, p := range described[q.Topic].Partitions {
		if first := oldest(p); first != nil && holds[p.Partition] != nil {
			h := holds[p.Partition]
			h.Since, h.By = time.UnixMilli(first.LastTimestamp), fmt.Sprintf("producer %d", first.ProducerID)
			holders[first.ProducerID] = append(holders[first.ProducerID], h)
			ids = append(ids, first.ProducerID)
		}
	}
	q.nameHolders(ctx, adm, ids, holders)
	return holds
}

// oldest is the producer whose transaction began first in a partition, or nil.
func oldest(p kadm.DescribedProducersPartition) *kadm.DescribedProducer {
	var first *kadm.DescribedProducer
	for _, a := range p.ActiveProducers {
		if a.CurrentTxnStartOffset >= 0 && (first == nil || a.CurrentTxnStartOffset < first.CurrentTxnStartOffset) {
			first = &a
		}
	}
	return first
}

// nameHolders puts transactional ids in the place of producer ids, with the times that only the coordinator of the transactions knows. A
// transaction that it does not know (it hangs for ever) keeps the producer id.
func (q session) nameHolders(ctx context.Context, adm *kadm.Client, ids []int64, holders map[int64][]*sources.Hold) {
	if len(ids) == 0 {
		return
	}
	listed, err := adm.ListTransactions(ctx, ids, nil)
	if err != nil && len(listed) == 0 {
		return
	}
	var names []string
	for _, l := range listed {
		if holders[l.ProducerID] != nil { // an older broker does not filter
			names = append(names, l.TxnID)
		}
	}
	if len(names) == 0 {
		return // asking for none asks for all
	}
	described, _ := adm.DescribeTransactions(ctx, names...) // what was not answered is not there
	for _, d := range described {
		for _, h := range holders[d.ProducerID] {
			h.By = d.TxnID
			if d.Err != nil || d.StartTimestamp <= 0 {
				continue
			}
			h.Since = time.UnixMilli(d.StartTimestamp)
			h.Ends = h.Since.Add(time.Duration(d.TimeoutMillis) * time.Millisecond)
		}
	}
}
