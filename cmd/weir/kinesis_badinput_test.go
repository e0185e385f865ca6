package main

import (
	"crypto/md5"
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awskinesis "github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/weirstream/weir/actors/reshard"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/kinesistest"
	"github.com/weirstream/weir/sources/kinesis"
)

// tickArgs run a stream that nobody has to be able to read.
func tickArgs(id, endpoint string, more ...string) []string {
	return append([]string{"run", "flow.yaml", "--run-id", id, "--store", "sqlite:" + id + ".db", "--kinesis", "ticks", "--region", kinesistest.Region, "--endpoint", endpoint}, more...)
}

// pretend is a Kinesis of one empty shard, in which one call is answered with an error and the stream has a status.
func pretend(t *testing.T, call, kind, status string) string {
	t.Helper()
	s := &kinesistest.Scripted{Answer: func(op string, _ map[string]any) kinesistest.Answer {
		if op == call {
			return kinesistest.Answer{Type: kind}
		}
		out := map[string]any{}
		switch op {
		case "DescribeStreamSummary":
			out["StreamDescriptionSummary"] = map[string]any{"StreamName": "ticks", "StreamStatus": status, "StreamCreationTimestamp": 1.7e9, "OpenShardCount": 1,
				"StreamARN": "arn:aws:kinesis:us-east-1:000000000000:stream/ticks", "RetentionPeriodHours": 24, "EnhancedMonitoring": []any{}}
		case "ListShards":
			out["Shards"] = []any{map[string]any{"ShardId": kinesis.ShardID(0), "HashKeyRange": map[string]any{"StartingHashKey": "0", "EndingHashKey": "340282366920938463463374607431768211455"},
				"SequenceNumberRange": map[string]any{"StartingSequenceNumber": "1"}}}
		case "GetShardIterator":
			out["ShardIterator"] = "i"
		case "GetRecords":
			out["Records"], out["NextShardIterator"], out["MillisBehindLatest"] = []any{}, "i", 0
		}
		return kinesistest.Answer{Out: out}
	}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.URL
}

// What a stream may lack, through the command line: a code, an exit code, clear words, and no secret.
func TestKinesisBadInput(t *testing.T) {
	t.Parallel()
	denied := func(call, kind string, words ...string) func(t *testing.T) (int, []string, []string) {
		return func(t *testing.T) (int, []string, []string) {
			return 3, append([]string{"ACCESS_DENIED", call}, words...), tickArgs("x", pretend(t, call, kind, "ACTIVE"))
		}
	}
	cases := map[string]func(t *testing.T) (exit int, words, args []string){
		"plain http elsewhere": func(*testing.T) (int, []string, []string) {
			return 3, []string{"CONFIG_INVALID", "kinesis.example:4567", "use https"}, tickArgs("x", "http://kinesis.example:4567")
		},
		"a password in the endpoint": func(*testing.T) (int, []string, []string) {
			return 3, []string{"CONFIG_INVALID", "is not a URL such as"}, tickArgs("x", "https://user:"+kinesistest.SecretKey+"@kinesis.example")
		},
		"wrong region":             denied("DescribeStreamSummary", "InvalidSignatureException", "not allowed on stream", `in region "us-east-1"`),
		"expired credentials":      denied("ListShards", "ExpiredTokenException"),
		"no DescribeStreamSummary": denied("DescribeStreamSummary", "AccessDeniedException", "kinesis:DescribeStreamSummary"),
		"no ListShards":            denied("ListShards", "AccessDeniedException", "kinesis:ListShards"),
		"no GetShardIterator":      denied("GetShardIterator", "AccessDeniedException", "kinesis:GetShardIterator", "no partition can be worked on"),
		"no GetRecords":            denied("GetRecords", "AccessDeniedException", "kinesis:GetRecords", "no partition can be worked on"),
		"no key":                   denied("GetRecords", "KMSAccessDeniedException", "encrypted with a key"),
		"stream missing": func(t *testing.T) (int, []string, []string) {
			return 3, []string{"TOPIC_MISSING", `stream "ticks" does not exist in this account and region`}, tickArgs("x", pretend(t, "DescribeStreamSummary", "ResourceNotFoundException", ""))
		},
		"stream being deleted": func(t *testing.T) (int, []string, []string) {
			return 3, []string{"TOPIC_MISSING", "is being deleted"}, tickArgs("x", pretend(t, "", "", "DELETING"))
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := fixtureDir(t)
			exit, words, args := c(t)
			noSecret(t, refused(t, dir, exit, words, args...))
		})
	}
}

