//go:build unix

package kafka_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// The cleaner of Apache Kafka leaves holes, and a batch whose records it has all removed leaves nothing. A start may stand in a hole, and the
// position reaches the end. The last record is a tombstone.
func TestCompactionByApache(t *testing.T) {
	t.Parallel()
	b := apache(t)
	text := func(s string) *string { return &s }
	topic := b.topic(t, 1, map[string]*string{
		"cleanup.policy": text("compact"), "segment.ms": text("1000"), "min.cleanable.dirty.ratio": text("0"), "min.compaction.lag.ms": text("0"),
	})
	const keys = "zaabbbcdc"
	for i, k := range keys { // an hour apart, so that each begins a segment; the last segment is never compacted
		produce(t, b.write, topic, 0, record.Record{Key: []byte(string(k)), Value: fmt.Append(nil, i), Arrival: record.EventTime(time.Duration(i) * time.Hour)})
	}
	produce(t, b.write, topic, 0, record.Record{Key: []byte("d"), Arrival: record.EventTime(len(keys) * int(time.Hour))})
	s := newSource(t, b.config(topic))
	from := func(offset int64) string {
		r := open(t, s, at(offset))
		defer r.Close()
		g := newRead(t)
		g.until(r, 2, func() bool { return g.next[0] == record.Offset(10) })
		if n, err := g.poll(r, 0); n != 0 || err != nil {
			t.Fatalf("%d records, %v behind the end", n, err)
		}
		return fmt.Sprint(g.values[0])
	}
	for deadline := time.Now().Add(time.Minute); from(0) != "[0 2 5 7 8 ]"; { // the value of the last is null
		if time.Now().After(deadline) {
			t.Fatalf("not compacted: %s", from(0))
		}
	}
	for offset, want := range map[int64]string{1: "[2 5 7 8 ]", 3: "[5 7 8 ]", 6: "[7 8 ]", 9: "[]"} {
		if got := from(offset); got != want {
			t.Errorf("from %d: got %s, want %s", offset, got, want)
		}
	}
}

// equalBytes is a batch of n records of size zero bytes each, compressed. No more than one value is ever in memory, but for snappy.
func equalBytes(t testing.TB, codec string, n, size int) []byte {
	t.Helper()
	zip := compressor(t, codec)
	squeeze := func(b []byte) []byte {
		out, _ := zip.Compress(new(bytes.Buffer), b)
		return bytes.Clone(out)
	}
	head := func(i int) []byte {
		r := kmsg.Record{OffsetDelta: int32(i), Value: []byte{}}
		body := r.AppendTo(nil)[1:] // behind the length
		body = append(body[:len(body)-2], binary.AppendVarint(nil, int64(size))...)
		return append(binary.AppendVarint(nil, int64(len(body)+size+1)), body...)
	}
	value := make([]byte, size)
	pieces := [][]byte{head(0)} // what stands between two values, and the values
	for i := 1; i <= n; i++ {
		between := []byte{0} // no headers
		if i < n {
			between = append(between, head(i)...)
		}
		pieces = append(pieces, value, between)
	}
	var stream []byte
	switch codec {
	case "snappy":
		stream = squeeze(slices.Concat(pieces...))
	case "lz4":
		stream = joinLZ4(t, pieces, squeeze)
	case "zstd":
		stream = framedZstd(pieces, size)
	case "gzip": // frames one behind the other are taken for one
		squeezed := squeeze(value)
		for i, p := range pieces {
			if i%2 == 1 {
				stream = append(stream, squeezed...)
			} else {
				stream = append(stream, squeeze(p)...)
			}
		}
	}
	return rawBatch(t, 0, int32(n-1), squeezed{stream, codecType(codec)}, n, nil)
}

// framedZstd is one frame: what is of the size of a value in blocks that say a byte and how often it comes, everything else as it is.
func framedZstd(pieces [][]byte, size int) []byte {
	const window, raw, repeat, longest = 7 << 3, 0, 1, 128 << 10 // a window of 128 KiB
	stream := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, window}
	block := func(last, kind, length int) {
		h := last | kind<<1 | length<<3
		stream = append(stream, byte(h), byte(h>>8), byte(h>>16))
	}
	for _, p := range pieces {
		if len(p) != size {
			block(0, raw, len(p))
			stream = append(stream, p...)
			continue
		}
		for rest := size; rest > 0; rest -= min(rest, longest) {
			block(0, repeat, min(rest, longest))
			stream = append(stream, 0)
		}
	}
	block(1, raw, 0)
	return stream
}

// joinLZ4 makes one frame of the blocks of several. Kafka reads one frame only, and does not verify the checksum of its content.
func joinLZ4(t testing.TB, pieces [][]byte, squeeze func([]byte) []byte) []byte {
	t.Helper()
	const header, independent, sized = 7, 1 << 5, 1<<3 | 1<<4
	var joined []byte
	value := squeeze(pieces[1])
	for i, p := range pieces {
		frame := value
		if i%2 == 0 {
			frame = squeeze(p)
		}
		if frame[4]&independent == 0 || frame[4]&sized != 0 {
			t.Fatalf("the frame has flags %x", frame[4])
		}
		if joined == nil {
			joined = append(joined, frame[:header]...)
		}
		for rest := frame[header:]; ; {
			n := binary.LittleEndian.Uint32(rest) &^ (1 << 31) // the highest bit: not compressed
			if n == 0 {
				break
			}
			joined = append(joined, rest[:4+n]...)
			rest = rest[4+n:]
		}
	}
	return append(joined, make([]byte, 8)...) // the end, and a checksum
}

