package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
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

// observe asks for the start of every partition first, and for the end last, so that they stand in that order whatever happens between.
func (q session) observe(ctx context.Context) (sources.Observation, error) {
	t, err := q.Find(ctx)
	if err != nil {
		return sources.Observation{}, err
	}
	within, cancel := context.WithTimeout(ctx, q.StartTimeout)
	defer cancel()
	var starts, stable, ends map[int32]int64
	for _, ask := range []struct {
		into      *map[int32]int64
		which     int64
		isolation int8
	}{{&starts, startOffset, anyRecord}, {&stable, endOffset, committedRecord}, {&ends, endOffset, anyRecord}} {
		if *ask.into, err = q.offsets(within, t.Partitions, ask.which, ask.isolation); err != nil {
			return sources.Observation{}, q.Unreachable(ctx, err)
		}
	}
	o := sources.Observation{
		Info:    sources.Info{Name: q.Topic, ID: t.ID.String(), Partitions: t.Partitions},
		Extents: make(map[int32]sources.Extent, len(ends)),
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
