package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirstream/weir/internal/devbroker"
	"github.com/weirstream/weir/record"
)

func inProcess(t *testing.T, cfg devbroker.Config) *devbroker.Broker {
	t.Helper()
	b, err := devbroker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// Half of the addresses answer nothing: whichever it is, the run gets to the end.
func TestHalfTheBrokersAreDown(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	for id, brokers := range map[string]string{"first": "127.0.0.1:1," + addr, "second": addr + ",127.0.0.1:1"} {
		if out := parse(t, must(t, dir, runArgs(brokers, "ticks", id, "--once-n", "23", "--json")...)); out["consumed"] == nil || out["values_hash"] == nil {
			t.Errorf("%s: %v", id, out)
		}
	}
}

// A group that the broker does not let weir into: with --scope partition it is the end, named; with --scope run the offsets are a courtesy, and the run
// goes on without.
func TestNotAuthorisedForTheGroup(t *testing.T) {
	t.Parallel()
	dir, b := fixtureDir(t), inProcess(t, devbroker.Config{})
	publishLog(t, dir, b.Addr(), "ticks", 1)
	b.Cluster().ControlKey(int16(kmsg.JoinGroup), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
		resp.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return resp, nil, true
	})
	b.Cluster().ControlKey(int16(kmsg.OffsetCommit), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Cluster().KeepControl()
		req := kreq.(*kmsg.OffsetCommitRequest)
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, rt := range req.Topics {
			st := kmsg.NewOffsetCommitResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewOffsetCommitResponseTopicPartition()
				sp.Partition, sp.ErrorCode = rp.Partition, kerr.GroupAuthorizationFailed.Code
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	refused(t, dir, 3, []string{"ACCESS_DENIED", `consumer group "g"`}, runArgs(b.Addr(), "ticks", "apart", "--scope", "partition")...)
	r := weir(t, dir, "", runArgs(b.Addr(), "ticks", "whole", "--once-n", "23", "--verbose")...)
	if r.code != 0 || !strings.Contains(r.stderr, "ACCESS_DENIED") || !strings.Contains(r.stderr, "consumer group") {
		t.Errorf("exit %d: %s", r.code, r.stderr)
	}
}

// The topic was made anew with fewer partitions than the journal knows: the run stops before it reads anything of it, and keeps what it had.
func TestFewerPartitionsThanTheJournalKnows(t *testing.T) {
	t.Parallel()
	dir, b := fixtureDir(t), inProcess(t, devbroker.Config{})
	publishLog(t, dir, b.Addr(), "ticks", 1)
	d := startLogged(t, dir, "run", nil, runArgs(b.Addr(), "ticks", "shrunk", "--epoch", "50ms", "--verbose")...)
	db := filepath.Join(dir, "shrunk.db")
	ends := func(next map[int32]record.Position) (n int64) {
		for _, p := range next {
			at, _ := p.Int64()
			n += at
		}
		return n
	}
	d.await(t, "the journal", func() bool { return strings.Contains(d.said(t), "msg=committed") && ends(cuts(t, db, "shrunk")) == 23 })
	d.Process.Signal(syscall.SIGTERM)
	if code := d.end(t); code != 0 {
		t.Fatalf("exit %d: %s", code, d.said(t))
	}
	stood := cuts(t, db, "shrunk")

	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	adm := kadm.NewClient(client)
	if _, err := adm.DeleteTopic(t.Context(), "ticks"); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, 3, []string{"TOPIC_MISSING", "ticks"}, runArgs(b.Addr(), "ticks", "shrunk")...)
	if _, err := adm.CreateTopic(t.Context(), 2, 1, nil, "ticks"); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, 6, []string{"TOPIC_RECREATED", "ticks"}, runArgs(b.Addr(), "ticks", "shrunk", "--exit-when-blocked")...)
	if now := cuts(t, db, "shrunk"); fmt.Sprint(now) != fmt.Sprint(stood) {
		t.Errorf("the journal stands at %v, it stood at %v", now, stood)
	}
}
