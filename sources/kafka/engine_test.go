//go:build unix

package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kafka"
)

// These tests run the engine, with its journal in SQLite, over Apache Kafka.

const engineFlow = `flow: weir/1
name: engine
id: event_id
key: instrument
time: {field: t, unit: ms}
lateness: 1s
dedupe: {horizon: 1h}
operators:
  - {name: l, type: last, input: close}
outputs: [l]
`

// ticks are the events number from to to-1 of a partition, a second apart.
func ticks(p int32, from, to int) (recs []record.Record) {
	for i := from; i < to; i++ {
		value := fmt.Appendf(nil, `{"event_id":"%d-%d","instrument":"i%d","t":%d,"close":%d}`, p, i, p, 1_700_000_000_000+i*1000, i)
		recs = append(recs, record.Record{Key: fmt.Appendf(nil, "i%d", p), Value: value, Arrival: record.EventTime(1_700_000_000_000+i*1000) * 1e6})
	}
	return recs
}

// engine is a run that is started again and again.
type engine struct {
	t     *testing.T
	ctx   context.Context
	store *sqlite.Store
	cfg   actors.Config
	addr  string
	topic string
}

func newEngine(t *testing.T, cfg kafka.Config) *engine {
	t.Helper()
	plan, err := flow.Parse("flow.yaml", []byte(engineFlow), nil)
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "weir.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // ends a test that waits for what does not come
	t.Cleanup(cancel)
	return &engine{t: t, ctx: ctx, store: store, addr: cfg.Brokers[0], topic: cfg.Topic, cfg: actors.Config{
		Plan: plan, Source: newSource(t, cfg), Journal: store, RunID: "run", EpochEvery: 20 * time.Millisecond, StayBlocked: true,
	}}
}

// stands is what the run has committed and what the log holds, for the message of a failed test: it tells what was read twice from what was written twice.
func (e *engine) stands() string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var text []string
	err := e.store.Snapshot(ctx, e.cfg.RunID, func(v control.JournalView) error {
		for p, c := range v.State().Cuts {
			text = append(text, fmt.Sprintf("partition %d is committed up to %v: %+v", p, c.Next, c.Counts))
		}
		slices.Sort(text)
		return nil
	})
	if err != nil {
		text = append(text, fmt.Sprintf("the journal cannot be read: %v", err))
	}
	return strings.Join(append(text, logText(e.addr, e.topic)), "; ")
}

// running is a run under way.
type running struct {
	*engine
	cancel context.CancelFunc
	ended  chan struct{}
	result actors.Result
	err    error

	mu       sync.Mutex
	progress actors.Progress
	changed  chan struct{}
}

func (e *engine) start(change func(*actors.Config)) *running {
	ctx, cancel := context.WithCancel(e.ctx)
	r := &running{engine: e, cancel: cancel, ended: make(chan struct{}), changed: make(chan struct{}, 1)}
	cfg := e.cfg
	cfg.OnProgress = func(p actors.Progress) {
		r.mu.Lock()
		r.progress = p
		r.mu.Unlock()
		select {
		case r.changed <- struct{}{}:
		default:
		}
	}
	if change != nil {
		change(&cfg)
	}
	go func() {
		defer close(r.ended)
		r.result, r.err = actors.Run(ctx, cfg)
	}()
	e.t.Cleanup(func() { cancel(); <-r.ended })
	return r
}

// until waits for a commit that is as asked.
func (r *running) until(what string, done func(actors.Progress) bool) {
	r.t.Helper()
	for {
		r.mu.Lock()
		p := r.progress
		r.mu.Unlock()
		if done(p) {
			return
		}
		select {
		case <-r.changed:
		case <-r.ended:
			r.t.Fatalf("%s: the run ended: %v, %+v; %s", what, r.err, r.result, r.stands())
		case <-r.ctx.Done():
			r.t.Fatalf("%s did not come; last: %+v; %s", what, p, r.stands())
		}
	}
}

func (r *running) records(n int64) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d records", n), func(p actors.Progress) bool { return p.Counts.Records >= n })
}

// stop ends the run in order.
func (r *running) stop() actors.Result {
	r.t.Helper()
	r.cancel()
	<-r.ended
	if !errors.Is(r.err, actors.ErrInterrupted) {
		r.t.Fatalf("the end is %v; %s", r.err, r.stands())
	}
	return r.result
}

