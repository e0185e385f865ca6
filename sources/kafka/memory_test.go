package kafka

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/record"
)

func TestAPoolKeepsNoMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	p := pool[byte]{limit: 100}
	if s := p.get(10); len(s) != 10 {
		t.Fatalf("got %d", len(s))
	}
	p.put(make([]byte, 60))
	p.put(make([]byte, 60)) // over the limit, and no larger: dropped
	if p.held != 60 || len(p.free) != 1 {
		t.Fatalf("holds %d in %d slices", p.held, len(p.free))
	}
	p.put(make([]byte, 70)) // larger: it takes the place of the other
	p.put(make([]byte, 101))
	if p.held != 70 || len(p.free) != 1 {
		t.Fatalf("holds %d in %d slices", p.held, len(p.free))
	}
	if s := p.get(71); cap(s) != 71 || p.held != 70 {
		t.Fatalf("got %d, holds %d", cap(s), p.held)
	}
	if s := p.get(50); cap(s) != 70 || p.held != 0 || len(p.free) != 0 {
		t.Fatalf("got %d, holds %d in %d", cap(s), p.held, len(p.free))
	}
	for range keepSlices + 5 {
		p.put(make([]byte, 1))
	}
	for range 3 {
		p.put(make([]byte, 2))
	}
	if len(p.free) != keepSlices || p.held != keepSlices+3 {
		t.Fatalf("holds %d in %d slices", p.held, len(p.free))
	}
}

type grow struct{ by int }

func (g grow) Decompress(src []byte, _ kgo.CompressionCodecType) ([]byte, error) {
	if len(src) == 0 {
		return nil, errors.New("empty")
	}
	return make([]byte, g.by*len(src)), nil
}

func TestTheInflaterStopsAtItsLimitUntilItIsReset(t *testing.T) {
	t.Parallel()
	m := newFetchMemory()
	d := &inflater{first: grow{10}, memory: m, limit: 100}
	src := make([]byte, 6)
	for round := range 3 {
		for i := range 2 { // 60, then 120: the batch that crosses the limit is still taken
			if out, err := d.Decompress(src, kgo.CodecZstd); err != nil || len(out) != 60 {
				t.Fatalf("round %d batch %d: %d, %v", round, i, len(out), err)
			}
		}
		if _, err := d.Decompress(src, kgo.CodecZstd); !errors.Is(err, errInflated) {
			t.Fatalf("round %d: got %v", round, err)
		}
		d.reset()
	}
	if _, err := d.Decompress(nil, kgo.CodecZstd); err == nil || errors.Is(err, errInflated) {
		t.Fatalf("got %v", err)
	}
	if r := m.ratio.Load(); r != 11 {
		t.Errorf("the ratio is %d", r)
	}
}

// A batch beyond the first try takes a buffer of its size and no more, up to the limit to the byte; one beyond that takes none.
//
// The test measures what is allocated, so it does not run in parallel.
func TestLargeBatchesTakeWhatTheyNeed(t *testing.T) {
	const most = 4 * firstTry
	for name, codec := range map[string]kgo.CompressionCodec{"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()} {
		zip, err := kgo.DefaultCompressor(codec)
		if err != nil {
			t.Fatal(err)
		}
		d, err := newInflater(Config{BatchBytes: most, InflateBytes: 1 << 30}, newFetchMemory())
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, most+1)
		for n, fits := range map[int]bool{firstTry + 1: true, most: true, most + 1: false} {
			src, kind := zip.Compress(new(bytes.Buffer), data[:n])
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			out, err := d.Decompress(src, kind)
			runtime.ReadMemStats(&after)
			grown := int(after.TotalAlloc - before.TotalAlloc)
			switch {
			case fits && (err != nil || !bytes.Equal(out, data[:n])):
				t.Errorf("%s, %d bytes: got %d, %v", name, n, len(out), err)
			case fits && n > firstTry && cap(out) > n+1<<20:
				t.Errorf("%s, %d bytes: the buffer has %d", name, n, cap(out))
			case !fits && !errors.Is(err, kgo.ErrMaxDecompress):
				t.Errorf("%s, %d bytes of at most %d: %d, %v", name, n, most, len(out), err)
			case !fits && grown > 2*most: // a buffer that is doubled up to it takes twice that
				t.Errorf("%s, %d bytes of at most %d: %d were allocated", name, n, most, grown)
			}
		}
		if _, err := d.Decompress([]byte("neither one nor the other"), map[string]kgo.CompressionCodecType{"gzip": kgo.CodecGzip, "snappy": kgo.CodecSnappy, "lz4": kgo.CodecLz4, "zstd": kgo.CodecZstd}[name]); err == nil {
			t.Errorf("%s: damaged bytes are taken", name)
		}
	}
}

