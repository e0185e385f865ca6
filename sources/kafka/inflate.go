package kafka

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/codes"
)

// firstTry is the size of a batch, in bytes, up to which it is decompressed at once.
const firstTry = 8 << 20

// errInflated ends the decoding of an answer whose batches grew too large. It is no fault of the log: the records before are
// delivered, and the next fetch goes on at the batch that was left.
var errInflated = errors.New("the answer decompresses to more than the limit; the rest is fetched again")

// inflater bounds what is decompressed between two polls, and what is in memory for one batch. How large a batch becomes is not known before,
// and a buffer that is doubled as it fills is in memory twice, with all that it has outgrown as garbage. So a batch that is larger than firstTry is
// decompressed once to count its bytes, keeping none, and then into a buffer of that size; one that is too large is never in memory.
type inflater struct {
	first  kgo.Decompressor // up to firstTry
	second kgo.Decompressor // up to most, into exact
	exact  *exact
	memory *fetchMemory
	most   int
	limit  int64
	used   atomic.Int64
	large  sync.Mutex // held beyond the first try: large batches are decompressed one at a time
}

// exact is the pool of the second try: a buffer has the size that was counted.
type exact struct {
	*fetchMemory
	size int
}

// GetDecompressBytes implements kgo.PoolDecompressBytes.
func (m *exact) GetDecompressBytes([]byte, kgo.CompressionCodecType) []byte {
	return m.bytes.get(m.size)
}

// newInflater makes the decompressor of a reader, from those of clients that connect to nothing: a client's own is bounded by
// MaxDecompressBatchBytes, which no exported constructor gives.
func newInflater(cfg Config, memory *fetchMemory) (d *inflater, err error) {
	d = &inflater{memory: memory, most: cfg.BatchBytes, limit: int64(cfg.InflateBytes), exact: &exact{fetchMemory: memory}}
	if d.first, err = decompressor(min(firstTry, d.most), memory); err == nil {
		d.second, err = decompressor(d.most, d.exact)
	}
	return d, err
}

func decompressor(limit int, pool kgo.Pool) (kgo.Decompressor, error) {
	q, err := kgo.NewClient(kgo.MaxDecompressBatchBytes(limit), kgo.WithPools(pool), kgo.DisableClientMetrics())
	if err != nil {
		return nil, codes.New(codes.ConfigInvalid, "batches of at most %d bytes: %w", limit, err)
	}
	defer q.Close()
	within, ok := q.OptValue(kgo.WithDecompressor).(kgo.Decompressor)
	if !ok {
		return nil, codes.New(codes.Internal, "the Kafka client has no decompressor")
	}
	return within, nil
}

// Decompress implements kgo.Decompressor.
func (d *inflater) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if d.used.Load() >= d.limit {
		return nil, errInflated
	}
	out, err := d.inflate(src, codec)
	if err == nil {
		d.used.Add(int64(len(out)))
		if len(src) > 0 {
			d.memory.ratio.Store(int64(min(len(out)/len(src)+1, 64)))
		}
	}
	return out, err
}

// reset starts the next stretch: the client's buffer was taken.
func (d *inflater) reset() { d.used.Store(0) }

// inflate decompresses a batch whatever was used before.
func (d *inflater) inflate(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	out, err := d.first.Decompress(src, codec)
	if err == nil || d.most <= firstTry {
		return out, err
	}
	// What the first try says is not the last word: a limit may be met under another name, such as that of a window which is too large.
	d.large.Lock()
	defer d.large.Unlock()
	n, err := counted(src, codec, d.most)
	if err != nil {
		return nil, err
	}
	const slack = 256 << 10 // what decompressors want to have beyond the end
	d.exact.size = n + slack
	return d.second.Decompress(src, codec)
}

// whole is the inflater without what was used before.
type whole struct{ *inflater }

// Decompress implements kgo.Decompressor.
func (d whole) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	return d.inflate(src, codec)
}

// counted is how many bytes a batch decompresses to, or an error that is kgo.ErrMaxDecompress if there are more than most. It answers 0 where the
// batch says so itself, as snappy does: the decompressor asks it before it takes memory.
func counted(src []byte, codec kgo.CompressionCodecType, most int) (int, error) {
	var from io.Reader
	switch codec {
	case kgo.CodecGzip:
		unzip, err := gzip.NewReader(bytes.NewReader(src))
		if err != nil {
			return 0, err
		}
		from = unzip
	case kgo.CodecLz4:
		from = lz4.NewReader(bytes.NewReader(src))
	case kgo.CodecZstd:
		unzip, err := zstd.NewReader(bytes.NewReader(src), zstd.WithDecoderLowmem(true), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(most)))
		if err != nil {
			return 0, err
		}
		defer unzip.Close()
		from = unzip
	default:
		return 0, nil
	}
	n, err := io.Copy(discard{}, io.LimitReader(from, int64(most)+1))
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		err = fmt.Errorf("%w: %w", kgo.ErrMaxDecompress, err)
	}
	if err == nil && n > int64(most) {
		err = kgo.ErrMaxDecompress
	}
	return int(n), err
}

// discard keeps nothing.
type discard struct{}

// Write implements io.Writer.
func (discard) Write(p []byte) (int, error) { return len(p), nil }