// finish reads n records in all, those before included, and holds the results against what was sent: every event of every partition once, in order.
func (e *engine) finish(perPartition ...int) {
	e.t.Helper()
	total := 0
	for _, n := range perPartition {
		total += n
	}
	r := e.start(func(c *actors.Config) { c.MaxRecords = int64(total) })
	<-r.ended
	if r.err != nil || r.result.Status != control.RunFinished {
		e.t.Fatalf("the end is %v, %s; %s", r.err, r.result.Status, e.stands())
	}
	if c := r.result.Counts; c.Records != int64(total) || c.Duplicates != 0 || c.Late != 0 || c.Omitted != 0 || c.Outputs != int64(total) {
		e.t.Errorf("%+v, want %d records, none twice; %s", c, total, e.stands())
	}
	for p, n := range perPartition {
		var got []float64
		var row partitions.Row
		err := e.store.Outputs(e.ctx, "run", int32(p), func(rows partitions.Rows) error {
			for data := rows.Data; len(data) > 0; {
				var err error
				if data, err = partitions.DecodeRow(data, 1, &row); err != nil {
					return err
				}
				got = append(got, row.Values[0].F)
			}
			return nil
		})
		if err != nil {
			e.t.Fatal(err)
		}
		var want []float64
		for i := range n {
			want = append(want, float64(i))
		}
		if !slices.Equal(got, want) {
			e.t.Errorf("partition %d: results %v, want 0 to %d; %s", p, got, n-1, e.stands())
		}
	}
}

// lag is how far the journal is behind what can be read of a partition.
func lag(t *testing.T, s sources.Source, r actors.Result, p int32) (n int64) {
	t.Helper()
	o, err := s.(sources.Observer).Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	end, _ := o.Extents[p].Stable.Int64()
	next, _ := r.Positions()[p].Int64()
	return end - next
}

// Transactions, the last of them aborted: the lag reaches 0, a start behind the last marker delivers nothing, and a bounded run ends.
func TestARunOverTransactions(t *testing.T) {
	t.Parallel()
	b := apache(t)
	topic := b.topic(t, 1, nil)
	e := newEngine(t, b.config(topic))
	sent := 0
	for i := range 6 {
		commit := i%2 == 0
		b.transaction(t, topic, 0, commit, ticks(0, sent, sent+3)...)
		if commit {
			sent += 3
		}
	}
	r := e.start(nil)
	r.records(9)
	end := highWaters(t, e.cfg.Source.(*kafka.Source))[0]
	r.until("the end", func(p actors.Progress) bool { return len(p.Partitions) == 1 && p.Partitions[0].Next == end })
	if result := r.stop(); lag(t, e.cfg.Source, result, 0) != 0 {
		t.Errorf("the run stands at %v, the log ends at %v", result.Positions(), end)
	}

	again := e.start(nil)
	b.transaction(t, topic, 0, false, ticks(0, 100, 103)...)
	end = highWaters(t, e.cfg.Source.(*kafka.Source))[0]
	again.until("the next end", func(p actors.Progress) bool { return len(p.Partitions) == 1 && p.Partitions[0].Next == end })
	if result := again.stop(); result.Counts.Records != 9 {
		t.Errorf("%d records after the second start", result.Counts.Records)
	}
	e.finish(9)
}

// Compaction has left two records of ten: a run over the holes reaches the end with no lag, a start in a hole goes on behind it, and a bounded run ends.
func TestARunOverCompactedHoles(t *testing.T) {
	t.Parallel()
	b := apache(t)
	text := func(s string) *string { return &s }
	topic := b.topic(t, 1, map[string]*string{
		"cleanup.policy": text("compact"), "segment.ms": text("1000"), "min.cleanable.dirty.ratio": text("0"), "min.compaction.lag.ms": text("0"),
	})
	for i, r := range ticks(0, 0, 10) {
		r.Arrival = record.EventTime(time.Duration(i) * time.Hour) // so that each begins a segment; the last segment is never compacted
		produce(t, b.write, topic, 0, r)
	}
	e := newEngine(t, b.config(topic))
	left := func() (n int) {
		r := open(t, e.cfg.Source, at(0))
		defer r.Close()
		g := newRead(t)
		g.until(r, 0, func() bool { return g.next[0] == record.Offset(10) })
		return len(g.values[0])
	}
	for e.ctx.Err() == nil && left() > 2 {
	}
	r := e.start(nil)
	r.until("the end", func(p actors.Progress) bool {
		return len(p.Partitions) == 1 && p.Partitions[0].Next == record.Offset(10)
	})
	if result := r.stop(); result.Counts.Records != 2 || lag(t, e.cfg.Source, result, 0) != 0 {
		t.Errorf("%d records, the run stands at %v", result.Counts.Records, result.Positions())
	}
	bounded := e.start(func(c *actors.Config) { c.RunID, c.MaxRecords = "bounded", 2 })
	<-bounded.ended
	if bounded.err != nil || bounded.result.Status != control.RunFinished || bounded.result.Positions()[0] != record.Offset(10) {
		t.Errorf("%v, %s at %v", bounded.err, bounded.result.Status, bounded.result.Positions())
	}
}