func TestAReleaseCountsOnce(t *testing.T) {
	t.Parallel()
	r := &reader{records: pool[record.Record]{limit: keepRecords}}
	src := []*kgo.Record{{Offset: 3, Value: []byte("x")}, {Offset: 5, Value: []byte("y")}}
	b, rest := r.batch(1, src, 1)
	if len(b.Records) != 1 || len(rest) != 1 || b.Next != record.Offset(4) || b.Partition != 1 {
		t.Fatalf("got %+v, %d left", b, len(rest))
	}
	again := b
	b.Done()
	again.Done()
	if len(r.records.free) != 1 {
		t.Errorf("the memory came back %d times", len(r.records.free))
	}
}

func TestArrival(t *testing.T) {
	t.Parallel()
	none := kgo.NewRecordAttrs(kgo.RecordAttrsOpts{TimestampType: -1})
	for want, r := range map[record.EventTime]kgo.Record{
		1_767_623_400_123e6: {Timestamp: time.UnixMilli(1_767_623_400_123)},
		0:                   {Timestamp: time.UnixMilli(0)},
		-5e6:                {Timestamp: time.UnixMilli(-5)},
		record.NoTime:       {Timestamp: time.UnixMilli(-1)},
	} {
		if got := arrival(&r); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if got := arrival(&kgo.Record{Timestamp: time.UnixMilli(7), Attrs: none}); got != record.NoTime {
		t.Errorf("got %v for a format without timestamps", got)
	}
}

// Of an answer that is short each partition gets its share, whatever was fetched first; stretches of one partition keep their order, and
// what is paused gets nothing.
func TestPartitionsShareAShortAnswer(t *testing.T) {
	t.Parallel()
	r := &reader{records: pool[record.Record]{limit: keepRecords}}
	for p := range int32(4) {
		r.cursors = append(r.cursors, &cursor{partition: p, paused: p == 2})
	}
	stretch := func(p int32, from, to int64) {
		f := fetched{cursor: r.cursors[p], next: to}
		for at := from; at < to; at++ {
			f.records = append(f.records, &kgo.Record{Offset: at})
		}
		r.queue = append(r.queue, f)
	}
	stretch(0, 0, 100)
	stretch(1, 0, 1)
	stretch(2, 0, 100)
	stretch(1, 1, 100)
	stretch(0, 100, 200)
	stretch(3, 0, 100)
	next := map[int32]int64{}
	take := func(limit int) (taken []int) {
		out, err := r.deliver(limit)
		if err != nil {
			t.Fatal(err)
		}
		taken = make([]int, len(r.cursors))
		for _, b := range out {
			for _, rec := range b.Records {
				if at, _ := rec.Position.Int64(); at != next[b.Partition] {
					t.Fatalf("partition %d: got %d, want %d", b.Partition, at, next[b.Partition])
				}
				next[b.Partition]++
			}
			taken[b.Partition] += len(b.Records)
			b.Done()
		}
		return taken
	}
	for i, want := range [][]int{{10, 11, 0, 10}, {12, 12, 0, 12}, {12, 12, 0, 12}} {
		if got := take(50); !slices.Equal(got, want) {
			t.Errorf("answer %d: took %v, want %v", i, got, want)
		}
	}
	if got := take(2); !slices.Equal(got, []int{1, 1, 0, 0}) {
		t.Errorf("of two: took %v", got)
	}
	for range 8 {
		take(1000)
	}
	if next[0] != 200 || next[1] != 100 || next[2] != 0 || next[3] != 100 {
		t.Errorf("came to %v", next)
	}
}

// A partition that cannot be read on is told once what stands before is delivered, whatever the others have; once it is paused they go on.
func TestAFailureDoesNotWaitForOtherPartitions(t *testing.T) {
	t.Parallel()
	r := &reader{records: pool[record.Record]{limit: keepRecords}}
	for p := range int32(2) {
		r.cursors = append(r.cursors, &cursor{partition: p})
	}
	for i := range int64(4) {
		c := r.cursors[i%2]
		r.queue = append(r.queue, fetched{cursor: c, next: i + 1, records: []*kgo.Record{{Offset: i}}})
	}
	broken := errors.New("broken")
	r.cursors[0].err = broken
	var got []int32
	for range 3 {
		out, err := r.deliver(1)
		if err != nil || len(out) != 1 {
			t.Fatalf("%v after %v", err, got)
		}
		got = append(got, out[0].Partition)
	}
	if !slices.Equal(got, []int32{0, 1, 0}) {
		t.Fatalf("delivered %v", got)
	}
	if out, err := r.deliver(1); !errors.Is(err, broken) {
		t.Fatalf("with records of the other one left: %v, %v", out, err)
	}
	r.Pause(0)
	if out, err := r.deliver(1); err != nil || len(out) != 1 || out[0].Partition != 1 {
		t.Fatalf("%v, %v", out, err)
	}
	r.Resume(0)
	if _, err := r.deliver(1); !errors.Is(err, broken) {
		t.Fatalf("resumed: %v", err)
	}
}
