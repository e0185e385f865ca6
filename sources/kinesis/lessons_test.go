package kinesis_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kinesistest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kinesis"
)

// The tests of this file are named after what consumers of Kinesis have got wrong.

func some(n int) []record.Record {
	records := make([]record.Record, n)
	for i := range records {
		records[i] = record.Record{Key: []byte("k"), Value: fmt.Appendf(nil, "%d", i)}
	}
	return records
}

// reading collects what a reader gives.
type reading struct {
	values []string
	next   record.Position
	empty  int
}

// until polls until done, the end, or an error.
func (g *reading) until(ctx context.Context, r sources.Reader, max int, done func() bool) error {
	for !done() {
		batches, err := r.Poll(ctx, max)
		if err != nil {
			return err
		}
		if len(batches) == 0 {
			g.empty++
		}
		for i := range batches {
			for _, rec := range batches[i].Records {
				g.values = append(g.values, string(rec.Value))
			}
			g.next = batches[i].Next
			batches[i].Done()
		}
	}
	return nil
}

// has says that n values were read.
func (g *reading) has(n int) func() bool { return func() bool { return len(g.values) >= n } }

func (g *reading) want(t *testing.T, from, to int) {
	t.Helper()
	var want []string
	for i := from; i < to; i++ {
		want = append(want, fmt.Sprint(i))
	}
	if !slices.Equal(g.values, want) {
		t.Errorf("read %v, want %v", g.values, want)
	}
}

func startOf(n int32) map[int32]record.Position { return map[int32]record.Position{n: {}} }

// Lesson 4: an iterator that has expired is replaced by one behind the last record that was read: once for each expiry, and never by one at an end.
func TestLessonIteratorsExpire(t *testing.T) {
	t.Parallel()
	b := start(t)
	name := b.stream(t, 1)
	b.put(t, name, 0, 1, some(40)...)
	b.Fail(t, kinesistest.Fault{Operation: "GetRecords", Type: "ExpiredIteratorException", Every: 3})
	cfg := b.config(name)
	cfg.PageRecords = 2
	var g reading
	r := open(t, newStream(t, cfg), startOf(0))
	if err := g.until(t.Context(), r, 0, g.has(40)); err != nil {
		t.Fatal(err)
	}
	g.want(t, 0, 40)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	calls := b.Calls(t)
	if expiries := calls["GetRecords"] / 3; calls["GetShardIterator"] > expiries+1 || expiries < 6 {
		t.Errorf("%d iterators for %d expiries", calls["GetShardIterator"], expiries)
	}
}

// Lesson 4, by the clock: a reader that was held for longer than an iterator lives goes on where it was.
func TestLessonHeldForSixMinutes(t *testing.T) {
	t.Parallel()
	b := start(t)
	name := b.stream(t, 1)
	b.put(t, name, 0, 1, some(10)...)
	cfg := b.config(name)
	cfg.PageRecords = 5
	var g reading
	r := open(t, newStream(t, cfg), startOf(0))
	if err := g.until(t.Context(), r, 5, g.has(5)); err != nil {
		t.Fatal(err)
	}
	b.Shift(t, 6*time.Minute)
	if err := g.until(t.Context(), r, 5, g.has(10)); err != nil {
		t.Fatal(err)
	}
	g.want(t, 0, 10)
}

// Lesson 5: throttling is normal: it is told, waited for, and never an error.
func TestLessonThrottling(t *testing.T) {
	t.Parallel()
	b := start(t)
	name := b.stream(t, 1)
	b.put(t, name, 0, 1, some(10)...)
	b.Fail(t, kinesistest.Fault{Operation: "GetRecords", Type: "ProvisionedThroughputExceededException", Times: 3})
	b.Fail(t, kinesistest.Fault{Operation: "ListShards", Type: "LimitExceededException", Times: 1})
	var told atomic.Int64
	cfg := b.config(name)
	cfg.OnThrottle = func(int32, time.Duration) { told.Add(1) }
	var g reading
	if err := g.until(t.Context(), open(t, newStream(t, cfg), startOf(0)), 0, g.has(10)); err != nil {
		t.Fatal(err)
	}
	g.want(t, 0, 10)
	if told.Load() != 3 {
		t.Errorf("told %d times, want 3", told.Load())
	}
}

