package parity

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/replay"
	"github.com/weirstream/weir/sinks/emit"
	"github.com/weirstream/weir/sources/logfile"
	"github.com/weirstream/weir/sources/snapshot"
)

const asideFlow = `flow: weir/1
name: aside
id: id
key: k
time: {field: t, unit: s}
lateness: 3s
max_future_skew: 2s
%s
operators:
  - {name: mean, type: sma, input: x, period: 2, gap: hold}
  - {name: slow, type: ema, input: {operator: mean}, period: 3}
outputs: [mean, slow]
`

// decidedStream is a stream of machines with an operator who replays and drops entries of the quarantine wherever it comes to him, and is restarted meanwhile.
// Its log has events that come too early, and records that cannot be read.
type decidedStream struct {
	t    *testing.T
	rng  *rand.Rand
	plan *flow.Plan
	// forgets: the decisions are not handed on. strays: the entries have other numbers than those of which the decisions speak.
	forgets, strays bool
	kinds           map[string]int
}

func (o *decidedStream) config(seed uint64) Config {
	o.t.Helper()
	dir := o.t.TempDir()
	var b strings.Builder
	for n := range 120 {
		fmt.Fprintf(&b, `{"id":"e%03d","k":"k%d","t":%d,"x":%d}`+"\n", n, o.rng.IntN(5), 1000+n/2, o.rng.IntN(100))
	}
	events := filepath.Join(dir, "snapshot.jsonl")
	if err := os.WriteFile(events, []byte(b.String()), 0o600); err != nil {
		o.t.Fatal(err)
	}
	schedule, err := replay.RandomSchedule(o.t.Context(), events, snapshot.FieldsOf(o.plan), seed, replay.Rates{
		Duplicate: 0.1, Delay: 0.2, Gap: 0.03, Revision: 0.05, MaxDelay: 12 * time.Second,
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return Config{Plan: o.plan, Snapshot: events, Schedule: schedule, Seed: seed, Partitions: 2, Dir: dir, Fetch: 1 + o.rng.IntN(30), Stream: o.stream}
}

// disturb writes the log again, with events that come too early and records that cannot be read.
func (o *decidedStream) disturb(path string) {
	o.t.Helper()
	o.rewrite(path, func(all []logfile.Arrival) []logfile.Arrival {
		for i := 0; i < len(all); i++ {
			what := o.rng.IntN(12)
			if bytes.Contains(all[i].Value, []byte(`"t":1059`)) {
				what = 0 // the last ones in event time
			}
			switch what {
			case 0: // one comes before its time
				to := max(0, i-6-o.rng.IntN(20))
				early := all[i]
				early.Time = all[to].Time
				all = slices.Insert(slices.Delete(all, i, i+1), to, early)
			case 1:
				all = slices.Insert(all, i, unreadable(all[i].Time, all[i].Key, i))
			}
		}
		return all
	})
}

func unreadable(at record.EventTime, key []byte, n int) logfile.Arrival {
	return logfile.Arrival{Time: at, EventID: fmt.Appendf(nil, "bad%d", n), Key: key, Value: []byte(`{"bad":1}`)}
}

// rewrite writes the log again with other arrivals.
func (o *decidedStream) rewrite(path string, change func([]logfile.Arrival) []logfile.Arrival) {
	o.t.Helper()
	r, err := logfile.Open(path)
	if err != nil {
		o.t.Fatal(err)
	}
	defer r.Close()
	var all []logfile.Arrival
	for {
		var a logfile.Arrival
		if err := r.Next(&a); err == io.EOF {
			break
		} else if err != nil {
			o.t.Fatal(err)
		}
		a.EventID, a.Key, a.Value = slices.Clone(a.EventID), slices.Clone(a.Key), slices.Clone(a.Value)
		all = append(all, a)
	}
	all = change(all)
	f, err := logfile.Create(path, r.Header())
	if err != nil {
		o.t.Fatal(err)
	}
	for i := range all {
		if err := f.Arrival(&all[i]); err != nil {
			o.t.Fatal(err)
		}
	}
	if _, err := f.Commit(); err != nil {
		o.t.Fatal(err)
	}
}

// movedTheEnd counts partitions whose event time went on when an entry was replayed behind their last record.
const movedTheEnd = "moved the end"

// operatedPart is one partition, and what has come of it.
type operatedPart struct {
	*decidedStream
	m         *partitions.Machine
	partition int32
	blobs     map[string][]byte
	aside     []partitions.Quarantined
	stands    []int64
	rows      []byte
	out       *Outcome
}

func (p *operatedPart) step(ev partitions.Event) {
	p.t.Helper()
	var eff partitions.Effects
	if err := p.m.Step(ev, &eff); err != nil {
		p.t.Fatal(err)
	}
	for _, q := range eff.Quarantine {
		q.Number = int64(len(p.aside))
		p.aside = append(p.aside, q)
		if partitions.Replayable(q.Reason) {
			p.stands = append(p.stands, q.Number)
		}
		if p.strays {
			q.Number += 1000
		}
		p.out.Exceptions.add(q)
	}
	for _, d := range eff.Decisions {
		if a, ok := d.Aside(); ok {
			p.kinds[a.Outcome]++
		}
		if _, again := d.Event(); again && !p.forgets {
			p.out.Decisions = append(p.out.Decisions, d)
		}
	}
	p.rows = append(p.rows, eff.Rows.Data...)
}

// operate decides about one of the entries that stand, or restarts.
func (p *operatedPart) operate() {
	p.t.Helper()
	switch n := p.rng.IntN(6); {
	case n == 0:
		c := p.m.Cut()
		for _, b := range c.Put {
			p.blobs[b.Name] = b.Data
		}
		for _, name := range c.Delete {
			delete(p.blobs, name)
		}
		p.restore()
	case n < 4 && len(p.stands) > 0:
		i := p.rng.IntN(len(p.stands))
		entry := p.aside[p.stands[i]]
		if n == 3 && entry.Reason != partitions.ReasonFuture || entry.Reason == partitions.ReasonUnreadable && n > 1 {
			p.step(partitions.Discard{Entry: entry, Why: "by ana: of no use"})
			p.stands = slices.Delete(p.stands, i, i+1)
			return
		}
		before := len(p.out.Decisions)
		p.step(partitions.Reinstate{Entry: entry, Why: "by bo: once more"})
		if p.forgets || p.out.Decisions[before].Kind == partitions.DecisionReplayed {
			p.stands = slices.Delete(p.stands, i, i+1)
		}
	}
}

func (p *operatedPart) restore() {
	p.t.Helper()
	var err error
	p.m, err = partitions.Restore(p.plan, p.partition, func(yield func(partitions.StateBlob) error) error {
		for name, data := range p.blobs {
			if err := yield(partitions.StateBlob{Name: name, Data: data}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func (o *decidedStream) stream(ctx context.Context, job Job) (out Outcome, err error) {
	o.disturb(job.LogPath)
	all, err := readAll(ctx, job)
	if err != nil {
		return out, err
	}
	var parts []*operatedPart
	for n := range int32(2) {
		p := o.part(n, &out)
		parts = append(parts, p)
		late := o.rng.IntN(2) == 0 // nobody decides before the end
		for log, at := all[n], 0; at < len(log); {
			to := min(len(log), at+1+o.rng.IntN(8))
			p.deliver(log[at:to])
			if at = to; !late {
				p.operate()
			}
		}
		newest := p.m.MaxEventTime()
		for range 20 {
			p.operate()
		}
		if p.m.MaxEventTime() > newest {
			o.kinds[movedTheEnd]++
		}
	}
	return out, errors.Join(ctx.Err(), o.end(job, parts, &out))
}

func (o *decidedStream) part(n int32, out *Outcome) *operatedPart {
	return &operatedPart{decidedStream: o, m: partitions.New(o.plan, n), partition: n, blobs: map[string][]byte{}, out: out}
}

func (p *operatedPart) deliver(records []record.Record) {
	p.t.Helper()
	p.step(partitions.Deliver{Batch: &record.Batch{Partition: p.partition, Records: records, Next: records[len(records)-1].Position.Next()}})
}

// end ends the partitions as the engine does, and writes the document of the stream.
func (o *decidedStream) end(job Job, parts []*operatedPart, out *Outcome) (err error) {
	d := emit.New(job.Plan, emit.ModeStream)
	d.Positions = map[int32]record.Position{}
	through := record.NoTime
	for _, p := range parts {
		through = max(through, p.m.MaxEventTime())
	}
	var runs []emit.Run
	for _, p := range parts {
		p.step(partitions.EndOfSource{Through: through})
		d.Positions[p.partition], d.Counts = p.m.Next(), emit.Add(d.Counts, p.m.Counts())
		runs = append(runs, func(yield func([]byte, error) bool) { yield(p.rows, nil) })
	}
	out.Doc, err = emit.Write(d, job.Plan, runs, job.Emit, job.Keep)
	return err
}

func decidedBy(t *testing.T, more string, seed uint64) *decidedStream {
	t.Helper()
	plan, err := flow.Parse("flow.yaml", fmt.Appendf(nil, asideFlow, more), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &decidedStream{t: t, rng: rand.New(rand.NewPCG(seed, 5)), plan: plan, kinds: map[string]int{}}
}

var asideFlows = map[string]string{
	"event":    "",
	"numbered": "revision: revision",
	"grid":     "clock: {every: 5s}",
	"hold":     "hold_key: {records: 25}",
}

// Batch over the snapshot, corrected by what the stream has recorded, is equal to a stream in which an operator has replayed and dropped entries of the
// quarantine: what came in counts with its value, also when it came in at the very end, and what waited for its key in the order in which it went on.
func TestWhatAnOperatorHasReplayedIsExplained(t *testing.T) {
	t.Parallel()
	for name, more := range asideFlows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kinds, reasons := map[string]int{}, map[string]int{}
			for seed := range uint64(10) {
				o := decidedBy(t, more, seed)
				r, err := Run(t.Context(), o.config(seed))
				if err != nil {
					t.Fatal(err)
				}
				if r.Verdict == Different {
					t.Fatalf("seed %d: %v, %+v", seed, r.Reasons, r.Divergence)
				}
				for _, x := range r.Explained {
					reasons[x.Reason]++
				}
				for kind, n := range o.kinds {
					kinds[kind] += n
				}
			}
			want := []string{partitions.OutcomeConsumed, partitions.OutcomeDuplicate, partitions.OutcomeDropped, partitions.ReasonFuture, movedTheEnd}
			if name == "hold" {
				want = append(want, partitions.ReasonHeldOverflow)
				if reasons[partitions.DecisionKeyHeld] == 0 {
					t.Errorf("nothing went on behind the watermark: %v", reasons)
				}
			}
			for _, kind := range want {
				if kinds[kind] == 0 {
					t.Errorf("no entry was %s: %v", kind, kinds)
				}
			}
		})
	}
}

// The negative controls: a replay without the decisions is another one, and batch without the events that came in by a replay has other results.
func TestWhatAnOperatorHasReplayedIsNotLeftOut(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*decidedStream){
		"forgotten": func(o *decidedStream) { o.forgets = true },
		"dropped":   func(o *decidedStream) { o.strays = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			came, different := 0, 0
			for seed := range uint64(6) {
				o := decidedBy(t, "", seed)
				change(o)
				r, err := Run(t.Context(), o.config(seed))
				if err != nil {
					t.Fatal(err)
				}
				if o.kinds[partitions.OutcomeConsumed] == 0 {
					continue
				}
				if came++; r.Verdict == Different {
					different++
				}
			}
			// An event may have come another time, later: then it is in all the same.
			if came == 0 || different < came/2 || name == "forgotten" && different < came {
				t.Errorf("%d of %d streams with replayed entries are different", different, came)
			}
		})
	}
}

// What waited for its key goes on in the order in which the entries before it were decided about, which may not be that of event time. Batch is equal, given
// that order; a stream with other values is not.
func TestTheOrderOfAHeldKeyIsExplained(t *testing.T) {
	t.Parallel()
	for _, wrong := range []bool{false, true} {
		o := decidedBy(t, "hold_key: {records: 9}", 1)
		cfg := o.config(1)
		cfg.Schedule = nil
		var keys []string
		for i := 0; len(keys) < 2; i++ {
			if key := fmt.Sprintf("k%d", i); record.PartitionOf([]byte(key), 2) == 0 {
				keys = append(keys, key)
			}
		}
		row := func(id, key string, at int) string {
			return fmt.Sprintf(`{"id":%q,"k":%q,"t":%d,"x":%d}`+"\n", id, key, at, at%10*at)
		}
		events := row("a", keys[0], 1001) + row("c", keys[0], 1011) + row("b", keys[0], 1013) + row("d", keys[0], 1014) + row("far", keys[1], 1050)
		if err := os.WriteFile(cfg.Snapshot, []byte(events), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.Stream = func(ctx context.Context, job Job) (out Outcome, err error) {
			o.rewrite(job.LogPath, func(in []logfile.Arrival) []logfile.Arrival {
				a, c, b, d, far := in[0], in[1], in[2], in[3], in[4]
				c.Time, far.Time = b.Time, far.Time+1e9
				return []logfile.Arrival{a, unreadable(a.Time, a.Key, 0), b, unreadable(b.Time, a.Key, 1), c, d, far}
			})
			all, err := readAll(ctx, job)
			if err != nil {
				return out, err
			}
			parts := []*operatedPart{o.part(0, &out), o.part(1, &out)}
			parts[0].deliver(all[0])
			for n := range 2 {
				parts[0].step(partitions.Discard{Entry: parts[0].aside[n], Why: "by ana: of no use"})
			}
			return out, o.end(job, parts, &out)
		}
		if wrong { // the snapshot says something else than what was streamed
			inner := cfg.Stream
			cfg.Stream = func(ctx context.Context, job Job) (Outcome, error) {
				out, err := inner(ctx, job)
				return out, errors.Join(err, os.WriteFile(cfg.Snapshot, []byte(strings.Replace(events, `"x":3039`, `"x":3040`, 1)), 0o600))
			}
		}
		r, err := Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if wrong {
			if r.Verdict != Different || len(r.Reasons) != 2 || !strings.Contains(r.Reasons[1], `event "b" of key`) {
				t.Errorf("%s, %q", r.Verdict, r.Reasons)
			}
			continue
		}
		var behind []string
		for _, x := range r.Explained {
			if x.Reason == partitions.DecisionKeyHeld {
				behind = append(behind, x.EventID+" "+x.Position.String())
			}
		}
		if r.Verdict != EqualExplained || fmt.Sprint(behind) != "[c 4]" {
			t.Errorf("%s: %v, %+v; behind %v", r.Verdict, r.Reasons, r.Divergence, behind)
		}
	}
}
