package kafka_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/record"
)

// Four transactions of one record, the second and the fourth aborted: two values, and the position still reaches the end of the log.
func TestTransactionsLeaveHolesThatThePositionPasses(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 1, nil)
		for i, r := range values(4) {
			b.transaction(t, topic, 0, i%2 == 0, r)
		}
		s := newSource(t, b.config(topic))
		end := highWaters(t, s)
		r := open(t, s, at(0))
		g := newRead(t)
		var offsets []int64
		for g.next[0] != end[0] {
			batches, err := r.Poll(g.ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			for i := range batches {
				for _, rec := range batches[i].Records {
					o, _ := rec.Position.Int64()
					offsets = append(offsets, o)
					g.values[0] = append(g.values[0], string(rec.Value))
				}
				g.next[0] = batches[i].Next
				batches[i].Done()
			}
		}
		if fmt.Sprint(g.values[0], offsets) != "[0 2] [0 4]" || end[0] != record.Offset(8) {
			t.Errorf("got %v at %v, end %v", g.values[0], offsets, end[0])
		}
		again := open(t, s, end)
		if n, err := g.poll(again, 0); n != 0 || err != nil {
			t.Errorf("got %d records, %v behind the end, want an empty answer", n, err)
		}
	})
}

// An open transaction holds back what stands behind it; the log counts as read to its end until it commits.
func TestAnOpenTransactionIsNotDelivered(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, b *bench) {
		topic := b.topic(t, 1, nil)
		cl := client(t, b.addr, kgo.TransactionalID("open"))
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(t, cl, topic, 0, values(2)...)
		produce(t, b.write, topic, 0, values(4)[2:]...)
		waitForPartition(t, cl, topic, 0)
		r := open(t, newSource(t, b.config(topic)), at(0))
		g := newRead(t)
		if n, err := g.poll(r, 0); n != 0 || err != nil {
			t.Fatalf("got %d records, %v before the commit", n, err)
		}
		if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		g.until(r, 0, g.has(0, 4))
		g.want(0, 0, 4)
	})
}

// A compacted log has holes before, between and behind its records; a start may stand in one.
func TestCompactionLeavesHolesThatThePositionPasses(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	compact := "compact"
	topic := b.topic(t, 1, map[string]*string{"cleanup.policy": &compact})
	keys := "zaabbbcdc-"
	for i, k := range keys { // one batch each; the last one is never compacted
		produce(t, b.write, topic, 0, record.Record{Key: []byte(string(k)), Value: fmt.Append(nil, i), Arrival: 1e6})
	}
	b.Cluster().Compact()
	for from, want := range map[int64]string{0: "[0 2 5 7 8 9]", 1: "[2 5 7 8 9]", 3: "[5 7 8 9]", 6: "[7 8 9]", 9: "[9]"} {
		s := newSource(t, b.config(topic))
		r := open(t, s, at(from))
		g := newRead(t)
		g.until(r, 2, func() bool { return g.next[0] == record.Offset(10) })
		if got := fmt.Sprint(g.values[0]); got != want {
			t.Errorf("from %d: got %s, want %s", from, got, want)
		}
	}
}

// A batch whose last records were compacted away keeps its last offset. Nothing follows it, and the position still reaches the end.
func TestACompactedTailIsPassed(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string][]int32{"records are left": {0, 2}, "nothing is left": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, devbroker.Config{})
			topic := b.topic(t, 1, nil)
			produce(t, b.write, topic, 0, values(8)...)
			tail := rawBatch(t, 0, 7, nil, len(kept), func(i int) kmsg.Record {
				return kmsg.Record{OffsetDelta: kept[i], Key: []byte("k"), Value: fmt.Append(nil, kept[i])}
			})
			b.Cluster().ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
				b.Cluster().KeepControl()
				req := kreq.(*kmsg.FetchRequest)
				if len(req.Topics) == 0 || req.Topics[0].Partitions[0].FetchOffset >= 8 {
					return nil, nil, false
				}
				resp := req.ResponseKind().(*kmsg.FetchResponse)
				ft := kmsg.NewFetchResponseTopic()
				ft.Topic, ft.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
				fp := kmsg.NewFetchResponseTopicPartition()
				fp.HighWatermark, fp.LastStableOffset, fp.LogStartOffset, fp.RecordBatches = 8, 8, 0, tail
				ft.Partitions = append(ft.Partitions, fp)
				resp.Topics = append(resp.Topics, ft)
				return resp, nil, true
			})
			r := open(t, newSource(t, b.config(topic)), at(0))
			g := newRead(t)
			g.until(r, 0, func() bool { return g.next[0] == record.Offset(8) })
			if got, want := fmt.Sprint(g.values[0]), fmt.Sprint(kept); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// rawBatch builds the bytes of a record batch whose last offset is first+lastDelta.
