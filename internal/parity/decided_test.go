package parity

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/replay"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/logfile"
	"github.com/weirstream/weir/sources/sourcetest"
)

const decidedFlow = `flow: weir/1
name: decided
id: id
key: k
time: {field: t, unit: s}
lateness: 2s
sequence: {field: n, gap_hold: 1h}
operators:
  - {name: mean, type: sma, input: x, period: 2}
outputs: [mean]
`

// operated is a stream that an operator has to help: the event number 7 of key a never comes, number 10 does not come in time, records 10 to 12 of key b's partition are lost, and once
// all that was decided number 10 arrives, which is late then.
type operated struct {
	t       *testing.T
	keys    [2]string // of partition 0 and 1
	forgets bool      // the decisions are not handed on
	journal string
}

func newOperated(t *testing.T) *operated {
	t.Helper()
	o := &operated{t: t}
	for i := 0; o.keys[0] == "" || o.keys[1] == ""; i++ {
		key := fmt.Sprintf("key%d", i)
		o.keys[record.PartitionOf([]byte(key), 2)] = key
	}
	return o
}

func (o *operated) config() Config {
	o.t.Helper()
	dir := o.t.TempDir()
	plan, err := flow.Parse("flow.yaml", []byte(decidedFlow), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	var snapshot strings.Builder
	for n := 1; n <= 20; n++ {
		for p, key := range o.keys {
			if p == 1 || n != 7 {
				fmt.Fprintf(&snapshot, `{"id":"%s-%d","k":"%s","t":%d,"n":%d,"x":%d}`+"\n", key, n, key, 1000+n, n, n*n)
			}
		}
	}
	events := filepath.Join(dir, "snapshot.jsonl")
	if err := os.WriteFile(events, []byte(snapshot.String()), 0o600); err != nil {
		o.t.Fatal(err)
	}
	schedule, err := replay.ParseSchedule("faults.json", fmt.Appendf(nil, `{"format":"fault-schedule/1","seed":1,"faults":[{"event_id":"%s-10","kind":"DELAY","domain_ms":60000}]}`, o.keys[0]))
	if err != nil {
		o.t.Fatal(err)
	}
	return Config{Plan: plan, Snapshot: events, Schedule: schedule, Seed: 1, Partitions: 2, Dir: dir, Stream: o.stream}
}

// stream runs the engine with its operator.
func (o *operated) stream(ctx context.Context, job Job) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	all, err := readAll(ctx, job)
	if err != nil {
		return Outcome{}, err
	}
	last := len(all[0]) - 1
	log := sourcetest.New(sourcetest.Config{Partitions: 2, MaxWait: 10 * time.Millisecond})
	log.Append(0, all[0][:last]...)
	log.Append(1, all[1]...)
	log.FailAt(1, record.Offset(10), &sources.Fault{Partition: 1, Need: record.Offset(10), After: record.Offset(13), Known: true, Err: codes.New(codes.OffsetLost, "injected")})
	o.journal = filepath.Join(job.Dir, "operated.db")
	store, err := sqlite.Open(ctx, sqlite.Config{Path: o.journal})
	if err != nil {
		return Outcome{}, err
	}
	defer store.Close()

	e := startHelped(ctx, o.t, store, actors.Config{Plan: job.Plan, Source: log})
	e.until("the block", func(p actors.Progress) bool { return len(p.Blocked) == 1 && p.Counts.Records == int64(last+10) })
	e.ask(control.Intervention{Partition: 1, Kind: control.AcceptGap, From: record.Offset(10), To: record.Offset(13)})
	total := int64(len(all[0]) + len(all[1]) - 3)
	e.until("the rest of the partition", func(p actors.Progress) bool { return p.Counts.Records == total-1 })
	for _, n := range []int64{7, 10} {
		e.ask(control.Intervention{Partition: 0, Kind: control.CloseGap, Key: o.keys[0], Sequence: n})
	}
	e.ask(control.Intervention{Partition: 1, Kind: control.ConfirmIdle})
	log.Append(0, all[0][last:]...)
	e.until("the last record", func(p actors.Progress) bool { return p.Counts.Records == total })
	e.stop()
	if err := e.finish(total); err != nil {
		return Outcome{}, err
	}
	out, err := fromStore(ctx, job, store, runID)
	if o.forgets {
		out.Decisions = nil
	}
	return out, err
}