// Without credentials, and without a region, it is said what is missing.
func TestKinesisWithoutCredentials(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		without []string
		args    []string
		words   []string
	}{
		{[]string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}, tickArgs("x", "http://127.0.0.1:1"), []string{"ACCESS_DENIED", "there are no credentials", "AWS_PROFILE"}},
		{[]string{"AWS_REGION", "AWS_DEFAULT_REGION"}, slices.DeleteFunc(tickArgs("x", "http://127.0.0.1:1"), func(s string) bool { return s == "--region" || s == kinesistest.Region }), []string{"CONFIG_INVALID", "no region is named"}},
	} {
		cmd := command(t, fixtureDir(t), c.args...)
		cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool {
			name, _, _ := strings.Cut(v, "=")
			return slices.Contains(c.without, name)
		})
		cmd.Env = append(cmd.Env, "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null")
		out, err := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != 3 {
			t.Errorf("without %v: exit %d, %v", c.without, code, err)
		}
		for _, w := range c.words {
			if !strings.Contains(string(out), w) {
				t.Errorf("without %v: %q is missing:\n%s", c.without, w, out)
			}
		}
	}
}

// Lesson 11: an aggregate that cannot be taken apart is set aside with its bytes, and the run goes on. A record that Kinesis would not take is refused
// before it is sent.
func TestLessonBrokenAggregateAndLargeRecord(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 1)
	message := []byte{0x0a, 0x7f, 'x'} // a key that is longer than the message
	sum := md5.Sum(message)
	broken := slices.Concat([]byte{0xf3, 0x89, 0x9a, 0xc2}, message, sum[:])
	if _, err := r.api.PutRecord(t.Context(), &awskinesis.PutRecordInput{StreamName: &r.name, PartitionKey: aws.String("k"), Data: broken}); err != nil {
		t.Fatal(err)
	}
	must(t, r.dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	must(t, r.dir, append([]string{"replay", "publish", "--log", "arrivals.log"}, r.at()...)...)
	doc := parse(t, must(t, r.dir, r.args("poison", "--once-n", fmt.Sprint(fixtureArrivals+1), "--json")...))
	if doc["omitted"] != 2.0 || doc["consumed"] != 6.0 {
		t.Errorf("%v", doc)
	}
	first, _, _ := strings.Cut(string(fixture.Snapshot), "\n")
	large := strings.TrimSuffix(first, "}") + fmt.Sprintf(",\"text\":%q}\n", strings.Repeat("x", 1<<20))
	write(t, r.dir, "large.jsonl", large)
	must(t, r.dir, "replay", "build", "--snapshot", "large.jsonl", "--out", "large.log")
	noSecret(t, refused(t, r.dir, 3, []string{"RECORD_TOO_LARGE"}, append([]string{"replay", "publish", "--log", "large.log"}, r.at()...)...))
	refused(t, r.dir, 2, []string{"not both"}, append([]string{"replay", "publish", "--log", "large.log", "--topic", "t"}, r.at()...)...)
}

// A stream that was deleted and made again is another one.
func TestKinesisRecreated(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 1)
	r.publish(1)
	p := start(t, r.dir, r.args("run")...)
	until(t, "everything is committed", []*process{p}, r.consumed("run"))
	r.ends(p)
	if _, err := r.api.DeleteStream(t.Context(), &awskinesis.DeleteStreamInput{StreamName: &r.name}); err != nil {
		t.Fatal(err)
	}
	r.gone()
	r.Shift(t, time.Minute)
	r.create(1)
	refused(t, r.dir, 6, []string{"TOPIC_RECREATED", "was created at"}, r.args("run")...)
	refused(t, r.dir, 6, []string{"TOPIC_RECREATED"}, r.rewind("--all", "--to", trimHorizon)...)
}

// gone waits until the stream is not listed any more.
func (r *river) gone() {
	r.t.Helper()
	for r.t.Context().Err() == nil {
		if _, err := r.api.DescribeStreamSummary(r.t.Context(), &awskinesis.DescribeStreamSummaryInput{StreamName: &r.name}); err != nil {
			return
		}
	}
}