func rawBatch(t testing.TB, first int64, lastDelta int32, compress kgo.Compressor, n int, rec func(int) kmsg.Record) []byte {
	t.Helper()
	var records []byte
	for i := range n {
		if rec == nil {
			break // compress knows the bytes
		}
		r := rec(i)
		body := r.AppendTo(nil)[1:] // behind the length, which is 0 in one byte
		r.Length = int32(len(body))
		records = r.AppendTo(records)
	}
	b := kmsg.NewRecordBatch()
	b.FirstOffset, b.Magic, b.LastOffsetDelta, b.NumRecords = first, 2, lastDelta, int32(n)
	b.ProducerID, b.ProducerEpoch, b.FirstSequence, b.PartitionLeaderEpoch = -1, -1, -1, -1
	b.Records = records
	if compress != nil {
		squeezed, codec := compress.Compress(new(bytes.Buffer), records)
		b.Records, b.Attributes = squeezed, int16(codec)
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// produceRaw appends the bytes of a batch.
func (b *bench) produceRaw(t testing.TB, topic string, p int32, raw []byte) {
	t.Helper()
	meta, err := b.adm.ListTopics(context.Background(), topic)
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 60_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic, meta[topic].ID
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = p, raw
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(context.Background(), b.write)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode); err != nil {
		t.Fatal(err)
	}
}

var codecs = map[string]kgo.CompressionCodec{
	"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func compressor(t testing.TB, name string) kgo.Compressor {
	t.Helper()
	c, err := kgo.DefaultCompressor(codecs[name])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// bomb is a batch of one record whose value is size bytes of one byte, squeezed. gzip, lz4 and zstd allow streams to be put one behind the
// other, so that it costs nothing to build.
func bomb(t testing.TB, codec string, size int) []byte {
	t.Helper()
	zip := compressor(t, codec)
	squeeze := func(b []byte) []byte {
		out, _ := zip.Compress(new(bytes.Buffer), b)
		return bytes.Clone(out)
	}
	r := kmsg.Record{Length: int32(size) + 10, Value: []byte{}}
	head := r.AppendTo(nil)
	head = append(head[:len(head)-2], binary.AppendVarint(nil, int64(size))...) // the length of the value in the place of 0
	tail := []byte{0}                                                           // no headers
	if codec == "snappy" {
		return rawBatch(t, 0, 0, squeezed{squeeze(slices.Concat(head, make([]byte, size), tail)), codecType(codec)}, 1, nil)
	}
	const part = 1 << 20
	stream := slices.Concat(squeeze(head), bytes.Repeat(squeeze(make([]byte, part)), size/part), squeeze(tail))
	return rawBatch(t, 0, 0, squeezed{stream, codecType(codec)}, 1, nil)
}

func codecType(name string) kgo.CompressionCodecType {
	return map[string]kgo.CompressionCodecType{"gzip": kgo.CodecGzip, "snappy": kgo.CodecSnappy, "lz4": kgo.CodecLz4, "zstd": kgo.CodecZstd}[name]
}

// squeezed is a compressor that gives the same bytes whatever it is asked to compress.
type squeezed struct {
	bytes []byte
	codec kgo.CompressionCodecType
}

func (s squeezed) Compress(*bytes.Buffer, []byte, ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	return s.bytes, s.codec
}

// A batch of a few kilobytes on the wire that decompresses to hundreds of megabytes is refused by name before it fills the memory; what
// stands before it and the other partitions are delivered; and a run may go on behind it.
//
// The test measures what is allocated, so it does not run in parallel.
func TestADecompressionBombIsPoison(t *testing.T) {
	const limit = 4 << 20
	for name, size := range map[string]int{"gzip": 512 << 20, "lz4": 512 << 20, "zstd": 512 << 20, "snappy": 32 << 20} {
		b := start(t, devbroker.Config{})
		topic := b.topic(t, 2, nil)
		produce(t, b.write, topic, 0, values(3)...)
		b.produceRaw(t, topic, 0, bomb(t, name, size))
		produce(t, b.write, topic, 0, values(5)[3:]...)
		produce(t, b.write, topic, 1, values(5)...)
		cfg := b.config(topic)
		cfg.BatchBytes, cfg.InflateBytes = limit, limit
		s := newSource(t, cfg)

		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := open(t, s, at(0, 0))
		g := newRead(t)
		err := g.failure(r)
		runtime.ReadMemStats(&after)
		wantCode(t, err, codes.PoisonBatch, topic, "partition 0", "offset 3:", fmt.Sprint(limit), "offset 4 ")
		if codes.Of(err).Verdict != codes.Poison {
			t.Errorf("%s: verdict %v", name, codes.Of(err).Verdict)
		}
		g.want(0, 0, 3)
		g.want(1, 0, len(g.values[1]))
		if grown := int(after.TotalAlloc - before.TotalAlloc); grown > 256<<20 {
			t.Errorf("%s: %d bytes were allocated for a bomb of %d over a limit of %d", name, grown, size, limit)
		}
		behind := newRead(t)
		behind.until(open(t, s, at(4, 5)), 0, behind.has(0, 2))
		behind.want(0, 3, 5)
	}
}

// Batches that are each below the limit but together far above it are taken a few at a time.
func TestManyLargeBatchesAreTakenAFewAtATime(t *testing.T) {
	t.Parallel()
	const batches, each = 24, 1 << 20
	for name := range codecs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, devbroker.Config{})
			topic := b.topic(t, 2, nil)
			zip := compressor(t, name)
			for i := range batches {
				b.produceRaw(t, topic, int32(i%2), rawBatch(t, 0, 0, zip, 1, func(int) kmsg.Record {
					return kmsg.Record{Key: fmt.Append(nil, i/2), Value: bytes.Repeat([]byte{'x'}, each)}
				}))
			}
			cfg := b.config(topic)
			cfg.InflateBytes = 3 * each
			r := open(t, newSource(t, cfg), at(0, 0))
			next := map[int32]int{}
			for next[0]+next[1] < batches {
				out, err := r.Poll(t.Context(), 0)
				if err != nil {
					t.Fatal(err)
				}
				held := 0
				for i := range out {
					for _, rec := range out[i].Records {
						if string(rec.Key) != fmt.Sprint(next[out[i].Partition]) || len(rec.Value) != each {
							t.Fatalf("partition %d: record %s with %d bytes, want %d", out[i].Partition, rec.Key, len(rec.Value), next[out[i].Partition])
						}
						next[out[i].Partition]++
					}
					held += out[i].Bytes
				}
				if held > (2*3+1)*each+1000 {
					t.Errorf("%d bytes at once, with a limit of %d", held, cfg.InflateBytes)
				}
				for i := range out {
					out[i].Done()
				}
			}
		})
	}
}

