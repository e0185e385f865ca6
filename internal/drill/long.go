package drill

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/replay"
	"github.com/weirstream/weir/sources/snapshot"
)

// longText is the flow of the long drill: every record counts, and the state of every instrument goes through each restore.
const longText = `flow: weir/1
name: drill
id: event_id
key: instrument
time: {field: event_time, unit: rfc3339}
revision: revision
lateness: 5s
dedupe: {horizon: 1h}
clock: event
operators:
  - {name: ema3, type: ema, input: close, period: 3, gap: reject}
  - {name: ema9, type: ema, input: close, period: 9, gap: hold}
outputs: [ema3, ema9]
limits: {ids: %d, keys: 1000, reorder: %d, ticks: %d}
`

func longFlow(records int64) []byte {
	n := max(2*records, 100_000)
	return fmt.Appendf(nil, longText, n, n, n)
}

const (
	longInstruments = 40
	longRate        = 200
	longSeed        = 7
	// asleep is how long an owner is stopped, in terms of its lease.
	asleep = 2.5
)

// mishap is one planned fault of the long drill.
type mishap struct{ point, action string }

// at is the point with its epoch: the owner commits once before it has its mishap, where that is possible.
func (m mishap) at() string {
	name := failpointOf(m.point)
	if m.early() {
		return name
	}
	return name + "@+2"
}

// early says whether the point comes before anything is read.
func (m mishap) early() bool {
	return slices.Contains([]string{string(actors.BeforeOpen), string(actors.AfterRestore)}, failpointOf(m.point))
}

// mishaps are n kills, at one point after the other, and a stop at every second of the points.
func (d *drill) mishaps() (out []mishap) {
	points := d.points()
	// The steps of the store that make a difference come before those that do not.
	slices.SortStableFunc(points, func(a, b string) int { return rank(a) - rank(b) })
	for i := range d.Faults {
		point := points[i%len(points)]
		out = append(out, mishap{point, "kill"})
		if i%2 == 0 {
			out = append(out, mishap{point, "stop"})
		}
	}
	return out
}

func rank(point string) int {
	switch failpointOf(point) {
	case "store:commit", "store:committed":
		return 1
	case "store:begin", "store:locked", "store:compare and set":
		return 2
	}
	return 0
}

// long is the long drill.
func (d *drill) long(ctx context.Context) error {
	log, err := d.longLog(ctx)
	if err != nil {
		return err
	}
	return d.play(ctx, plan{"long", d.ShortTTL, func(p *part, ctx context.Context) error { return p.endure(ctx, log) }})
}

// longLog makes the input of the long drill, and notes how many records it has.
func (d *drill) longLog(ctx context.Context) (string, error) {
	events, log := filepath.Join(d.Dir, "snapshot.jsonl"), filepath.Join(d.Dir, "arrivals.log")
	faults := filepath.Join(d.Dir, "faults.json")
	err := replay.Generate(ctx, replay.GenerateConfig{
		Events: d.Records, Instruments: longInstruments, Seed: longSeed, Rate: longRate, Snapshot: events, Faults: faults,
		Disorder: 0.05, MaxDelay: 4 * time.Second, Gaps: 0.001, Duplicates: 0.02,
	})
	if err != nil {
		return "", err
	}
	schedule, err := readSchedule(faults)
	if err != nil {
		return "", err
	}
	built, err := replay.Build(ctx, replay.BuildConfig{Snapshot: events, Fields: snapshot.FieldsOf(d.plan), Schedule: schedule, Out: log})
	if err != nil {
		return "", err
	}
	d.report.Records = built.Arrivals
	return log, nil
}

// endure runs owner after owner, each with its mishap and a stand-by behind it, and compares the outcome with that of a run that was left alone.
func (p *part) endure(ctx context.Context, log string) error {
	p.pace = []string{"--epoch", "200ms"}
	t, err := p.newTopic(ctx, p.name, p.Partitions)
	if err != nil {
		return err
	}
	defer t.close()
	p.on(t)
	feeding, stop := context.WithCancel(ctx)
	defer stop()
	feed := t.slices(feeding, log, nil)
	last, token, err := p.suffer(ctx, feed)
	if err != nil {
		return err
	}
	if err := feed.next(p.report.Records); err != nil {
		return err
	}
	if err := last.wait(ctx, patience); err != nil {
		return err
	}
	return p.equal(ctx, last, token)
}