// readAll copies the records of an arrival log, by partition.
func readAll(ctx context.Context, job Job) (all [2][]record.Record, err error) {
	r, err := logfile.NewSource(job.LogPath, logfile.SourceConfig{Partitions: job.Partitions}).Open(ctx, map[int32]record.Position{0: {}, 1: {}})
	if err != nil {
		return all, err
	}
	defer r.Close()
	for {
		batches, err := r.Poll(ctx, 0)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		for i := range batches {
			for _, rec := range batches[i].Records {
				rec.Key, rec.Value = slices.Clone(rec.Key), slices.Clone(rec.Value)
				headers := slices.Clone(rec.Headers)
				for k := range headers {
					headers[k].Value = slices.Clone(headers[k].Value)
				}
				rec.Headers = headers
				all[batches[i].Partition] = append(all[batches[i].Partition], rec)
			}
			batches[i].Done()
		}
	}
}

// A run of the engine in which an operator accepted a loss, closed a gap and confirmed an input idle replays to the same bits, and batch is equal but
// for what was given up and what was late.
func TestARunThatAnOperatorHelped(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	cfg := o.config()
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != EqualExplained {
		t.Fatalf("%s: %v, %+v", r.Verdict, r.Reasons, r.Divergence)
	}
	reasons := map[string]int{}
	for _, x := range r.Explained {
		reasons[x.Reason]++
	}
	if want := map[string]int{partitions.ReasonLate: 1, partitions.DecisionLossAccepted: 3}; fmt.Sprint(reasons) != fmt.Sprint(want) {
		t.Errorf("explained by %v, want %v", reasons, want)
	}
	if c := r.Replay.Counts; c.Late != 1 || c.Records != r.Arrivals-3 || r.Replay.Rows != r.Stream.Rows || c != r.Stream.Counts {
		t.Errorf("the replay counts %+v, the stream %+v", c, r.Stream.Counts)
	}

	// The same by the store of the run and the log alone.
	store, err := sqlite.Open(t.Context(), sqlite.Config{Path: o.journal})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	of := RunConfig{Plan: cfg.Plan, Store: store, Run: runID, Dir: t.TempDir(), Source: logfile.NewSource(filepath.Join(cfg.Dir, logName), logfile.SourceConfig{Partitions: 2})}
	run, err := OfRun(t.Context(), of)
	if err != nil || len(run.Reasons) > 0 || run.Replay.ValuesHash != r.Stream.ValuesHash || len(run.Decisions) != 4 {
		t.Errorf("%v, %v, %d decisions", err, run.Reasons, len(run.Decisions))
	}
	for name, change := range map[string]func(*RunConfig){
		"an open run": func(c *RunConfig) { c.Run = o.open(store) },
		"other partitions": func(c *RunConfig) {
			c.Source = logfile.NewSource(filepath.Join(cfg.Dir, logName), logfile.SourceConfig{Partitions: 3})
		},
		"another flow": func(c *RunConfig) { c.Plan = o.other() },
	} {
		bad := of
		change(&bad)
		if _, err := OfRun(t.Context(), bad); !codes.Has(err, codes.RunMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func (o *operated) other() *flow.Plan {
	plan, err := flow.Parse("flow.yaml", []byte(strings.Replace(decidedFlow, "period: 2", "period: 3", 1)), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	return plan
}

// open makes a run that has not ended.
func (o *operated) open(store *sqlite.Store) string {
	plan, err := flow.Parse("flow.yaml", []byte(decidedFlow), nil)
	if err != nil {
		o.t.Fatal(err)
	}
	if _, err := store.OpenRun(o.t.Context(), control.RunHeader{RunID: "open", Fingerprint: plan.Fingerprint, Source: "log", Partitions: []int32{0, 1}}); err != nil {
		o.t.Fatal(err)
	}
	return "open"
}

// The negative control: without the decisions of the run its replay is another one.
func TestAReplayWithoutDecisionsDiffers(t *testing.T) {
	t.Parallel()
	o := newOperated(t)
	o.forgets = true
	r, err := Run(t.Context(), o.config())
	if err != nil || r.Verdict != Different {
		t.Errorf("%s, %v", r.Verdict, err)
	}
}
