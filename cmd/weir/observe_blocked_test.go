package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/status"
)

// Records are deleted under a run that has not read them: the process lives and is not ready, and says which partition, what it needs and what there
// is, since when, and what an operator can do.
func TestBlockedIsAliveAndNotReady(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), broker(t)
	publishLog(t, dir, addr, "ticks", 1)
	p, start := loseRecords(t, addr, "ticks")
	l := startListening(t, dir, "run", runArgs(addr, "ticks", "ticks-1", "--epoch", "50ms")...)
	l.await(t, "the block", func() bool {
		_, body := l.get(t, "/readyz?verbose")
		return strings.Contains(body, "OFFSET_LOST")
	})
	if code, body := l.get(t, "/readyz"); code != 503 {
		t.Errorf("readyz: %d %s", code, body)
	}
	if code, _ := l.get(t, "/livez"); code != 200 {
		t.Errorf("livez: %d", code)
	}
	why := must(t, dir, "why", "--url", l.url)
	for _, words := range []string{"OFFSET_LOST: ", fmt.Sprintf("partition %d", p), "at position 0", fmt.Sprint(start), "since", "weir recover", "--accept-gap"} {
		if !strings.Contains(why, words) {
			t.Errorf("why lacks %q:\n%s", words, why)
		}
	}
	for line := range strings.Lines(why) {
		if strings.Count(line, "OFFSET_LOST: ") > 1 {
			t.Errorf("the code stands twice in a line: %s", line)
		}
	}
	if text := must(t, dir, "status", "--url", l.url); !strings.Contains(text, "blocked: OFFSET_LOST") {
		t.Errorf("%s", text)
	}
	_, exposed := l.get(t, "/metrics")
	if want := fmt.Sprintf(`weir_partition_blocked{partition="%d",run="ticks-1"} 1`, p); !strings.Contains(exposed, want) {
		t.Errorf("/metrics lacks %s", want)
	}
}

// A transaction that never ends holds the log: that is named as what it is, not as lag without a reason, with the transaction that holds.
func TestAnOpenTransactionIsNamed(t *testing.T) {
	t.Parallel()
	for name, addr := range map[string]func(*testing.T) string{
		"embedded": func(t *testing.T) string { return broker(t) }, "apache": func(t *testing.T) string { return kafkatest.Shared(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			openTransaction(t, addr(t), "held-"+name)
		})
	}
}

func openTransaction(t *testing.T, addr, topic string) {
	t.Helper()
	dir := fixtureDir(t)
	publishLog(t, dir, addr, topic, 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID("stuck-tx"), kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := client.ProduceSync(t.Context(), &kgo.Record{Partition: 3, Key: []byte("1"), Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	publishLog(t, dir, addr, topic, 1)
	l := startListening(t, dir, "run", runArgs(addr, topic, "ticks-1", "--epoch", "50ms")...)
	var p status.Partition
	l.await(t, "the hold", func() bool {
		for _, q := range l.report(t).Runs[0].Partitions {
			if q.Hold != nil && q.Readable != nil && *q.Readable == 0 {
				p = q
				return true
			}
		}
		return false
	})
	if p.Partition != 3 || p.Hold.Reason != "LSO_BLOCKED" || p.LagRecords == nil || *p.LagRecords == 0 || p.Stalled {
		t.Errorf("%+v, held by %+v", p, p.Hold)
	}
	why := must(t, dir, "why", "--url", l.url)
	for _, words := range []string{"LSO_BLOCKED: partition 3 is held in the log by an open transaction of stuck-tx", "nothing behind position " + *p.Stable, "the log ends at " + *p.End} {
		if !strings.Contains(why, words) {
			t.Errorf("why lacks %q:\n%s", words, why)
		}
	}
	if code, body := l.get(t, "/readyz?verbose"); code != 200 {
		t.Errorf("a run that waits for others' transaction is not ready: %d %s", code, body)
	}
}

// A broker that dies under a run, and a process that stands by for it: each says what it waits for.
func TestADeadBrokerAndAStandByAreNamed(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	b := startLogged(t, dir, "broker", nil, "broker", "--port", "0", "--json")
	b.await(t, "the broker", func() bool { return strings.Contains(b.said(t), "}\n") })
	addr, _ := parse(t, b.said(t))["listening"].(string)
	publishLog(t, dir, addr, "ticks", 1)
	args := runArgs(addr, "ticks", "ticks-1", "--epoch", "50ms")
	owner := startListening(t, dir, "owner", args...)
	owner.caughtUp(t, 23)
	second := startListening(t, dir, "second", append(args, "--standby")...)
	holder := owner.report(t).Runs[0].Owner
	second.await(t, "standing by", func() bool {
		why := must(t, dir, "why", "--url", second.url)
		return strings.Contains(why, "STANDING_BY: ") && strings.Contains(why, "held by   "+holder)
	})
	if code, body := second.get(t, "/readyz?verbose"); code != 200 {
		t.Errorf("one that stands by is not ready: %d %s", code, body)
	}
	if err := b.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	owner.await(t, "a word on the broker", func() bool {
		why := must(t, dir, "why", "--url", owner.url)
		return strings.Contains(why, "SOURCE_OUTAGE: the source does not answer: ") && strings.Contains(why, "held by   ticks")
	})
	if code, body := owner.get(t, "/readyz?verbose"); code != 503 || !strings.Contains(body, "BROKER_UNREACHABLE") {
		t.Errorf("without a broker: %d %s", code, body)
	}
	if code, _ := owner.get(t, "/livez"); code != 200 {
		t.Errorf("livez: %d", code)
	}
}