// suffer lets one owner after the other have its mishap, and returns the one that has none, and its token.
func (p *part) suffer(ctx context.Context, feed *sliced) (*process, control.FenceToken, error) {
	all := p.mishaps()
	slice := p.report.Records / int64(len(all)+2)
	start := func(i int) (*process, error) {
		o := options{standby: true}
		if i < len(all) {
			o.points = all[i].at() + "=" + all[i].action
		}
		return p.weir(fmt.Sprintf("owner%d", i+1), o)
	}
	var sleepers sync.WaitGroup
	defer sleepers.Wait()
	var mu sync.Mutex
	var failed error
	owner, err := start(0)
	for i := 0; err == nil && i < len(all); i++ {
		m, by, token := all[i], owner, control.FenceToken(i+1)
		if _, err = p.owned(ctx, by, token, patience); err != nil {
			break
		}
		// One stand-by at a time: which of two takes over is chance.
		var next *process
		if next, err = start(i + 1); err != nil {
			break
		}
		if err = p.hurt(ctx, by, token, m, feed, slice); err != nil {
			break
		}
		if m.action == "stop" {
			sleepers.Go(func() {
				if err := p.sleeper(ctx, by, m); err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = err
				}
			})
		}
		owner = next
	}
	if err != nil {
		return nil, 0, err
	}
	sleepers.Wait()
	return owner, control.FenceToken(len(all) + 1), failed
}

// hurt gives the owner a slice of the input in two halves, with a commit in between, and waits for its mishap.
func (p *part) hurt(ctx context.Context, owner *process, token control.FenceToken, m mishap, feed *sliced, slice int64) error {
	before, _, err := p.state(ctx)
	if err != nil {
		return err
	}
	if err := feed.next(slice / 2); err != nil {
		return err
	}
	if !m.early() {
		err := p.await(ctx, owner, patience, func() (bool, error) {
			s, _, err := p.state(ctx)
			_, already := owner.fault()
			return already || s.Epoch > before.Epoch, err
		}, "%s commits", owner.name)
		if err != nil {
			return err
		}
	}
	if err := feed.next(slice - slice/2); err != nil {
		return err
	}
	err = p.fires(ctx, owner, failpointOf(m.point), m.action)
	s, _, stateErr := p.state(ctx)
	p.promise(err == nil && stateErr == nil, m.action+" at "+m.at(), "owner %d (pid %d), journal at epoch %d with %d records; %s", token, owner.pid, s.Epoch, records(s), orOK(err))
	return err
}

// sleeper wakes a stopped owner long after its lease has run out, and checks that it publishes nothing more.
func (p *part) sleeper(ctx context.Context, by *process, m mishap) error {
	timer := time.NewTimer(time.Duration(asleep * float64(p.ttl)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := by.thaw(); err != nil {
		return err
	}
	return p.refused(ctx, by, "who was stopped at "+m.point+" and wakes", "STREAM_FENCE_OBSOLETO")
}

// equal compares what the last owner has published with a run that was left alone.
func (p *part) equal(ctx context.Context, last *process, token control.FenceToken) error {
	p.promise(last.code() == 0, "the last owner ends with exit code 0", "%s", or(codeText(last), tail(last.said())))
	disturbed, err := readEmit(p.emitFile(last.name[len(p.name)+1:]))
	if err != nil {
		return err
	}
	alone, err := p.weir("alone", options{run: p.run + "-alone"})
	if err != nil {
		return err
	}
	if err := alone.wait(ctx, patience); err != nil {
		return err
	}
	want, err := readEmit(p.emitFile("alone"))
	if err != nil {
		return fmt.Errorf("the run that is left alone: %w; it said:\n%s", err, tail(alone.said()))
	}
	set := map[string]bool{}
	for _, id := range disturbed.Events {
		set[id] = true
	}
	p.promise(len(set) == len(disturbed.Events), "no event id is published twice", "%d ids, %d of them different", len(disturbed.Events), len(set))
	p.promise(slices.Equal(disturbed.Events, want.Events) && len(want.Events) > 0, "the events are those of the run that was left alone", "%d and %d", len(disturbed.Events), len(want.Events))
	p.promise(disturbed.ValuesHash == want.ValuesHash, "values_hash is that of the run that was left alone", "%s and %s", disturbed.ValuesHash, want.ValuesHash)
	p.promise(maps.Equal(disturbed.Positions, want.Positions), "the positions are those of the run that was left alone", "%v", disturbed.Positions)
	a, b := disturbed, want
	p.promise(a.Consumed == b.Consumed && a.Omitted == b.Omitted && a.Duplicates == b.Duplicates && a.Late == b.Late && a.Future == b.Future && a.Filtered == b.Filtered,
		"every record is counted as in the run that was left alone", "consumed %d, omitted %d, duplicates %d, late %d", a.Consumed, a.Omitted, a.Duplicates, a.Late)
	s, _, err := p.state(ctx)
	if err != nil {
		return err
	}
	p.promise(s.Status == control.RunFinished && records(s) == p.report.Records, "the journal is FINISHED with every record", "%s, %d/%d", s.Status, records(s), p.report.Records)
	p.promise(s.Fence == token && disturbed.FenceToken == uint64(token), "every owner had a token of its own", "the last one %d, after %d mishaps", s.Fence, token-1)
	return p.published(ctx, int(token))
}

func codeText(p *process) string {
	if p.code() == codes.ExitOK {
		return p.how()
	}
	return ""
}
