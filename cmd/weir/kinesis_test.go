package main

import (
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/kinesistest"
	"github.com/weirstream/weir/replay"
	sinkkinesis "github.com/weirstream/weir/sinks/kinesis"
	"github.com/weirstream/weir/sources/kinesis"
)

// fixtureArrivals is the number of records of the fixture's log.
const fixtureArrivals = 23

func init() {
	if os.Getenv(asWeir) != "" {
		return
	}
	// Every process that the tests start inherits them; they are worth nothing.
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": kinesistest.AccessKey, "AWS_SECRET_ACCESS_KEY": kinesistest.SecretKey, "AWS_EC2_METADATA_DISABLED": "true"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}

// river is a stream on an emulator, and a folder with the fixture.
type river struct {
	*kinesistest.Emulator
	t    *testing.T
	api  *awskinesis.Client
	name string
	dir  string
}

func newRiver(t *testing.T, shards int32) *river {
	t.Helper()
	r := &river{Emulator: kinesistest.Start(t), t: t, name: "ticks", dir: fixtureDir(t)}
	var err error
	if r.api, err = kinesis.Connect(t.Context(), kinesis.Connection{Region: kinesistest.Region, Endpoint: r.Endpoint()}); err != nil {
		t.Fatal(err)
	}
	r.create(shards)
	return r
}

func (r *river) create(shards int32) {
	r.t.Helper()
	if _, err := r.api.CreateStream(r.t.Context(), &awskinesis.CreateStreamInput{StreamName: &r.name, ShardCount: &shards}); err != nil {
		r.t.Fatal(err)
	}
	r.active()
}

func (r *river) active() {
	r.t.Helper()
	for r.t.Context().Err() == nil {
		d, err := r.api.DescribeStreamSummary(r.t.Context(), &awskinesis.DescribeStreamSummaryInput{StreamName: &r.name})
		if err != nil {
			r.t.Fatal(err)
		}
		if d.StreamDescriptionSummary.StreamStatus == types.StreamStatusActive {
			return
		}
	}
}

// publish writes the fixture's log so many times.
func (r *river) publish(times int) {
	r.t.Helper()
	must(r.t, r.dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	for range times {
		p, err := sinkkinesis.New(sinkkinesis.Config{Client: r.api, Stream: r.name, Buffer: 4})
		if err != nil {
			r.t.Fatal(err)
		}
		if _, err := replay.Publish(r.t.Context(), replay.PublishConfig{Log: filepath.Join(r.dir, "arrivals.log"), Producer: p}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// topic publishes the fixture's log to a topic, and returns the broker.
func (r *river) topic(name string) string {
	r.t.Helper()
	addr := broker(r.t)
	must(r.t, r.dir, "replay", "publish", "--log", "arrivals.log", "--brokers", addr, "--topic", name, "--create-partitions", "4")
	return addr
}

// split cuts the widest open shard in two.
func (r *river) split() {
	r.t.Helper()
	stream, err := kinesis.New(kinesis.Config{Client: r.api, Stream: r.name})
	if err != nil {
		r.t.Fatal(err)
	}
	shards, err := stream.Shards(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range shards {
		if s.Closed {
			continue
		}
		at := new(big.Int).Rsh(new(big.Int).Add(s.First, s.Last), 1)
		if _, err := r.api.SplitShard(r.t.Context(), &awskinesis.SplitShardInput{StreamName: &r.name, ShardToSplit: &s.ID, NewStartingHashKey: aws.String(at.String())}); err != nil {
			r.t.Fatal(err)
		}
		r.active()
		return
	}
}

func (r *river) at() []string {
	return []string{"--kinesis", r.name, "--region", kinesistest.Region, "--endpoint", r.Endpoint()}
}

// args run the stream.
func (r *river) args(id string, more ...string) []string {
	return append(append([]string{"run", "flow.yaml", "--run-id", id, "--store", "sqlite:" + id + ".db", "--epoch", "50ms", "--ttl", "4s"}, r.at()...), more...)
}

func (r *river) consumed(id string) func() bool {
	return func() bool { return total(apart(r.t, filepath.Join(r.dir, id+".db"), id)) == fixtureArrivals }
}

// ends stops a process in order.
func (r *river) ends(p *process) {
	r.t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	if code := p.end(r.t); code != 0 {
		r.t.Fatalf("exit %d\n%s", code, p.out.String())
	}
}

// The golden fixture from a stream, through the command line: the golden hash.
func TestKinesisGolden(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 3)
	r.publish(1)
	doc := parse(t, must(t, r.dir, r.args("golden", "--once-n", fmt.Sprint(fixtureArrivals), "--json")...))
	if doc["values_hash"] != fixture.ValuesHash || doc["consumed"] != 6.0 || doc["duplicates_skipped"] != 1.0 {
		t.Errorf("%v", doc)
	}
	kafka := parse(t, must(t, r.dir, "run", "flow.yaml", "--run-id", "kafka", "--store", "sqlite:kafka.db", "--brokers", r.topic("golden"), "--topic", "golden", "--once-n", fmt.Sprint(fixtureArrivals), "--json"))
	for _, key := range []string{"values", "consumed", "filtered", "omitted", "duplicates_skipped", "late", "events", "watermark"} {
		if !reflect.DeepEqual(doc[key], kafka[key]) {
			t.Errorf("%s is %v through Kinesis and %v through Kafka", key, doc[key], kafka[key])
		}
	}
	refused(t, r.dir, 3, []string{"RUN_FINISHED"}, r.args("golden", "--once-n", fmt.Sprint(fixtureArrivals))...)
	for n, s := range r.shardsOf("golden") {
		if s["records"] != 0.0 && s["state"] != shardFinished {
			t.Errorf("shard %d: %v", n, s)
		}
	}
	refused(t, r.dir, 3, []string{"RUN_UNKNOWN", "all shards in one"}, append([]string{"rewind", "golden", "--store", "sqlite:golden.db", "--all", "--to", trimHorizon}, r.at()...)...)
	r.split()
	refused(t, r.dir, 3, []string{"CONFIG_INVALID", "was resharded"}, r.args("again", "--once-n", "5")...)
}

// Two processes share a stream, which is split in the middle; one of them is killed. What they publish is what one engine publishes that has all of it.
func TestKinesisShared(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 3)
	r.publish(1)
	must(t, r.dir, r.args("whole", "--until-n", fmt.Sprint(fixtureArrivals))...)
	want := parse(t, must(t, r.dir, "journal", "emit", "whole", "--flow", "flow.yaml", "--store", "sqlite:whole.db", "--json"))
	a := start(t, r.dir, r.args("apart", "--json")...)
	b := start(t, r.dir, r.args("apart")...)
	until(t, "everything is committed", []*process{a, b}, r.consumed("apart"))
	r.split()
	b.Process.Kill()
	until(t, "the other works on all shards", []*process{a}, func() bool {
		rows := apart(t, filepath.Join(r.dir, "apart.db"), "apart")
		return len(rows) == 5 && total(rows) == fixtureArrivals
	})
	r.ends(a)
	for _, words := range []string{"partition 0 assigned", "lease stream/apart/", `"scope":"partition"`} {
		if !strings.Contains(a.out.String(), words) {
			t.Errorf("%q is not told:\n%s", words, a.out.String())
		}
	}
	got := parse(t, must(t, r.dir, "journal", "emit", "apart", "--flow", "flow.yaml", "--store", "sqlite:apart.db", "--json"))
	for _, key := range []string{"values", "values_hash", "events", "consumed", "late", "future"} {
		if !reflect.DeepEqual(got[key], want[key]) {
			t.Errorf("%s: %v, want %v", key, got[key], want[key])
		}
	}
}

// Lesson 7: latest is resolved once. What is written while nobody runs is not passed over.
func TestLessonLatestIsPinned(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 2)
	r.publish(1)
	r.Shift(t, latestMargin*5) // what is there is older than the margin, by the clock that stamps the records
	p := start(t, r.dir, r.args("late", "--start", latest)...)
	until(t, "the shards are claimed", []*process{p}, func() bool { return len(apart(t, filepath.Join(r.dir, "late.db"), "late")) == 2 })
	r.ends(p)
	if n := total(apart(t, filepath.Join(r.dir, "late.db"), "late")); n != 0 {
		t.Fatalf("%d records that were there before were read", n)
	}
	r.publish(1)
	p = start(t, r.dir, r.args("late")...)
	until(t, "what came in between is read", []*process{p}, r.consumed("late"))
	r.ends(p)
	refused(t, r.dir, 3, []string{"RUN_MISMATCH", "was begun at latest"}, r.args("late", "--start", trimHorizon)...)
}

func noSecret(t *testing.T, r result) {
	t.Helper()
	if strings.Contains(r.stdout+r.stderr, kinesistest.SecretKey) {
		t.Errorf("the secret key is shown:\n%s%s", r.stdout, r.stderr)
	}
}

func TestKinesisRunsThatCannotBe(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 1)
	for name, c := range map[string]struct {
		exit  int
		words []string
		args  []string
	}{
		"two sources":       {2, []string{"give one thing to read"}, r.args("x", "--brokers", "127.0.0.1:1", "--topic", "t")},
		"a group":           {2, []string{"has no --group"}, r.args("x", "--group", "g")},
		"no stream":         {2, []string{"go with --kinesis"}, []string{"run", "flow.yaml", "--log", "x", "--run-id", "x", "--store", "sqlite:x.db", "--region", "r"}},
		"a start":           {2, []string{"neither trim-horizon"}, r.args("x", "--start", "yesterday")},
		"an emit":           {2, []string{"weir journal emit x"}, r.args("x", "--emit", "e.json")},
		"a gap without why": {2, []string{"--reason"}, r.args("x", "--accept-gap")},
		"the future":        {3, []string{"CONFIG_INVALID", "in the future"}, r.args("future", "--start", "2126-01-01T00:00:00Z")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			noSecret(t, refused(t, r.dir, c.exit, c.words, c.args...))
		})
	}
}

// The demo over an emulator: the golden hash with a worker that is killed, or a clear line where there is none.
func TestDemoKinesis(t *testing.T) {
	t.Parallel()
	kinesistest.Start(t) // or the test is skipped
	doc := parse(t, must(t, t.TempDir(), "demo", "--kinesis", "--json"))
	if doc["verdict"] != "EQUAL_TO_BATCH_GOLDEN" || doc["worker_kills"] != 2.0 {
		t.Errorf("%v", doc["verdict"])
	}
	bare := command(t, t.TempDir(), "demo", "--kinesis")
	bare.Env = append(bare.Env, "PATH="+t.TempDir())
	out, err := bare.CombinedOutput()
	if code := bare.ProcessState.ExitCode(); code != 5 || !strings.Contains(string(out), "needs an emulator, and there is no Node.js") {
		t.Errorf("exit %d, %v\n%s", code, err, out)
	}
}

// A log that is published keeps its order in every shard, whatever its keys: what was not late in the log is not late in the stream.
func TestPublishedLogKeepsItsOrder(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 2)
	write(t, r.dir, "order.yaml", "flow: weir/1\nname: order\nid: event_id\nkey: instrument\ntime: {field: event_time, unit: rfc3339}\nlateness: 0s\noperators: [{name: l, type: last, input: close}]\noutputs: [l]\n")
	must(t, r.dir, "replay", "generate", "--events", "600", "--instruments", "5", "--seed", "3", "--snapshot", "order.jsonl", "--faults", "order-faults.json")
	must(t, r.dir, "replay", "build", "--snapshot", "order.jsonl", "--out", "order.log")
	must(t, r.dir, append([]string{"replay", "publish", "--log", "order.log"}, r.at()...)...)
	batch := parse(t, must(t, r.dir, "batch", "run", "--flow", "order.yaml", "--log", "order.log", "--json"))
	args := append([]string{"run", "order.yaml", "--run-id", "order", "--store", "sqlite:order.db", "--once-n", "600", "--json"}, r.at()...)
	stream := parse(t, must(t, r.dir, args...))
	if batch["late"] != 0.0 || stream["late"] != 0.0 || stream["values_hash"] != batch["values_hash"] {
		t.Errorf("late %v, hash %v, want %v", stream["late"], stream["values_hash"], batch["values_hash"])
	}
}