// Lesson 6: a position older than the retention gives empty pages for ever. It is a loss with numbers, until somebody accepts it.
func TestLessonTrimmed(t *testing.T) {
	t.Parallel()
	b := start(t)
	name := b.stream(t, 1)
	b.put(t, name, 0, 1, some(10)...)
	var g reading
	if err := g.until(t.Context(), open(t, newStream(t, b.config(name)), startOf(0)), 5, g.has(5)); err != nil {
		t.Fatal(err)
	}
	b.Shift(t, 25*time.Hour)
	b.put(t, name, 0, 1, record.Record{Key: []byte("k"), Value: []byte("late")})
	at := map[int32]record.Position{0: g.next}

	var lost reading
	err := lost.until(t.Context(), open(t, newStream(t, b.config(name)), at), 0, lost.has(1))
	if !codes.Has(err, codes.OffsetLost) || !strings.Contains(err.Error(), g.next.Prev().String()) || !strings.Contains(err.Error(), "shardId-000000000000") || len(lost.values) > 0 {
		t.Fatalf("read %v, %v", lost.values, err)
	}
	cfg := b.config(name)
	cfg.AcceptGap = true
	var accepted reading
	if err := accepted.until(t.Context(), open(t, newStream(t, cfg), at), 0, accepted.has(1)); err != nil || accepted.values[0] != "late" {
		t.Fatalf("read %v, %v", accepted.values, err)
	}
}

// Lesson 3: an empty page with MillisBehindLatest > 0 is not caught up, the end may come with records or on an empty page, and a shard that was
// always empty ends too (lesson 1).
func TestLessonEnds(t *testing.T) {
	t.Parallel()
	page := func(next string, behind int, values ...int) kinesistest.Answer {
		var records []map[string]any
		for _, v := range values {
			records = append(records, map[string]any{"SequenceNumber": fmt.Sprint(1000 + v), "PartitionKey": "k", "Data": []byte(fmt.Sprint(v))})
		}
		out := map[string]any{"Records": records, "MillisBehindLatest": behind}
		if next != "" {
			out["NextShardIterator"] = next
		}
		return kinesistest.Answer{Out: out}
	}
	for name, test := range map[string]struct {
		pages []kinesistest.Answer
		want  int
	}{
		"with records":      {[]kinesistest.Answer{page("a", 5000, 0, 1), page("", 0, 2)}, 3},
		"on an empty page":  {[]kinesistest.Answer{page("a", 5000, 0, 1), page("b", 5000), page("c", 4000), page("d", 0, 2), page("", 0)}, 3},
		"empty from birth":  {[]kinesistest.Answer{page("", 0)}, 0},
		"empty then behind": {[]kinesistest.Answer{page("a", 90000), page("b", 80000), page("c", 70000), page("d", 0, 0), page("", 0)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pages := test.pages
			s := &kinesistest.Scripted{Answer: func(op string, _ map[string]any) kinesistest.Answer {
				switch op {
				case "ListShards":
					return listing(1)
				case "GetShardIterator":
					return kinesistest.Answer{Out: map[string]any{"ShardIterator": "start"}}
				}
				p := pages[0]
				pages = pages[1:]
				return p
			}}
			var g reading
			err := g.until(t.Context(), open(t, scripted(t, s, nil), startOf(0)), 0, func() bool { return false })
			if !errors.Is(err, io.EOF) {
				t.Fatalf("read %v, %v; want the end", g.values, err)
			}
			g.want(t, 0, test.want)
			if g.empty > 0 {
				t.Errorf("%d answers said that there is nothing, although the shard was never read to its present end", g.empty)
			}
		})
	}
}

func scripted(t *testing.T, s *kinesistest.Scripted, change func(*kinesis.Config)) *kinesis.Stream {
	t.Helper()
	api := awskinesis.New(awskinesis.Options{
		BaseEndpoint: aws.String("http://127.0.0.1:1"), Region: kinesistest.Region, Retryer: aws.NopRetryer{}, HTTPClient: s,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: kinesistest.AccessKey, SecretAccessKey: kinesistest.SecretKey}, nil
		}),
	})
	cfg := kinesis.Config{Client: api, Stream: "s", CallsPerSecond: 500, BytesPerSecond: 1 << 40, MaxWait: time.Hour}
	if change != nil {
		change(&cfg)
	}
	return newStream(t, cfg)
}

// listing is an answer with n open shards that share the hash range.
func listing(n int) kinesistest.Answer {
	return kinesistest.Answer{Out: map[string]any{"Shards": shardDocs(0, n, n)}}
}