// Three gigabytes of equal bytes in one batch of a few megabytes are refused by name before they fill the memory; the other partition goes on,
// and a run may go on behind the batch. Apache Kafka itself takes such a batch.
//
// The test measures the memory of the process, so it does not run in parallel.
func TestABatchOfEqualBytesByApache(t *testing.T) {
	b := apache(t)
	const size = 500_000
	// As a daemon with GOMEMLIMIT=256MiB: without it the collector lets garbage of other tests stand.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(256 << 20))
	for codec, n := range map[string]int{"zstd": 6000, "lz4": 6000, "gzip": 1000, "snappy": 300} {
		if raced { // the memory is not judged then, and what is more than a batch may have is refused all the same
			n = min(n, 300)
		}
		began := time.Now()
		limit := strconv.Itoa(32 << 20)
		topic := b.topic(t, 2, map[string]*string{"max.message.bytes": &limit})
		produce(t, b.write, topic, 0, values(3)...)
		raw := equalBytes(t, codec, n, size)
		b.produceRaw(t, topic, 0, raw)
		t.Logf("%s: %d bytes on the wire, made and taken in %v", codec, len(raw), time.Since(began))
		produce(t, b.write, topic, 0, values(5)[3:]...)
		produce(t, b.write, topic, 1, values(5)...)
		s := newSource(t, b.config(topic))

		debug.FreeOSMemory()
		debug.FreeOSMemory() // what a sync.Pool has survives once
		peak := peakMemory(t)
		t.Logf("%s: at the beginning %d MiB", codec, peak()>>20)
		r := open(t, s, at(0, 0))
		g := newRead(t)
		err := g.failure(r)
		if most := peak(); most > 256<<20 && !raced {
			t.Errorf("%s: the process took %d MiB", codec, most>>20)
		}
		behind := int64(3 + n)
		wantCode(t, err, codes.PoisonBatch, topic, "partition 0", "offset 3:", strconv.Itoa(64<<20), fmt.Sprintf("offset %d ", behind))
		var f *sources.Fault
		if !errors.As(err, &f) || f.Partition != 0 || f.Need != record.Offset(3) || f.After != record.Offset(behind) || !f.Known {
			t.Errorf("%s: the fault is %+v", codec, f)
		}
		g.want(0, 0, 3)
		r.Pause(0)
		g.until(r, 0, g.has(1, 5))
		g.want(1, 0, 5)
		rest := newRead(t)
		rest.until(open(t, s, at(behind, 5)), 0, rest.has(0, 2))
		rest.want(0, 3, 5)
	}
}

// peakMemory begins to measure what this process has at most in memory, in bytes. Where the system does not tell, it is 0.
func peakMemory(t *testing.T) (most func() int) {
	t.Helper()
	const reset, status, peak = "/proc/self/clear_refs", "/proc/self/status", "VmHWM:"
	if err := os.WriteFile(reset, []byte("5"), 0); err != nil {
		t.Logf("the peak of the memory is not measured here: %v", err)
		return func() int { return 0 }
	}
	return func() int {
		text, err := os.ReadFile(status)
		if err != nil {
			t.Fatal(err)
		}
		var kilobytes int
		_, after, _ := strings.Cut(string(text), peak)
		if _, err := fmt.Sscan(after, &kilobytes); err != nil {
			t.Fatal(err)
		}
		t.Logf("at most %d MiB", kilobytes>>10)
		return kilobytes << 10
	}
}

// Null, empty and the JSON text null are three values; a header may come twice, and its value may be null or empty.
func TestWhatIsNothing(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 1, nil)
		headers := []record.Header{{Key: "twice", Value: []byte("1")}, {Key: "none"}, {Key: "empty", Value: []byte{}}, {Key: "twice", Value: []byte("2")}, {Key: "", Value: []byte("no key")}}
		sent := []record.Record{
			{Key: []byte("k"), Value: nil, Headers: headers},
			{Key: []byte{}, Value: []byte{}},
			{Key: nil, Value: []byte("null")},
			{Key: []byte("k"), Value: nil}, // the last one
		}
		produce(t, b.write, topic, 0, sent...)
		r := open(t, newSource(t, b.config(topic)), at(0))
		var got []record.Record
		for len(got) < len(sent) {
			batches, err := r.Poll(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			for i := range batches { // not released, so that the records stay
				got = append(got, batches[i].Records...)
			}
		}
		same := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
		for i, want := range sent {
			if !same(got[i].Key, want.Key) || !same(got[i].Value, want.Value) || len(got[i].Headers) != len(want.Headers) {
				t.Errorf("record %d is %#v, want %#v", i, got[i], want)
				continue
			}
			for j, h := range want.Headers {
				if got[i].Headers[j].Key != h.Key || !same(got[i].Headers[j].Value, h.Value) {
					t.Errorf("record %d: header %d is %#v, want %#v", i, j, got[i].Headers[j], h)
				}
			}
		}
	})
}

// A batch of 16 MiB that compresses well comes whole, in each compression that Apache Kafka takes.
func TestCompressionsOfApache(t *testing.T) {
	t.Parallel()
	b := apache(t)
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := b.topic(t, 1, nil)
			w := client(t, b.addr, kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(900_000))
			const n = 2000
			recs := values(n)
			for i := range recs {
				recs[i].Headers = []record.Header{{Key: "padding", Value: bytes.Repeat([]byte{byte(i)}, 1000)}}
			}
			produce(t, w, topic, 0, recs...)
			r := open(t, newSource(t, b.config(topic)), at(0))
			g := newRead(t)
			g.until(r, 300, g.has(0, n))
			g.want(0, 0, n)
		})
	}
}