// A run that has read three records needs the fourth, and retention has removed seven. That partition is blocked with the numbers, the other one
// goes on, nothing is skipped, and the brokers are not asked more than an idle run asks them.
func TestARunWhoseRecordsWereRemoved(t *testing.T) {
	t.Parallel()
	b := apache(t)
	topic := b.topic(t, 2, nil)
	cfg := b.config(topic)
	cfg.MaxWait = 200 * time.Millisecond
	requests := count(&cfg)
	e := newEngine(t, cfg)
	produce(t, b.write, topic, 0, ticks(0, 0, 3)...)
	r := e.start(nil)
	r.records(3)
	r.stop()
	produce(t, b.write, topic, 0, ticks(0, 3, 10)...)
	b.deleteRecords(t, topic, 0, 7)

	again := e.start(nil)
	produce(t, b.write, topic, 1, ticks(1, 0, 5)...)
	again.until("a blocked partition", func(p actors.Progress) bool { return len(p.Blocked) == 1 && p.Counts.Records == 8 })
	again.mu.Lock()
	block := again.progress.Blocked[0]
	again.mu.Unlock()
	wantCode(t, block.Cause, codes.OffsetLost, topic, "partition 0", "need offset 3", "have 7 to 10")
	if block.Partition != 0 || block.Next != record.Offset(3) || block.Block == nil || block.Block.Have != record.Offset(7) || !block.Block.Known {
		t.Errorf("blocked: %+v, %+v", block, block.Block)
	}
	before := requests.all()
	began := time.Now()
	for round := range 5 {
		produce(t, b.write, topic, 1, ticks(1, 5+5*round, 10+5*round)...)
		again.records(int64(8 + 5*(round+1)))
	}
	// A fetch is held for 100 ms when there is nothing, and a poll asks three questions at its end.
	if n, most := requests.all()-before, 60+int(50*time.Since(began)/time.Second); n > most {
		t.Errorf("%d requests in %v, want at most %d", n, time.Since(began), most)
	}
	again.cancel()
	<-again.ended
	wantCode(t, again.err, codes.OffsetLost, "need offset 3")
	if next := again.result.Positions(); next[0] != record.Offset(3) || next[1] != record.Offset(30) {
		t.Errorf("the run stands at %v", next)
	}
}

// A batch that cannot be taken blocks its partition, with where the log goes on; what stands before it is processed, and the other partition goes on.
func TestARunThatMeetsPoison(t *testing.T) {
	t.Parallel()
	b := apache(t)
	topic := b.topic(t, 2, nil)
	produce(t, b.write, topic, 0, ticks(0, 0, 3)...)
	const n = 600
	b.produceRaw(t, topic, 0, equalBytes(t, "zstd", n, 500_000))
	produce(t, b.write, topic, 0, ticks(0, 3, 5)...)
	e := newEngine(t, b.config(topic))
	r := e.start(nil)
	for sent := 0; sent < 20; sent += 5 {
		produce(t, b.write, topic, 1, ticks(1, sent, sent+5)...)
		r.records(int64(3 + sent + 5))
	}
	r.until("a blocked partition", func(p actors.Progress) bool { return len(p.Blocked) == 1 })
	r.mu.Lock()
	blocked := r.progress.Blocked[0]
	r.mu.Unlock()
	wantCode(t, blocked.Cause, codes.PoisonBatch, topic, "partition 0", "offset 3:")
	if blocked.Next != record.Offset(3) || blocked.Block == nil || blocked.Block.Have != record.Offset(3+n) {
		t.Errorf("blocked: %+v, %+v", blocked, blocked.Block)
	}
	r.cancel()
	<-r.ended
	wantCode(t, r.err, codes.PoisonBatch)
}

// A topic that is deleted and created again is noticed by a run, and at the next start of one; nothing of it is read.
func TestARunWhoseTopicIsRecreated(t *testing.T) {
	t.Parallel()
	b := apache(t)
	topic := b.topic(t, 1, nil)
	e := newEngine(t, b.config(topic))
	e.cfg.StayBlocked = false
	produce(t, b.write, topic, 0, ticks(0, 0, 10)...)
	hold := make(chan chan struct{})
	r := e.start(func(c *actors.Config) {
		c.Hooks.At = func(ctx context.Context, p actors.Point) error {
			if p.Name != actors.AfterPoll {
				return nil
			}
			select {
			case release := <-hold:
				select {
				case <-release:
				case <-ctx.Done():
				}
			default:
			}
			return nil
		}
	})
	r.records(10)
	release := make(chan struct{})
	select {
	case hold <- release: // a run that looks while there is no topic, for longer than a moment, would be right to say that it is gone
	case <-r.ended:
		t.Fatalf("the run ended: %v; %s", r.err, e.stands())
	}
	b.recreate(t, topic, 1)
	produce(t, b.write, topic, 0, ticks(0, 10, 30)...)
	close(release)
	<-r.ended
	wantCode(t, r.err, codes.TopicRecreated, topic)
	again := e.start(nil)
	<-again.ended
	wantCode(t, again.err, codes.TopicRecreated, topic)
	if r.result.Counts.Records != 10 || again.result.Counts.Records > 10 {
		t.Errorf("%d and %d records", r.result.Counts.Records, again.result.Counts.Records)
	}
}