// Lesson 10: a listing is read to its end by the token alone, begins again when the token has expired, and tells of holes.
func TestLessonListings(t *testing.T) {
	t.Parallel()
	const n = 2500
	expired := false
	s := &kinesistest.Scripted{}
	s.Answer = func(op string, in map[string]any) kinesistest.Answer {
		token, more := in["NextToken"].(string)
		if more && len(in) > 1 {
			return kinesistest.Answer{Type: "InvalidArgumentException"}
		}
		from := 0
		if more {
			if _, err := fmt.Sscan(token, &from); err != nil {
				return kinesistest.Answer{Type: "InvalidArgumentException"}
			}
		}
		if from == 2000 && !expired {
			expired = true
			return kinesistest.Answer{Type: "ExpiredNextTokenException"}
		}
		to := min(from+1000, n)
		out := map[string]any{"Shards": shardDocs(from, to, n)}
		if to < n {
			out["NextToken"] = fmt.Sprint(to)
		}
		return kinesistest.Answer{Out: out}
	}
	shards, err := scripted(t, s, nil).Shards(t.Context())
	if err != nil || len(shards) != n {
		t.Fatalf("%d shards, %v; want %d", len(shards), err, n)
	}
	for i, sh := range shards {
		if sh.Number != int32(i) {
			t.Fatalf("shard %d is number %d", i, sh.Number)
		}
	}
	if holes := kinesis.Holes(shards); len(holes) != 0 {
		t.Errorf("a whole listing has the holes %v", holes)
	}
	missing := slices.Delete(slices.Clone(shards), 7, 8)
	if holes := kinesis.Holes(missing); len(holes) != 1 || !strings.Contains(holes[0], shards[7].First.String()) {
		t.Errorf("without shard 7: %v", holes)
	}
	if !expired || len(s.Calls()) != 6 {
		t.Errorf("%d calls, want 2 and the expired one and 3", len(s.Calls()))
	}
}

// Lesson 14: a sequence number of another shard is refused, in words.
func TestLessonForeignPosition(t *testing.T) {
	t.Parallel()
	b := start(t)
	name := b.stream(t, 2)
	b.put(t, name, 0, 2, some(3)...)
	var g reading
	if err := g.until(t.Context(), open(t, newStream(t, b.config(name)), startOf(0)), 0, g.has(3)); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, newStream(t, b.config(name)), map[int32]record.Position{1: g.next}).Poll(t.Context(), 0)
	if !codes.Has(err, codes.RunMismatch) {
		t.Errorf("got %v", err)
	}
}

// shardDocs are the shards from to to-1 of n that share the hash range, as Kinesis lists them.
func shardDocs(from, to, n int) []map[string]any {
	width := new(big.Int).Div(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(int64(n)))
	var docs []map[string]any
	for i := from; i < to; i++ {
		first := new(big.Int).Mul(width, big.NewInt(int64(i)))
		last := new(big.Int).Sub(new(big.Int).Add(first, width), big.NewInt(1))
		if i == n-1 {
			last = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1))
		}
		docs = append(docs, map[string]any{
			"ShardId":             kinesis.ShardID(int32(i)),
			"HashKeyRange":        map[string]any{"StartingHashKey": first.String(), "EndingHashKey": last.String()},
			"SequenceNumberRange": map[string]any{"StartingSequenceNumber": "1"},
		})
	}
	return docs
}

// Lesson 5, for a minute: throttling without an end in sight is waited for, with pauses that grow to 5 s and no further.
func TestLessonThrottledForAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &kinesistest.Scripted{}
		s.Answer = func(op string, _ map[string]any) kinesistest.Answer {
			switch {
			case op == "ListShards":
				return listing(1)
			case op == "GetShardIterator":
				return kinesistest.Answer{Out: map[string]any{"ShardIterator": "start"}}
			case time.Since(began) < time.Minute:
				return kinesistest.Answer{Type: "ProvisionedThroughputExceededException"}
			}
			records := []map[string]any{{"SequenceNumber": "1000", "PartitionKey": "k", "Data": []byte("0")}}
			return kinesistest.Answer{Out: map[string]any{"Records": records, "MillisBehindLatest": 0}}
		}
		var most atomic.Int64
		stream := scripted(t, s, func(c *kinesis.Config) {
			c.OnThrottle = func(_ int32, pause time.Duration) { most.Store(max(most.Load(), int64(pause))) }
		})
		var g reading
		if err := g.until(t.Context(), open(t, stream, startOf(0)), 0, g.has(1)); err != nil {
			t.Fatal(err)
		}
		g.want(t, 0, 1)
		if calls, took := len(s.Calls()), time.Since(began); calls > 30 || took < time.Minute || took > 70*time.Second || time.Duration(most.Load()) != 5*time.Second {
			t.Errorf("%d calls in %s, with pauses up to %s", calls, took, time.Duration(most.Load()))
		}
	})
}
