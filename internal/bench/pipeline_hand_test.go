package bench

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/zeebo/xxh3"

	"github.com/weirstream/weir/partitions"
)

// fetchPool is pooled memory for fetches: the slices used last are used first.
type fetchPool struct {
	mu      sync.Mutex
	records [][]kgo.Record
	bytes   [][]byte
}

// GetRecords implements kgo.PoolRecords.
func (p *fetchPool) GetRecords(n int) []kgo.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := len(p.records) - 1; k >= 0; k-- {
		if s := p.records[k]; cap(s) >= n {
			p.records = slices.Delete(p.records, k, k+1)
			return s
		}
	}
	return make([]kgo.Record, n)
}

// PutRecords implements kgo.PoolRecords.
func (p *fetchPool) PutRecords(s []kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.records) < 64 {
		p.records = append(p.records, s)
	}
}

// GetDecompressBytes implements kgo.PoolDecompressBytes.
func (p *fetchPool) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := len(p.bytes) - 1; k >= 0 {
		s := p.bytes[k]
		p.bytes = p.bytes[:k]
		return s
	}
	return make([]byte, 8*len(compressed))
}

// PutDecompressBytes implements kgo.PoolDecompressBytes.
func (p *fetchPool) PutDecompressBytes(s []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.bytes) < 64 {
		p.bytes = append(p.bytes, s)
	}
}

// bareClient reads all partitions from their start, directly, as weir does.
func bareClient(tb testing.TB, t topic, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	at := map[int32]kgo.Offset{}
	for p := range int32(topicPartitions) {
		at[p] = kgo.NewOffset().At(0)
	}
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(t.addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topicName: at}),
		kgo.DisableClientMetrics())...)
	if err != nil {
		tb.Fatal(err)
	}
	return cl
}

// pollAll polls until n records have come and hands over each partition's share of an answer.
func pollAll(tb testing.TB, cl *kgo.Client, n int, first func(), take func(p int32, records []*kgo.Record)) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 5*time.Minute)
	defer cancel()
	for got := 0; got < n; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			tb.Fatal(err)
		}
		if got == 0 && !fetches.Empty() {
			first()
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			got += len(p.Records)
			take(p.Partition, p.Records)
		})
	}
}

// runBare is the bare poll loop: the client with pooled memory, every record given back, nothing else.
func runBare(tb testing.TB, t topic, w *stopwatch) outcome {
	cl := bareClient(tb, t, kgo.WithPools(&fetchPool{}))
	defer cl.Close()
	pollAll(tb, cl, t.records, w.begin, func(_ int32, records []*kgo.Record) {
		for _, r := range records {
			r.Recycle()
		}
	})
	w.end()
	return outcome{counts: partitions.Counts{Records: int64(t.records)}}
}

// runHandPipeline is the pipeline by somebody who knows what everything costs: see hand, one for each partition, and a journal that
// is written once a second.
func runHandPipeline(tb testing.TB, t topic, w *stopwatch) outcome {
	k := openBookkeeping(tb)
	var parts [topicPartitions]*handPartition
	for i := range parts {
		parts[i] = newHandPartition()
	}
	shares := make([]share, topicPartitions)
	commit := func() {
		for i, p := range parts {
			shares[i] = p.share(int64(i))
		}
		k.commit(shares)
		for _, p := range parts {
			p.committed()
		}
	}
	cl := bareClient(tb, t, kgo.WithPools(&fetchPool{}))
	defer cl.Close()
	pollAll(tb, cl, t.records, w.begin, func(p int32, records []*kgo.Record) {
		parts[p].take(records)
		for _, r := range records {
			r.Recycle()
		}
		if k.due() {
			commit()
		}
	})
	for _, p := range parts {
		p.release(math.MaxInt64)
	}
	commit()
	w.end()
	out := outcome{hash: k.hash()}
	for _, p := range parts {
		out.counts = add(out.counts, p.counts())
	}
	return out
}

// handPartition is the work by hand on one partition, and what the next commit needs of it.
type handPartition struct {
	hand
	next, until int64
	ids, saved  []byte
	records     int64
}

func newHandPartition() *handPartition {
	p := &handPartition{hand: hand{max: math.MinInt64, watermark: math.MinInt64, states: map[string]*handEMA{}}}
	p.seen.init(int(tickHorizon/time.Second)*ticksPerSecond/topicPartitions, int64(tickHorizon))
	return p
}

// take is hand.process on the client's own records, with the ids noted for the journal.
func (h *handPartition) take(records []*kgo.Record) {
	var f handFields
	for _, r := range records {
		h.next = r.Offset + 1
		if !f.decode(r.Value) {
			h.omitted++
			continue
		}
		if string(f.venue) != tickVenue {
			h.filtered++
			continue
		}
		at, okTime := handTime(f.at)
		price, okPrice := handFloat(f.close)
		if !okTime || !okPrice {
			h.omitted++
			continue
		}
		hash := xxh3.Hash128(f.id)
		place, seen := h.seen.find(hash)
		if seen {
			h.duplicates++
			continue
		}
		if at > r.Timestamp.UnixNano()+int64(tickSkew) {
			h.future++
			continue
		}
		h.seen.add(place, hash, at)
		h.ids = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(h.ids, hash.Hi), hash.Lo)
		h.until = max(h.until, at)
		if at < h.watermark {
			h.late++
			continue
		}
		h.consumed++
		h.wait(at, f.id, h.state(f.key), price)
		if at > h.max {
			h.max = at
			h.watermark = at - int64(tickLateness)
			h.seen.forget(h.watermark)
			h.release(h.watermark)
		}
	}
	h.records += int64(len(records))
}

// share is what stands since the last commit. Records that wait are part of it: they lie before the position.
func (h *handPartition) share(partition int64) share {
	b := binary.AppendUvarint(h.saved[:0], uint64(len(h.states)))
	for key, s := range h.states {
		b = append(binary.AppendUvarint(b, uint64(len(key))), key...)
		b = binary.AppendUvarint(b, uint64(s.n))
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(s.sum))
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(s.last))
	}
	for _, r := range h.queue[h.head:] {
		s := &h.slots[r.slot]
		b = binary.BigEndian.AppendUint64(b, uint64(r.at))
		b = append(binary.AppendUvarint(b, uint64(len(s.id))), s.id...)
		b = append(binary.AppendUvarint(b, uint64(len(s.state.key))), s.state.key...)
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(s.close))
	}
	h.saved = b
	return share{partition: partition, next: h.next, until: h.until, forget: h.watermark - int64(tickHorizon), ids: h.ids, state: b, rows: h.rows}
}

func (h *handPartition) committed() { h.ids, h.rows = h.ids[:0], h.rows[:0] }

func (h *handPartition) counts() partitions.Counts {
	return partitions.Counts{
		Records: h.records, Consumed: int64(h.consumed), Filtered: int64(h.filtered), Omitted: int64(h.omitted),
		Duplicates: int64(h.duplicates), Late: int64(h.late), Future: int64(h.future), Outputs: int64(h.outputs),
	}
}

func add(a, b partitions.Counts) partitions.Counts {
	return partitions.Counts{
		Records: a.Records + b.Records, Consumed: a.Consumed + b.Consumed, Filtered: a.Filtered + b.Filtered, Omitted: a.Omitted + b.Omitted,
		Duplicates: a.Duplicates + b.Duplicates, Late: a.Late + b.Late, Future: a.Future + b.Future, Outputs: a.Outputs + b.Outputs,
	}
}