// A run that was started on an empty topic and stopped reads what comes meanwhile, in a partition that it knows and in one that was added.
func TestARunThatBeginsOnAnEmptyTopic(t *testing.T) {
	t.Parallel()
	b := apache(t)
	topic := b.topic(t, 1, nil)
	e := newEngine(t, b.config(topic))
	opened := make(chan struct{})
	r := e.start(func(c *actors.Config) {
		c.Hooks.At = func(_ context.Context, p actors.Point) error {
			if p.Name == actors.AfterPoll {
				select {
				case opened <- struct{}{}:
				default:
				}
			}
			return nil
		}
	})
	<-opened // the source has answered that there is nothing
	r.stop()
	produce(t, b.write, topic, 0, ticks(0, 0, 20)...)
	if _, err := b.adm.CreatePartitions(t.Context(), 1, topic); err != nil {
		t.Fatal(err)
	}
	w := client(t, b.addr)
	b.known(t, topic, 2)
	produce(t, w, topic, 1, ticks(1, 0, 20)...)
	e.finish(20, 20)
}

// Partitions that are added while a run is under way are read from their start, all of their records, and nothing of the others is read twice.
func TestARunWhoseTopicGrows(t *testing.T) {
	t.Parallel()
	b := apache(t)
	topic := b.topic(t, 2, nil)
	cfg := b.config(topic)
	cfg.Follow = 300 * time.Millisecond
	e := newEngine(t, cfg)
	for p := range int32(2) {
		produce(t, b.write, topic, p, ticks(p, 0, 50)...)
	}
	r := e.start(nil)
	r.records(100)
	if _, err := b.adm.CreatePartitions(t.Context(), 2, topic); err != nil {
		t.Fatal(err)
	}
	b.known(t, topic, 4)
	w := client(t, b.addr)
	for p := range int32(4) {
		from := 0
		if p < 2 {
			from = 50
		}
		produce(t, w, topic, p, ticks(p, from, 100)...)
	}
	r.records(400)
	result := r.stop()
	if result.Incarnations != 2 || len(result.Failures) != 0 {
		t.Errorf("%d incarnations, %v", result.Incarnations, result.Failures)
	}
	e.finish(100, 100, 100, 100)
}

// The offsets of the group are a courtesy: whether they are deleted or wrong, the run goes on where its journal says.
func TestARunWhoseGroupIsWrong(t *testing.T) {
	t.Parallel()
	b := apache(t)
	topic := b.topic(t, 1, nil)
	e := newEngine(t, b.config(topic))
	source := e.cfg.Source.(*kafka.Source)
	group := topic + "-group"
	e.cfg.Group = group
	e.cfg.CommitOffsets = func(ctx context.Context, next map[int32]record.Position) error {
		return source.CommitGroup(ctx, group, next)
	}
	offset := func() int64 {
		got, err := b.adm.FetchOffsets(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		o, _ := got.Lookup(topic, 0)
		return o.At
	}
	produce(t, b.write, topic, 0, ticks(0, 0, 5)...)
	r := e.start(nil)
	r.records(5)
	r.stop()
	if at := offset(); at != 5 {
		t.Errorf("the group is told %d, want 5", at)
	}
	if gone, err := b.adm.DeleteGroup(t.Context(), group); err != nil || gone.Err != nil {
		t.Fatal(err, gone.Err)
	}
	produce(t, b.write, topic, 0, ticks(0, 5, 10)...)
	r = e.start(nil)
	r.records(10)
	r.stop()
	for _, wrong := range []int64{15, 2} {
		if err := source.CommitGroup(t.Context(), group, at(wrong)); err != nil {
			t.Fatal(err)
		}
		next := 10
		if wrong == 2 {
			next = 20
		}
		produce(t, b.write, topic, 0, ticks(0, next, next+10)...)
		r = e.start(nil)
		r.records(int64(next + 10))
		r.stop()
		if got := offset(); got != int64(next+10) {
			t.Errorf("the group is told %d after %d, want %d", got, wrong, next+10)
		}
	}
	e.finish(30)
}
