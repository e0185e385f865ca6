package kinesis

import (
	"context"
	"crypto/md5" // how Kinesis deals keys to shards
	"math/big"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sources"
)

var _ sources.Lineage = (*Stream)(nil)

// Lineage implements sources.Lineage. A listing that does not cover every hash key, which happens for a moment while a stream is resharded, is
// SOURCE_FAILURE: it is asked for again.
func (s *Stream) Lineage(ctx context.Context) ([]sources.Shard, error) {
	shards, err := s.Shards(ctx)
	if err != nil {
		return nil, err
	}
	if holes := Holes(shards); len(holes) > 0 {
		return nil, codes.New(codes.SourceFailure, "the listing of stream %q is not complete: no open shard has the hash keys %s", s.cfg.Stream, strings.Join(holes, ", "))
	}
	out := make([]sources.Shard, 0, len(shards))
	for _, sh := range shards {
		out = append(out, sources.Shard{Partition: sh.Number, Parents: sh.Parents, Closed: sh.Closed, Holds: sh.holds})
	}
	return out, nil
}

// holds says whether a partition key is dealt to the shard: its MD5, as a number, is in the shard's range. An explicit hash key of a producer
// overrides that, and is not seen here.
func (sh Shard) holds(key string) bool {
	if sh.First == nil || sh.Last == nil {
		return false
	}
	sum := md5.Sum([]byte(key))
	hash := new(big.Int).SetBytes(sum[:])
	return hash.Cmp(sh.First) >= 0 && hash.Cmp(sh.Last) <= 0
}

// Begin is the stream as a source of one shard, that begins at another time than Config.StartAt where it was not read yet; the zero time is the
// oldest record that the shard holds.
func (s *Stream) Begin(number int32, at time.Time) sources.Source {
	cfg := s.cfg
	cfg.StartAt = at
	return shardSource{&Stream{cfg, s.consumer, s.lags}, number}
}
