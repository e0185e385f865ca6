package reshard_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/actors/reshard"
	"github.com/weirstream/weir/balance"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/internal/kinesistest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kinesis"
)

const flowText = `flow: weir/1
name: sums
id: id
key: key
time: {field: at, unit: ms}
lateness: 2s
operators:
  - {name: e, type: ema, input: x, period: 3}
outputs: [e]
`

// plant is a stream on an emulator with a producer that splits and merges it.
type plant struct {
	t      *testing.T
	api    *awskinesis.Client
	name   string
	rng    *rand.Rand
	plan   *flow.Plan
	stream *kinesis.Stream
	store  *controltest.Memory
	sent   []record.Record
}

func newPlant(t *testing.T, seed uint64) *plant {
	t.Helper()
	e := kinesistest.Start(t)
	p := &plant{t: t, name: "s", rng: rand.New(rand.NewPCG(seed, 5)), store: controltest.NewMemory()}
	p.api = awskinesis.New(awskinesis.Options{
		BaseEndpoint: aws.String(e.Endpoint()), Region: kinesistest.Region, Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: kinesistest.AccessKey, SecretAccessKey: kinesistest.SecretKey}, nil
		}),
	})
	var err error
	if p.plan, err = flow.Parse("flow.yaml", []byte(flowText), nil); err != nil {
		t.Fatal(err)
	}
	p.must(p.api.CreateStream(t.Context(), &awskinesis.CreateStreamInput{StreamName: &p.name, ShardCount: aws.Int32(1)}))
	p.active()
	p.stream, err = kinesis.New(kinesis.Config{Client: p.api, Stream: p.name, CallsPerSecond: 200, BytesPerSecond: 1 << 40, MaxWait: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *plant) must(_ any, err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *plant) active() {
	p.t.Helper()
	for p.t.Context().Err() == nil {
		d, err := p.api.DescribeStreamSummary(p.t.Context(), &awskinesis.DescribeStreamSummaryInput{StreamName: &p.name})
		p.must(d, err)
		if d.StreamDescriptionSummary.StreamStatus == types.StreamStatusActive {
			return
		}
	}
}

func (p *plant) shards() []kinesis.Shard {
	p.t.Helper()
	shards, err := p.stream.Shards(p.t.Context())
	p.must(shards, err)
	return shards
}

// open are the open shards in the order of their ranges.
func (p *plant) open() []kinesis.Shard {
	open := slices.DeleteFunc(p.shards(), func(s kinesis.Shard) bool { return s.Closed })
	slices.SortFunc(open, func(a, b kinesis.Shard) int { return a.First.Cmp(b.First) })
	return open
}

// split cuts a shard in two, now and then so that one of them has next to no keys.
func (p *plant) split() {
	p.t.Helper()
	open := slices.DeleteFunc(p.open(), func(s kinesis.Shard) bool { return new(big.Int).Sub(s.Last, s.First).BitLen() < 100 })
	s := open[p.rng.IntN(len(open))]
	width := new(big.Int).Sub(s.Last, s.First)
	at := new(big.Int).Add(s.First, new(big.Int).Rsh(width, 1))
	if p.rng.IntN(4) == 0 {
		at = new(big.Int).Add(s.First, big.NewInt(2))
	}
	p.must(p.api.SplitShard(p.t.Context(), &awskinesis.SplitShardInput{StreamName: &p.name, ShardToSplit: &s.ID, NewStartingHashKey: aws.String(at.String())}))
	p.active()
}

func (p *plant) merge() {
	p.t.Helper()
	open := p.open()
	if len(open) < 2 {
		return
	}
	i := p.rng.IntN(len(open) - 1)
	p.must(p.api.MergeShards(p.t.Context(), &awskinesis.MergeShardsInput{StreamName: &p.name, ShardToMerge: &open[i].ID, AdjacentShardToMerge: &open[i+1].ID}))
	p.active()
}

// put writes a record of a key, and notes it.
func (p *plant) put(key string, hash *string, at int) {
	p.t.Helper()
	value := fmt.Sprintf(`{"id":"%d","key":%q,"at":%d,"x":%d}`, len(p.sent), key, at, p.rng.IntN(1000))
	p.must(p.api.PutRecord(p.t.Context(), &awskinesis.PutRecordInput{StreamName: &p.name, PartitionKey: &key, ExplicitHashKey: hash, Data: []byte(value)}))
	p.sent = append(p.sent, record.Record{Position: record.Offset(int64(len(p.sent))), Arrival: record.NoTime, Key: []byte(key), Value: []byte(value)})
}

// worker is one process that works on the stream.
type worker struct {
	stop, kill context.CancelFunc
	done       chan struct{}
}

func (p *plant) work(ttl time.Duration) *worker {
	p.t.Helper()
	family, err := reshard.New(reshard.Config{
		Run: "run", Plan: p.plan, Journal: p.store, Log: p.stream,
		Source: func(n int32, _ bool) sources.Source { return p.stream.Shard(n) },
		Engine: actors.Config{EpochEvery: 50 * time.Millisecond, Fencing: &actors.Fencing{Leases: p.store, TTL: ttl, StandEvery: 20 * time.Millisecond}},
	})
	p.must(family, err)
	dealer, err := balance.New(balance.Config{Run: "run", Leases: p.store, Units: family.Units, TTL: ttl})
	p.must(dealer, err)
	kill, crash := context.WithCancel(context.Background())
	member, err := group.New(group.Config{Run: "run", Assigner: dealer, Engine: family.Engine, Kill: kill, Backoff: actors.Backoff{Min: 20 * time.Millisecond, Max: 100 * time.Millisecond}})
	p.must(member, err)
	ctx, stop := context.WithCancel(context.Background())
	w := &worker{stop: stop, kill: crash, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		// On a busy machine a lease may be lost just before the end; the next owner goes on.
		if err := member.Run(ctx); !errors.Is(err, actors.ErrInterrupted) && !errors.Is(err, actors.ErrKilled) && !codes.Has(err, codes.StreamFenceStale) {
			p.t.Errorf("a worker ended: %v", err)
		}
	}()
	return w
}

func (w *worker) crash() { w.kill(); <-w.done; w.stop() }
func (w *worker) end()   { w.stop(); <-w.done; w.kill() }

// consumed is the number of records that the journal has seen.
func (p *plant) consumed() (n int64) {
	p.t.Helper()
	runs, err := p.store.Runs(p.t.Context())
	p.must(runs, err)
	for _, r := range runs {
		n += r.Counts.Records
	}
	return n
}

// rows are the results of every shard, sorted, without those of the closing records.
func (p *plant) rows(tb testing.TB) []string {
	tb.Helper()
	runs, err := p.store.Runs(context.Background())
	p.must(runs, err)
	var out []string
	for _, r := range runs {
		n, _ := group.PartitionOf("run", r.Header.RunID)
		p.must(nil, p.store.Outputs(context.Background(), r.Header.RunID, n, func(rows partitions.Rows) error {
			out = append(out, decode(tb, rows)...)
			return nil
		}))
	}
	slices.Sort(out)
	return out
}

func decode(tb testing.TB, rows partitions.Rows) (out []string) {
	tb.Helper()
	var row partitions.Row
	for data := rows.Data; len(data) > 0; {
		var err error
		if data, err = partitions.DecodeRow(data, 1, &row); err != nil {
			tb.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s %s %s %v", row.Time, row.ID, row.Key, row.Values))
	}
	return out
}

// undisturbed is what one partition makes of all records, up to the closing ones.
func (p *plant) undisturbed() []string {
	p.t.Helper()
	m := partitions.New(p.plan, 0)
	var eff partitions.Effects
	b := record.Batch{Records: p.sent, Next: record.Offset(int64(len(p.sent)))}
	p.must(nil, m.Step(partitions.Deliver{Batch: &b}, &eff))
	out := decode(p.t, eff.Rows)
	slices.Sort(out)
	return out
}

// A stream is split and merged at random (1 to 8 shards, and down to 3, some of them empty) while two workers read it, are killed, leave and come. Every
// key's records come in order, nothing is lost, and the results are those of one partition that nobody disturbed.
func TestSplitsAndMergesUnderKills(t *testing.T) {
	t.Parallel()
	seeds := 4
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			p := newPlant(t, uint64(seed))
			const ttl = 1500 * time.Millisecond
			workers := []*worker{p.work(ttl), p.work(ttl)}
			const records, start = 400, 1_700_000_000_000
			faults, most := 0, 0
			for i := range records {
				p.put(fmt.Sprintf("k%d", p.rng.IntN(20)), nil, start+100*i)
				switch {
				case i%25 == 12 && i < records/2 && len(p.open()) < 8:
					p.split()
					most = max(most, len(p.open()))
				case i%40 == 20 && i >= records/2:
					p.merge()
				case i%60 == 59:
					w := p.rng.IntN(2)
					if faults++; p.rng.IntN(2) == 0 {
						workers[w].crash()
					} else {
						workers[w].end()
					}
					workers[w] = p.work(ttl)
				}
			}
			// A record far ahead in every shard releases what waits; it waits itself.
			for _, s := range p.open() {
				p.put("closing-"+s.ID, aws.String(s.First.String()), start+1_000_000)
			}
			p.until(func() bool { return p.consumed() == int64(len(p.sent)) })
			for _, w := range workers {
				w.end()
			}
			if got, want := p.rows(t), p.undisturbed(); !slices.Equal(got, want) {
				t.Errorf("%d rows, want %d", len(got), len(want))
				for i := range min(len(got), len(want)) {
					if got[i] != want[i] {
						t.Errorf("row %d is %s, want %s", i, got[i], want[i])
						break
					}
				}
			}
			if last, empty := len(p.open()), p.emptyShards(); most != 8 || last != 3 || empty == 0 || faults < 5 {
				t.Errorf("at most %d shards, %d in the end, %d without a record, %d faults: the history is another one", most, last, empty, faults)
			}
		})
	}
}