// lost is a run whose next records are gone, at work on newer ones.
func lost(t *testing.T) (*river, *process) {
	t.Helper()
	r := newRiver(t, 1)
	r.publish(1)
	p := start(t, r.dir, r.args("run")...)
	until(t, "everything is committed", []*process{p}, r.consumed("run"))
	r.ends(p)
	r.Shift(t, 25*time.Hour)
	r.publish(1)
	p = start(t, r.dir, r.args("run")...)
	until(t, "the loss is seen", []*process{p}, func() bool {
		s := r.shardsOf("run")[0]
		e, _ := s["error"].(map[string]any)
		return e != nil && e["code"] == "OFFSET_LOST"
	})
	return r, p
}

// What a shard held is lost after the retention: it waits, with words and a code, until an operator chooses; the choice is a decision in the journal.
func TestKinesisLost(t *testing.T) {
	t.Parallel()
	r, p := lost(t)
	first := parse(t, must(t, r.dir, r.rewind("--all", "--to", trimHorizon, "--json")...))["shards"].([]any)[0].(map[string]any)
	to, _ := first["first"].(string)
	if to == "" {
		t.Fatalf("%v", first)
	}
	must(t, r.dir, "recover", "run", "--store", "sqlite:run.db", "--partition", "0", "--accept-gap", "--to", to, "--reason", "it is old", "--apply")
	until(t, "the run goes on", []*process{p}, func() bool { return total(apart(t, filepath.Join(r.dir, "run.db"), "run")) == 2*fixtureArrivals })
	r.ends(p)
	for _, words := range []string{"OFFSET_LOST", "is gone", "weir recover"} {
		if !strings.Contains(p.out.String(), words) {
			t.Errorf("%q is not told:\n%s", words, p.out.String())
		}
	}
}

// The choice may also be made when the run is started, for whatever is gone; it is kept with who made it and why.
func TestKinesisAcceptGap(t *testing.T) {
	t.Parallel()
	r, p := lost(t)
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if n := total(apart(t, filepath.Join(r.dir, "run.db"), "run")); n != fixtureArrivals {
		t.Fatalf("%d records were processed past a loss", n)
	}
	p = start(t, r.dir, r.args("run", "--accept-gap", "--reason", "it is old")...)
	until(t, "the run goes on", []*process{p}, func() bool { return total(apart(t, filepath.Join(r.dir, "run.db"), "run")) == 2*fixtureArrivals })
	r.ends(p)
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(r.dir, "run.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	kept := 0
	if err := store.Publications(t.Context(), "accepted-gap/run/", func(p control.Publication, _ string) error {
		if kept++; !strings.Contains(string(p.Value), "it is old") {
			t.Errorf("the decision is %s", p.Value)
		}
		return nil
	}); err != nil || kept != 1 {
		t.Errorf("%d decisions are kept, %v", kept, err)
	}
}

// A rewind that was killed before its end leaves a run that does not start, and is made again.
func TestRewindHalfMade(t *testing.T) {
	t.Parallel()
	r := ran(t)
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(r.dir, "run.db")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reshard.Fork(t.Context(), store, "run", "half", 0, time.Second); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	args := r.args("half")
	args[5] = "sqlite:run.db"
	refused(t, r.dir, 6, []string{"HANDOVER_UNFINISHED", "weir rewind"}, args...)
	must(t, r.dir, r.rewind("--shard", "1", "--to", trimHorizon, "--as", "half", "--reason", "again", "--apply")...)
	r.again("half", fixtureArrivals)
}

// A stream that is deleted under a run ends it, with the reason.
func TestKinesisDeletedUnderWay(t *testing.T) {
	t.Parallel()
	r := newRiver(t, 2)
	r.publish(1)
	p := start(t, r.dir, r.args("run")...)
	until(t, "everything is committed", []*process{p}, r.consumed("run"))
	if _, err := r.api.DeleteStream(t.Context(), &awskinesis.DeleteStreamInput{StreamName: &r.name}); err != nil {
		t.Fatal(err)
	}
	if code := p.end(t); code != 3 || !strings.Contains(p.out.String(), "TOPIC_MISSING") {
		t.Errorf("exit %d\n%s", code, p.out.String())
	}
}
