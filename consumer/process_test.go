package consumer

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	sinkkafka "github.com/weirstream/weir/sinks/kafka"
	sourcekafka "github.com/weirstream/weir/sources/kafka"
)

// exitFenced is how a process ends that was so slow on a busy machine that its lease has run out. Another one goes on, as ever.
const exitFenced = 3

// asConsumer makes the test binary a consumer of its own; its value is a processPlan.
const asConsumer = "WEIR_TEST_AS_CONSUMER"

func TestMain(m *testing.M) {
	if plan := os.Getenv(asConsumer); plan != "" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		fmt.Println("listening to signals")
		err := beConsumer(ctx, plan)
		switch {
		case ctx.Err() != nil && errors.Is(err, context.Canceled): // told to stop while it started
		case codes.Has(err, codes.StreamFenceStale):
			os.Exit(exitFenced)
		case err != nil:
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(pgtest.Run(m, pgtest.Config{}))
}

// perRound is how many records each partition gets before each kill.
const perRound = 24

// processPlan is what a process consumes, where it writes down what it has handled, and where it kills itself.
type processPlan struct {
	Broker, Store, Handled string
	// Point and Passing: it is killed by SIGKILL when it passes that point so many times. "" is never.
	Point   string
	Passing int32
}

// fateOf is what becomes of a record of the test: some come again once, some never succeed.
func fateOf(value string) (again, dead bool) {
	var p, i int
	_, _ = fmt.Sscanf(value, "%d:%d", &p, &i)
	return i%7 == 3, i%11 == 5
}

// beConsumer consumes until it is told to stop or kills itself.
func beConsumer(ctx context.Context, text string) error {
	var plan processPlan
	if err := json.Unmarshal([]byte(text), &plan); err != nil {
		return err
	}
	out, err := os.OpenFile(plan.Handled, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	store, err := sqlite.Open(ctx, sqlite.Config{Path: plan.Store})
	if err != nil {
		return err
	}
	source, err := sourcekafka.New(sourcekafka.Config{Brokers: []string{plan.Broker}, Topic: "in"})
	if err != nil {
		return err
	}
	var passed atomic.Int32
	c, err := New(Config{
		Source: source, Store: store, RunID: "r", CommitEvery: -1, TTL: time.Second, Standby: true, StandEvery: 20 * time.Millisecond,
		Order: ByKey, Concurrency: 3, MaxAttempts: 2, Quarantine: true, Retry: NewProducing(func() (sinks.Producer, error) {
			return sinkkafka.New(sinkkafka.Config{Brokers: []string{plan.Broker}, Topic: "in"})
		}),
		Handler: func(_ context.Context, d Delivery) Outcome {
			if _, err := fmt.Fprintf(out, "%s#%d\n", d.Value, d.Attempt); err != nil { // one write: whole or not at all
				panic(err)
			}
			if again, dead := fateOf(string(d.Value)); dead || again && d.Attempt == 1 {
				return Retry("not yet")
			}
			return Ack()
		},
		hook: func(point string) {
			if point == plan.Point && passed.Add(1) == plan.Passing {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {} // not one line further
			}
		},
	})
	if err != nil {
		return err
	}
	_, err = c.Run(ctx)
	return err
}

// A process that consumes is killed by SIGKILL at each point of its way, again and again. After every kill, whatever the journal has passed was handled;
// in the end everything was, what came again came again, and what never succeeded is a dead letter.
func TestAProcessIsKilled(t *testing.T) {
	t.Parallel()
	k := newKafkaWorld(t, "in")
	dir := t.TempDir()
	plan := processPlan{Broker: k.broker.Addr(), Store: filepath.Join(dir, "weir.db"), Handled: filepath.Join(dir, "handled")}
	points := []string{"handled", "published", "commit", "committed"}
	if !testing.Short() {
		points = append(points, points...)
	}
	rounds := 0
	for _, point := range points {
		k.putFrom("in", rounds*perRound, (rounds+1)*perRound)
		rounds++
		plan.Point, plan.Passing = point, int32(1+rounds/2)
		if status := k.life(t, plan, syscall.SIGKILL); status.Signal() != syscall.SIGKILL {
			t.Fatalf("at %q the process ended otherwise: %v", point, status)
		}
		k.passedIsHandled(t, plan)
	}
	plan.Point = ""
	k.putFrom("in", rounds*perRound, (rounds+1)*perRound)
	rounds++
	if status := k.life(t, plan, syscall.SIGTERM); status.ExitStatus() != 0 {
		t.Errorf("told to stop, the process ended with %d", status.ExitStatus())
	}
	k.passedIsHandled(t, plan)
	k.nothingIsLost(t, plan, rounds*perRound)
}

// life is that of a process, which has not merely lost its lease.
func (k *kafkaWorld) life(t *testing.T, p processPlan, end syscall.Signal) syscall.WaitStatus {
	t.Helper()
	for {
		if status := k.process(t, p, end); status.ExitStatus() != exitFenced {
			return status
		}
	}
}

// process starts a process and waits until it has ended, by itself or, once everything is committed, by a signal.
func (k *kafkaWorld) process(t *testing.T, p processPlan, end syscall.Signal) syscall.WaitStatus {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd, errs := exec.Command(self), &bytes.Buffer{}
	cmd.Env, cmd.Stderr = append(os.Environ(), asConsumer+"="+string(text)), errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if _, err := io.ReadAll(io.LimitReader(out, 1)); err != nil { // one that takes over may find everything committed
		t.Error(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	k.store = p.open(t)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; {
		select {
		case <-ended:
			if errs.Len() > 0 {
				t.Errorf("at %q: %s", p.Point, errs)
			}
			return cmd.ProcessState.Sys().(syscall.WaitStatus)
		case <-tick.C:
			if !told && k.committed() == k.ends() {
				told = true
				if err := cmd.Process.Signal(end); err != nil {
					t.Log(err) // it has just ended
				}
			}
		}
	}
}

func (p processPlan) open(t *testing.T) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: p.Store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// handledBy is how often each record was handled, with its attempt.
func (p processPlan) handledBy(t *testing.T) map[string]int {
	t.Helper()
	f, err := os.Open(p.Handled)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		out[lines.Text()]++
	}
	return out
}

// passedIsHandled: every record before a committed position was handled.
func (k *kafkaWorld) passedIsHandled(t *testing.T, plan processPlan) {
	t.Helper()
	store := plan.open(t)
	var cuts map[int32]partitions.Cut
	if err := store.Snapshot(t.Context(), "r", func(v control.JournalView) error { cuts = v.State().Cuts; return nil }); err != nil {
		t.Fatal(err)
	}
	handled, passed := plan.handledBy(t), 0
	for _, r := range k.all("in") {
		p := record.PartitionOf(r.Key, 4)
		if r.Position.Cmp(cuts[p].Next) >= 0 {
			continue
		}
		passed++
		if is := fmt.Sprintf("%s#%d", r.Value, partitions.Attempt(r.Headers)); handled[is] == 0 {
			t.Errorf("killed at %q: the journal has passed %s of partition %d at %s, which nobody has handled", plan.Point, is, p, r.Position)
		}
	}
	if n := int64(passed); n != cuts[0].Counts.Records+cuts[1].Counts.Records+cuts[2].Counts.Records+cuts[3].Counts.Records {
		t.Errorf("killed at %q: %d records are passed, the counts are %+v", plan.Point, n, cuts)
	}
}

func (k *kafkaWorld) nothingIsLost(t *testing.T, plan processPlan, n int) {
	t.Helper()
	handled, buried := plan.handledBy(t), map[string]int{}
	if err := k.store.Quarantine(t.Context(), "r", func(q partitions.Quarantined) error {
		r, ok := OpenEnvelope(record.Record{Value: q.Value})
		if !ok || q.Reason != ReasonDeadLetter || headersOf(r)[HeaderDeadAttempts] != "2" {
			t.Errorf("%+v", q)
		}
		buried[string(r.Value)]++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for p := range 4 {
		for i := range n {
			value := fmt.Sprintf("%d:%d", p, i)
			again, dead := fateOf(value)
			if handled[value+"#1"] == 0 || (handled[value+"#2"] > 0) != (again || dead) || handled[value+"#3"] > 0 || (buried[value] > 0) != dead {
				t.Errorf("%s: handled %d and %d times, dead letters %d", value, handled[value+"#1"], handled[value+"#2"], buried[value])
			}
		}
	}
	twice := 0
	for is, n := range handled {
		if n > 1 && strings.HasSuffix(is, "#1") {
			twice++
		}
	}
	if twice == 0 {
		t.Error("no record was handled twice: the kills came to nothing")
	}
}
