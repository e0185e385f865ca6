//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/internal/kafkatest"
	"github.com/weirstream/weir/record"
)

// cuts are where the partitions of a run stand in a store.
func cuts(t *testing.T, path, run string) map[int32]record.Position {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	next := map[int32]record.Position{}
	err = store.Snapshot(t.Context(), run, func(v control.JournalView) error {
		for p, c := range v.State().Cuts {
			next[p] = c.Next
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// cpuOf is the CPU time that a process has taken, in the system's ticks of a hundredth of a second.
func cpuOf(t *testing.T, pid int) (ticks int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	needs(t, err == nil, "/proc, to see the CPU time of a process")
	const user, system = 11, 12 // behind the name, which may hold spaces
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	for _, f := range []int{user, system} {
		var n int
		if _, err := fmt.Sscan(string(fields[f]), &n); err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return ticks
}

// waitsCheaply fails when a process takes more than a twentieth of a processor for a while.
func waitsCheaply(t *testing.T, pid int) {
	t.Helper()
	before, from := cpuOf(t, pid), time.Now()
	<-time.After(4 * time.Second)
	spent, window := time.Duration(cpuOf(t, pid)-before)*10*time.Millisecond, time.Since(from)
	t.Logf("blocked: %v of CPU time in %v", spent, window)
	if spent > window/20 {
		t.Errorf("it takes more than 5 %% of a processor while it waits")
	}
}

// Apache Kafka has removed records that a run needs: it says so with the numbers, reads everything else, costs next to nothing while it waits, skips
// nothing by itself, and goes on when an operator has given them up.
func TestRecoverOverApache(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), kafkatest.Shared(t).Addr()
	const topic, run = "recovered", "ticks-1"
	publishLog(t, dir, addr, topic, 1)
	p, start := loseRecords(t, addr, topic)
	d := startLogged(t, dir, "run", nil, runArgs(addr, topic, run, "--epoch", "50ms", "--verbose")...)
	d.await(t, "the block", func() bool {
		said := d.said(t)
		return strings.Contains(said, "code=OFFSET_LOST") && strings.Contains(said, fmt.Sprintf("have=%d", start)) && strings.Contains(said, "msg=committed")
	})
	if slowdown == 1 { // what a slower build takes says nothing
		waitsCheaply(t, d.Process.Pid)
	}
	db := filepath.Join(dir, run+".db")
	stood := cuts(t, db, run)
	if stood[p] != (record.Position{}) {
		t.Errorf("partition %d was moved to %v", p, stood[p])
	}
	must(t, dir, "recover", run, "--store", "sqlite:"+run+".db", "--partition", fmt.Sprint(p), "--accept-gap", "--to", fmt.Sprint(start),
		"--who", "ana", "--reason", "retention was too short", "--apply")
	end := record.Offset(start + 1)
	d.await(t, "the rest", func() bool { return cuts(t, db, run)[p] == end })
	d.Process.Signal(syscall.SIGTERM)
	if code := d.end(t); code != 0 {
		t.Errorf("the end is %d:\n%s", code, d.said(t))
	}
}

// A daemon reads the partitions that are added to its topic.
func TestRunFollowsItsTopic(t *testing.T) {
	t.Parallel()
	dir, addr := fixtureDir(t), kafkatest.Shared(t).Addr()
	const topic, run = "growing", "grown"
	publishLog(t, dir, addr, topic, 1)
	d := startLogged(t, dir, "run", nil, runArgs(addr, topic, run, "--epoch", "50ms", "--verbose")...)
	d.await(t, "a commit", func() bool { return strings.Contains(d.said(t), "msg=committed") })
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreatePartitions(t.Context(), 1, topic); err != nil {
		t.Fatal(err)
	}
	d.await(t, "the fifth partition", func() bool { return strings.Contains(d.said(t), "incarnation=2") })
	if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 4, Value: []byte("{}")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	d.await(t, "its record", func() bool { return cuts(t, filepath.Join(dir, run+".db"), run)[4] == record.Offset(1) })
	d.Process.Signal(syscall.SIGTERM)
	if code := d.end(t); code != 0 {
		t.Errorf("the end is %d:\n%s", code, d.said(t))
	}
}
