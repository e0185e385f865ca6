package bench

import (
	"context"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// synthetic is a source that makes its records as it is asked for them, so that the log takes no memory: ticks of about 132 bytes,
// 1,000 a second of event time over all partitions, one in ten late by up to 1.9 s, one in a hundred delivered twice, 100 instruments.
type synthetic struct{ records int64 }

var _ sources.Source = synthetic{}

// Info implements sources.Source.
func (s synthetic) Info(context.Context) (sources.Info, error) {
	return sources.Info{Name: "synthetic", Partitions: []int32{0, 1, 2, 3}, Bounded: true}, nil
}

// Open implements sources.Source. It reads from the start only.
func (s synthetic) Open(_ context.Context, from map[int32]record.Position) (sources.Reader, error) {
	r := &syntheticReader{left: s.records}
	for p := range int32(len(from)) {
		r.parts = append(r.parts, newGenerator(p, int64(len(from))))
	}
	return r, nil
}

type syntheticReader struct {
	left  int64
	parts []*generator
	next  int
	out   []record.Batch

	mu     sync.Mutex
	paused [topicPartitions]bool
}

// Poll implements sources.Reader: a batch of the next partition that is not paused.
func (r *syntheticReader) Poll(ctx context.Context, limit int) ([]record.Batch, error) {
	if r.left == 0 {
		return nil, io.EOF
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for range r.parts {
		r.next = (r.next + 1) % len(r.parts)
		if r.paused[r.next] {
			continue
		}
		n := int(min(int64(limit), r.left, 1024))
		r.left -= int64(n)
		r.out = append(r.out[:0], r.parts[r.next].batch(n))
		return r.out, nil
	}
	return nil, ctx.Err() // all are paused: nobody asks
}

// Pause implements sources.Reader.
func (r *syntheticReader) Pause(ps ...int32) { r.set(true, ps) }

// Resume implements sources.Reader.
func (r *syntheticReader) Resume(ps ...int32) { r.set(false, ps) }

func (r *syntheticReader) set(paused bool, ps []int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range ps {
		r.paused[p] = paused
	}
}

// Close implements sources.Reader.
func (r *syntheticReader) Close() error { return nil }

// generator makes the records of one partition. Batches give their memory back to it.
type generator struct {
	partition, stride int64
	offset, event     int64

	mu   sync.Mutex
	free []*generated
}

type generated struct {
	records []record.Record
	bytes   []byte
}

func newGenerator(partition int32, partitions int64) *generator {
	return &generator{partition: int64(partition), stride: partitions}
}

var syntheticStart = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC).UnixMilli()

// repeatEvery is how often a record is one that was delivered before, repeatBack how many events before.
const (
	repeatEvery = 100
	repeatBack  = 50
)

func (g *generator) batch(n int) record.Batch {
	m := g.take(n)
	for len(m.records) < n {
		event := g.event
		if g.offset%repeatEvery == repeatEvery-1 {
			event -= repeatBack
		} else {
			g.event++
		}
		from := len(m.bytes)
		var at int64
		m.bytes, at = g.appendTick(m.bytes, event*g.stride+g.partition)
		m.records = append(m.records, record.Record{
			Position: record.Offset(g.offset), Arrival: record.EventTime(at * int64(time.Millisecond)), Value: m.bytes[from:len(m.bytes):len(m.bytes)],
		})
		g.offset++
	}
	return record.Batch{
		Partition: int32(g.partition), Records: m.records, Next: record.Offset(g.offset), Bytes: len(m.bytes),
		Release: func() { g.give(m) },
	}
}

// appendTick writes the event of a number, which is all that it depends on, and returns its time in milliseconds.
func (g *generator) appendTick(dst []byte, number int64) ([]byte, int64) {
	mix := uint64(number) * 0x9e3779b97f4a7c15
	at := syntheticStart + number
	if number/g.stride%10 == 7 {
		at -= int64(mix >> 32 % 1900)
	}
	dst = append(dst, `{"close":`...)
	dst = strconv.AppendInt(dst, 90+int64(mix>>40%20), 10)
	dst = append(dst, '.', '0'+byte(mix>>48%10), '0'+byte(mix>>52%10))
	dst = append(dst, `,"event_id":"ticks.event.`...)
	dst = appendDigits(dst, number, 9)
	dst = append(dst, `","event_time":"`...)
	dst = time.UnixMilli(at).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	dst = append(dst, `","instrument":"`...)
	dst = strconv.AppendInt(dst, 1+int64(mix>>20%25)*g.stride+g.partition, 10)
	dst = append(dst, `","volume":`...)
	dst = strconv.AppendInt(dst, 1000+int64(mix>>16%4000), 10)
	return append(dst, `,"venue":"XNAS"}`...), at
}

func appendDigits(dst []byte, n int64, width int) []byte {
	from := len(dst)
	for range width {
		dst = append(dst, '0')
	}
	for i := len(dst) - 1; i >= from; i-- {
		dst[i] += byte(n % 10)
		n /= 10
	}
	return dst
}

func (g *generator) take(n int) *generated {
	g.mu.Lock()
	defer g.mu.Unlock()
	if k := len(g.free) - 1; k >= 0 {
		m := g.free[k]
		g.free = g.free[:k]
		m.records, m.bytes = m.records[:0], m.bytes[:0]
		return m
	}
	return &generated{records: make([]record.Record, 0, n), bytes: make([]byte, 0, n*160)}
}

func (g *generator) give(m *generated) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free = append(g.free, m)
}