// emptyShards are the shards of which the run has seen no record although it has finished them, or works on them.
func (p *plant) emptyShards() (n int) {
	p.t.Helper()
	runs, err := p.store.Runs(p.t.Context())
	p.must(runs, err)
	for _, r := range runs {
		if r.Counts.Records == 0 {
			n++
		}
	}
	return n
}

// Lesson 1: a closed shard is not a finished one. Whoever comes to a stream that was resharded before it was read claims the closed shards too, reads
// each to its end, and an empty one ends as well; only then come those that go on from it.
func TestLessonClosedShardsAreDrained(t *testing.T) {
	t.Parallel()
	p := newPlant(t, 11)
	const start, ttl = 1_700_000_000_000, 1500 * time.Millisecond
	for i := range 20 {
		p.put(fmt.Sprintf("k%d", i%4), nil, start+100*i)
	}
	p.split() // shard 0 is closed, with records
	p.split() // one of its children is closed and empty
	for i := range 20 {
		p.put(fmt.Sprintf("k%d", i%4), nil, start+10_000+100*i)
	}
	for _, s := range p.open() {
		p.put("closing-"+s.ID, aws.String(s.First.String()), start+1_000_000)
	}
	w := p.work(ttl)
	p.until(func() bool { return p.consumed() == int64(len(p.sent)) })
	w.end()
	if got, want := p.rows(t), p.undisturbed(); !slices.Equal(got, want) {
		t.Errorf("%d rows, want %d", len(got), len(want))
	}
	runs, err := p.store.Runs(t.Context())
	p.must(runs, err)
	status := map[int32]control.RunInfo{}
	for _, r := range runs {
		n, _ := group.PartitionOf("run", r.Header.RunID)
		status[n] = r
	}
	empty := 0
	for _, s := range p.shards() {
		r, has := status[s.Number]
		if finished := has && r.Status == control.RunFinished; !has || finished != s.Closed {
			t.Errorf("%s is closed: %v, and stands as %+v", s.ID, s.Closed, r)
		}
		if s.Closed && r.Counts.Records == 0 {
			empty++
		}
	}
	if empty != 1 || status[0].Counts.Records != 20 {
		t.Errorf("%d closed shards were empty, and %d records were in shard 0: the history is another one", empty, status[0].Counts.Records)
	}
}

// until polls the journal: it is the only sign of progress that outlives the workers.
func (p *plant) until(done func() bool) {
	p.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); {
		if time.Now().After(deadline) {
			runs, _ := p.store.Runs(context.Background())
			for _, r := range runs {
				p.t.Logf("%s %s %+v", r.Header.RunID, r.Status, r.Counts)
			}
			p.t.Fatalf("%d of %d records are processed", p.consumed(), len(p.sent))
		}
		timer := time.NewTimer(20 * time.Millisecond)
		<-timer.C
	}
}