// Records of the formats before Kafka 0.11, which a broker of then sends as they are, are read, with the timestamp where the format has one.
func TestRecordsOfOldFormatsAreRead(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 1, nil)
	produce(t, b.write, topic, 0, values(2)...) // so that the log ends at 2
	var raw []byte
	v0 := kmsg.MessageV0{Offset: 0, Key: []byte("k"), Value: []byte("format 0")}
	v0.MessageSize = int32(len(v0.AppendTo(nil)) - 12)
	v0.CRC = int32(crc32.ChecksumIEEE(v0.AppendTo(nil)[16:]))
	v1 := kmsg.MessageV1{Offset: 1, Magic: 1, Timestamp: 5000, Value: []byte("format 1")}
	v1.MessageSize = int32(len(v1.AppendTo(nil)) - 12)
	v1.CRC = int32(crc32.ChecksumIEEE(v1.AppendTo(nil)[16:]))
	raw = v1.AppendTo(v0.AppendTo(raw))
	b.Cluster().ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		if len(req.Topics) == 0 || len(req.Topics[0].Partitions) == 0 || req.Topics[0].Partitions[0].FetchOffset != 0 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.HighWatermark, rp.LastStableOffset, rp.RecordBatches = 2, 2, raw
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	r := open(t, newSource(t, b.config(topic)), at(0))
	var got []record.Record
	for len(got) < 2 {
		batches, err := r.Poll(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range batches { // not released, so that the records stay
			got = append(got, batches[i].Records...)
		}
	}
	if string(got[0].Key) != "k" || string(got[0].Value) != "format 0" || got[0].Arrival != record.NoTime {
		t.Errorf("format 0: %+v", got[0])
	}
	if got[1].Key != nil || string(got[1].Value) != "format 1" || got[1].Arrival != 5e9 || got[1].Position != record.Offset(1) {
		t.Errorf("format 1: %+v", got[1])
	}
}

