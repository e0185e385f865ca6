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
			bad := logfile.Arrival{Time: all[i].Time, EventID: fmt.Appendf(nil, "bad%d", i), Key: all[i].Key, Value: []byte(`{"bad":1}`)}
			all = slices.Insert(all, i, bad)
		}
	}
	header := r.Header()
	f, err := logfile.Create(path, header)
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
	d := emit.New(job.Plan, emit.ModeStream)
	d.Positions = map[int32]record.Position{}
	var parts []*operatedPart
	through := record.NoTime
	for n := range int32(2) {
		p := &operatedPart{decidedStream: o, m: partitions.New(o.plan, n), partition: n, blobs: map[string][]byte{}, out: &out}
		parts = append(parts, p)
		late := o.rng.IntN(2) == 0 // nobody decides before the end
		for log, at := all[n], 0; at < len(log); {
			to := min(len(log), at+1+o.rng.IntN(8))
			p.step(partitions.Deliver{Batch: &record.Batch{Partition: n, Records: log[at:to], Next: log[to-1].Position.Next()}})
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
		through = max(through, p.m.MaxEventTime())
	}
	var runs []emit.Run
	for _, p := range parts {
		p.step(partitions.EndOfSource{Through: through})
		d.Positions[p.partition], d.Counts = p.m.Next(), emit.Add(d.Counts, p.m.Counts())
		runs = append(runs, func(yield func([]byte, error) bool) { yield(p.rows, nil) })
	}
	out.Doc, err = emit.Write(d, job.Plan, runs, job.Emit, job.Keep)
	return out, errors.Join(err, ctx.Err())
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
			for seed := range uint64(12) {
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
			for seed := range uint64(12) {
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
