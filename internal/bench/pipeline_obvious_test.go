package bench

import (
	"container/heap"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/partitions"
)

// tick is what the obvious loop decodes into.
type tick struct {
	EventID    string  `json:"event_id"`
	EventTime  string  `json:"event_time"`
	Instrument string  `json:"instrument"`
	Venue      string  `json:"venue"`
	Close      float64 `json:"close"`

	at time.Time
}

// tickHeap is a heap of ticks by event time and id.
type tickHeap []tick

func (h tickHeap) Len() int { return len(h) }
func (h tickHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].EventID < h[j].EventID
}
func (h tickHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push and Pop are heap.Interface's.
func (h *tickHeap) Push(x any) { *h = append(*h, x.(tick)) }

// Pop takes the last one.
func (h *tickHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// obviousPartition is the work as it is written at first: encoding/json into a struct, time.Parse, sets of strings, container/heap, a
// map of averages. Of its ids it keeps two generations, so that it forgets too.
type obviousPartition struct {
	next           int64
	max, watermark time.Time
	seen, older    map[string]struct{}
	ends           time.Time
	waiting        tickHeap
	averages       map[string]*obviousEMA
	ids            []string
	rows           []byte
	n              partitions.Counts
}

type obviousEMA struct {
	N         int
	Sum, Last float64
}

func newObviousPartition() *obviousPartition {
	return &obviousPartition{seen: map[string]struct{}{}, older: map[string]struct{}{}, averages: map[string]*obviousEMA{}}
}

func (o *obviousPartition) take(r *kgo.Record) {
	o.next = r.Offset + 1
	o.n.Records++
	var t tick
	var err error
	if err = json.Unmarshal(r.Value, &t); err == nil {
		t.at, err = time.Parse(time.RFC3339Nano, t.EventTime)
	}
	if err != nil {
		o.n.Omitted++
		return
	}
	if t.Venue != tickVenue {
		o.n.Filtered++
		return
	}
	if o.knows(t.EventID) {
		o.n.Duplicates++
		return
	}
	if t.at.After(r.Timestamp.Add(tickSkew)) {
		o.n.Future++
		return
	}
	o.remember(t)
	if t.at.Before(o.watermark) {
		o.n.Late++
		return
	}
	o.n.Consumed++
	heap.Push(&o.waiting, t)
	if t.at.After(o.max) {
		o.max = t.at
		o.watermark = t.at.Add(-tickLateness)
		o.release()
	}
}

func (o *obviousPartition) knows(id string) bool {
	if _, ok := o.seen[id]; ok {
		return true
	}
	_, ok := o.older[id]
	return ok
}

func (o *obviousPartition) remember(t tick) {
	if o.ends.IsZero() || o.watermark.After(o.ends) {
		o.ends = t.at.Add(tickHorizon)
		o.seen, o.older = map[string]struct{}{}, o.seen
	}
	o.seen[t.EventID] = struct{}{}
	o.ids = append(o.ids, t.EventID)
}

func (o *obviousPartition) release() {
	for len(o.waiting) > 0 && o.waiting[0].at.Before(o.watermark) {
		o.row(heap.Pop(&o.waiting).(tick))
	}
}

// row writes a row in weir's form, so that the results can be compared.
func (o *obviousPartition) row(t tick) {
	e := o.averages[t.Instrument]
	if e == nil {
		e = &obviousEMA{}
		o.averages[t.Instrument] = e
	}
	o.n.Outputs++
	d := binary.BigEndian.AppendUint64(o.rows, uint64(t.at.UnixNano()))
	d = append(binary.AppendUvarint(d, uint64(len(t.EventID))), t.EventID...)
	d = append(binary.AppendUvarint(d, uint64(len(t.Instrument))), t.Instrument...)
	if v, ok := e.step(t.Close); ok {
		d = binary.BigEndian.AppendUint64(append(d, 1), math.Float64bits(v))
	} else {
		d = append(d, 0)
	}
	o.rows = d
}

func (e *obviousEMA) step(x float64) (float64, bool) {
	e.N++
	switch {
	case e.N < tickEMA:
		e.Sum += x
		return 0, false
	case e.N == tickEMA:
		e.Last = (e.Sum + x) / tickEMA
	default:
		e.Last += float64((x - e.Last) * (2.0 / (tickEMA + 1)))
	}
	return e.Last, true
}

func (o *obviousPartition) share(tb testing.TB, partition int64) share {
	state, err := json.Marshal(map[string]any{"averages": o.averages, "waiting": o.waiting})
	if err != nil {
		tb.Fatal(err)
	}
	s := share{partition: partition, next: o.next, ids: []byte(strings.Join(o.ids, "\n")), state: state, rows: o.rows}
	if !o.max.IsZero() {
		s.until, s.forget = o.max.UnixNano(), o.watermark.Add(-tickHorizon).UnixNano()
	}
	return s
}

// runObvious is the obvious loop, with the same journal.
func runObvious(tb testing.TB, t topic, w *stopwatch) outcome {
	k := openBookkeeping(tb)
	var parts [topicPartitions]*obviousPartition
	for i := range parts {
		parts[i] = newObviousPartition()
	}
	commit := func() {
		var shares []share
		for i, p := range parts {
			shares = append(shares, p.share(tb, int64(i)))
			p.ids, p.rows = nil, nil
		}
		k.commit(shares)
	}
	cl := bareClient(tb, t)
	defer cl.Close()
	pollAll(tb, cl, t.records, w.begin, func(p int32, records []*kgo.Record) {
		for _, r := range records {
			parts[p].take(r)
		}
		if k.due() {
			commit()
		}
	})
	for _, p := range parts {
		for len(p.waiting) > 0 {
			p.row(heap.Pop(&p.waiting).(tick))
		}
	}
	commit()
	w.end()
	out := outcome{hash: k.hash()}
	for _, p := range parts {
		out.counts = add(out.counts, p.n)
	}
	return out
}