func TestADamagedBatchIsPoison(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 1, nil)
	produce(t, b.write, topic, 0, values(2)...)
	b.produceRaw(t, topic, 0, rawBatch(t, 0, 0, squeezed{[]byte("this is no zstd frame"), kgo.CodecZstd}, 1, nil))
	r := open(t, newSource(t, b.config(topic)), at(0))
	g := newRead(t)
	wantCode(t, g.failure(r), codes.PoisonBatch, topic, "partition 0", "offset 2")
	g.want(0, 0, 2)
}

// Compressed records share a buffer that goes back to a pool: many small batches, released in all orders, by the suite's standard.
func TestCompressedRecordsStayWhole(t *testing.T) {
	t.Parallel()
	for name, codec := range codecs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := start(t, devbroker.Config{})
			topic := b.topic(t, 1, nil)
			w := client(t, b.addr, kgo.ProducerBatchCompression(codec))
			const n = 3000
			for i := 0; i < n; i += 100 {
				produce(t, w, topic, 0, values(i + 100)[i:]...)
			}
			cfg := b.config(topic)
			cfg.FetchBytes, cfg.PartitionBytes = 4000, 2000
			r := open(t, newSource(t, cfg), at(0))
			var held []record.Batch
			first := 0
			check := func(b *record.Batch) {
				for _, rec := range b.Records {
					if string(rec.Value) != fmt.Sprint(first) {
						t.Fatalf("record %d is %q", first, rec.Value)
					}
					first++
				}
				b.Done()
			}
			for read := 0; read < n; {
				out, err := r.Poll(t.Context(), 70)
				if err != nil {
					t.Fatal(err)
				}
				for i := range out {
					read += len(out[i].Records)
					held = append(held, out[i])
				}
				for len(held) > 5 {
					check(&held[0])
					held = held[1:]
				}
			}
			for i := range held {
				check(&held[i])
			}
		})
	}
}

// What is read never reaches the log, at no level.
func TestRecordsAreNotLogged(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 1, nil)
	const canary = "canary-in-the-value"
	produce(t, b.write, topic, 0, record.Record{Key: []byte(canary), Value: []byte(canary), Headers: []record.Header{{Key: canary, Value: []byte(canary)}}})
	var out lockedBuffer
	cfg := b.config(topic)
	cfg.Logger = slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug - 8}))
	r := open(t, newSource(t, cfg), at(0))
	g := newRead(t)
	g.until(r, 0, g.has(0, 1))
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if said := out.String(); !strings.Contains(said, topic) || strings.Contains(said, canary) {
		t.Errorf("logged %s", said)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A value of 10 MB is larger than a fetch is meant to be, and still comes.
func TestALargeValueIsRead(t *testing.T) {
	t.Parallel()
	b := start(t, devbroker.Config{})
	topic := b.topic(t, 1, nil)
	large := bytes.Repeat([]byte("0123456789"), 1<<20)
	w := client(t, b.addr, kgo.ProducerBatchMaxBytes(12<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))
	produce(t, w, topic, 0, record.Record{Value: large}, record.Record{Value: []byte("small")})
	cfg := b.config(topic)
	if one, three := cfg.MemoryBound(1), cfg.MemoryBound(3); one < int64(len(large)) || one > 1<<30 || three <= one {
		t.Errorf("the memory bounds are %d and %d", one, three)
	}
	r := open(t, newSource(t, cfg), at(0))
	g := newRead(t)
	g.until(r, 0, g.has(0, 2))
	if g.values[0][0] != string(large) || g.values[0][1] != "small" {
		t.Error("the values differ")
	}
}
