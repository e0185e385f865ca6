package board

import (
	"maps"
	"slices"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/status"
	"github.com/weirstream/weir/watermark"
)

// part is what is known of one partition.
type part struct {
	n       int32
	account *status.Account
	facts   status.Facts

	next               record.Position
	watermark, maxTime record.EventTime
	watermarkSince     time.Time
	input              watermark.Status
	inputSince         time.Time
	counts             partitions.Counts
	progress           time.Time
	blocked            *status.Cause
	blockedSince       time.Time
	release            string
	gap                watermark.Gap
	held               partitions.Held
	heldSince          time.Time
	gaps               int
	gapSince           time.Time
	aside              map[string]*asideOf
	queue              status.Queue
	undone             actors.Undone
	pressure           status.Pressure
	reasons            []status.Pressure
	extent             sources.Extent
	observed           bool
	reading            sources.Lag
	unanswered         *status.Cause
	unansweredSince    time.Time
	risk               *status.Risk
}

type asideOf struct {
	total, stale int64
	since        time.Time
}

func newPart(b *Board, n int32, at time.Time) *part {
	p := &part{n: n, watermark: record.NoTime, maxTime: record.NoTime, watermarkSince: at, inputSince: at, progress: at, aside: map[string]*asideOf{}}
	p.pressure.State = backpressure.Flowing.String()
	p.account = status.NewAccount(p.state(b), at)
	return p
}

func (p *part) state(b *Board) status.State {
	f := p.facts
	f.Phase, f.Wait = b.phase, b.wait
	f.Finished = p.input == watermark.Finished
	f.Idle = p.input == watermark.Idle
	f.Blocked = p.blocked != nil || p.pressure.State == backpressure.RecoveryBlocked.String()
	f.Held = f.Held || p.pressure.State == backpressure.SourcePaused.String() || p.pressure.State == backpressure.ProcessPaused.String()
	return f.State()
}

func (p *part) settle(b *Board, at time.Time) { p.account.To(p.state(b), at) }

// reset forgets what belonged to the incarnation before.
func (p *part) reset() {
	p.facts = status.Facts{}
	p.queue, p.undone = status.Queue{}, actors.Undone{}
	if p.pressure.State != backpressure.RecoveryBlocked.String() {
		p.pressure, p.reasons = status.Pressure{State: backpressure.Flowing.String()}, nil
	}
}

// moved takes a position, and when it is another one, the moment.
func (p *part) moved(next record.Position, at time.Time) {
	if next != p.next {
		p.next, p.progress = next, at
	}
}

func (p *part) raised(w record.EventTime, at time.Time) {
	if w == p.watermark {
		return
	}
	p.watermark, p.watermarkSince = w, at
	for _, a := range p.aside {
		a.stale, a.since = 0, time.Time{}
	}
}

// keep takes what stands in the journal of the partition.
func (p *part) keep(r *actors.PartitionResult, at time.Time) {
	p.moved(r.Next, at)
	p.raised(r.Watermark, at)
	p.counts = r.Counts
	if r.Finished {
		p.turn(watermark.Finished, at)
	}
	switch {
	case r.Status != actors.PartitionBlocked:
		p.blocked, p.release = nil, ""
	case p.blocked == nil:
		p.blocked, p.blockedSince = status.CauseOf(r.Cause), at
		if r.Block != nil {
			p.release, p.blockedSince = r.Block.Release, r.Block.Since
		}
	}
}

func (p *part) turn(s watermark.Status, at time.Time) {
	if s != p.input {
		p.input, p.inputSince = s, at
	}
}

// cut takes a partition as it is in a commit.
func (p *part) cut(c *actors.PartitionProgress, b *Board, at time.Time) {
	p.moved(c.Next, at)
	p.turn(c.Input, at)
	p.counts, p.maxTime = c.Counts, c.MaxEventTime
	for reason, n := range c.SetAside {
		a := p.aside[reason]
		if a == nil {
			a = &asideOf{}
			p.aside[reason] = a
		}
		if a.stale == 0 {
			a.since = at
		}
		a.total += n
		a.stale += n
	}
	p.raised(c.Watermark, at)
	p.holds(c.Held, b.cfg.ShowKeys, at)
	gap := c.Gap
	if !b.cfg.ShowKeys {
		gap.Key = ""
	}
	if c.OpenGaps == 0 {
		gap = watermark.Gap{}
	}
	if c.OpenGaps > 0 && (p.gaps == 0 || gap.Anchor != p.gap.Anchor || gap.Key != p.gap.Key) {
		p.gapSince = at
	}
	p.gap, p.gaps = gap, c.OpenGaps
}

// holds takes the keys that wait.
func (p *part) holds(h partitions.Held, show bool, at time.Time) {
	if !show {
		h.Key = ""
	}
	if h.Keys > 0 && (p.held.Keys == 0 || h.Position != p.held.Position) {
		p.heldSince = at
	}
	p.held = h
}

func (p *part) queued(q actors.Queue) {
	p.queue = status.Queue{Records: q.Records, Bytes: q.Bytes, WindowRecords: q.WindowRecords, WindowBytes: q.WindowBytes, Aside: q.Aside}
	p.undone = q.Undone
	p.facts.Busy = q.Records > 0 || q.Bytes > 0
	p.facts.Aside = q.Aside > 0
	p.facts.Held = !q.State.Reads()
}

// endOf says which reason the end of a pressure ends.
var endOf = map[backpressure.Reason]backpressure.Reason{
	backpressure.LagDrained: backpressure.LagHigh, backpressure.BytesDrained: backpressure.BytesHigh, backpressure.DiskFreed: backpressure.DiskLow,
	backpressure.BufferDrained: backpressure.BufferFull, "EVENT_TIME_ALIGNED": "EVENT_TIME_AHEAD",
}

// unanswer takes why the log did not say how the partition stands; nil: it did.
func (p *part) unanswer(err error, at time.Time) {
	if err != nil && p.unanswered == nil {
		p.unansweredSince = at
	}
	p.unanswered = status.CauseOf(err)
}

// pressed takes a transition. Several reasons may stand at once: the one that came last is shown.
func (p *part) pressed(t backpressure.Transition, at time.Time) {
	ended, isEnd := endOf[t.Reason]
	if t.Reason == backpressure.OperatorChoice {
		ended, isEnd = t.Choice.Settles, true
	}
	if !isEnd {
		ended = t.Reason // it takes the new values
	}
	p.reasons = slices.DeleteFunc(p.reasons, func(s status.Pressure) bool { return s.Reason == string(ended) })
	if !isEnd {
		p.reasons = append(p.reasons, status.Pressure{Reason: string(t.Reason), Measured: t.Measured, Threshold: t.Threshold, Detail: t.Detail, Since: &at})
	}
	if t.To == backpressure.Flowing {
		p.reasons = nil
	}
	p.pressure = status.Pressure{}
	if n := len(p.reasons); n > 0 {
		p.pressure = p.reasons[n-1]
	}
	p.pressure.State, p.pressure.Release = t.To.String(), t.Release
}

// snapshot is the partition as a document has it.
func (p *part) snapshot(b *Board, at time.Time) status.Partition {
	spent, began := p.account.Spent(at)
	state, since := p.account.State()
	undone := status.Undone{Records: p.undone.Records, Bytes: p.undone.Bytes, Since: moment(p.undone.Since)}
	if undone.Since != nil {
		oldest := p.undone.Oldest.String()
		undone.Oldest = &oldest
	}
	out := status.Partition{
		Partition: p.n, State: state, StateSince: moment(since), Began: moment(began), Seconds: make(map[status.State]float64, len(spent)),
		Next: p.next.String(), Watermark: status.EventTime{T: p.watermark}, WatermarkSince: moment(p.watermarkSince), MaxEventTime: status.EventTime{T: p.maxTime},
		Input: p.input.String(), InputSince: moment(p.inputSince), Pressure: p.pressure, Queue: p.queue, Undone: &undone,
		Blocked: p.blocked, Counts: countsOf(p.counts), Progress: moment(p.progress),
	}
	for s, d := range spent {
		out.Seconds[s] = d.Seconds()
	}
	if p.blocked != nil {
		out.Input, out.BlockedSince, out.Release = "BLOCKED", moment(p.blockedSince), p.release
	}
	if p.gaps > 0 {
		out.Gap = &status.Gap{Key: p.gap.Key, First: p.gap.First, Last: p.gap.Last, At: status.EventTime{T: p.gap.Anchor}, Since: moment(p.gapSince), Open: p.gaps}
	}
	if p.held.Keys > 0 {
		out.Held = &status.Held{Keys: p.held.Keys, Records: p.held.Records, Key: p.held.Key, Position: p.held.Position.String(), Since: moment(p.heldSince)}
	}
	for _, reason := range slices.Sorted(maps.Keys(p.aside)) {
		a := p.aside[reason]
		out.Aside = append(out.Aside, status.Aside{Reason: reason, Total: a.total, Stale: a.stale, Since: moment(a.since)})
	}
	out.Risk = p.risk
	if out.Unobserved = p.unanswered; p.unanswered != nil {
		out.UnobservedSince = moment(p.unansweredSince)
	}
	p.lag(&out, b, at)
	return out
}

// quiet is how long the word of a log that nothing is left counts: it is asked again within seconds, unless the partition is not read.
const quiet = 10 * time.Second

// behind is the lag of a log that says itself how far the reading is behind its end, but not where that is.
func (p *part) behind(out *status.Partition, b *Board, at time.Time) {
	lag := p.reading
	done := lag.Behind == 0 && p.next.Cmp(lag.Read) >= 0 && at.Sub(lag.At) < quiet
	if done {
		out.LagRecords, out.Readable, out.LagSeconds = new(int64), new(int64), new(float64)
		return
	}
	behind := (lag.Behind + max(at.Sub(lag.At), 0)).Seconds()
	out.LagSeconds = &behind
	out.Stalled = lag.Behind > 0 && b.phase == status.PhaseRunning && at.Sub(p.progress) >= b.cfg.Stalled
}

// lag is how far the partition is behind its log.
func (p *part) lag(out *status.Partition, b *Board, at time.Time) {
	switch {
	case !p.reading.At.IsZero():
		p.behind(out, b, at)
		return
	case !p.observed:
		return
	}
	e := p.extent
	out.Start, out.Stable, out.End = text(e.Start), text(e.Stable), text(e.End)
	if n, ok := status.Distance(p.next, e.End); ok {
		out.LagRecords = &n
	}
	if n, ok := status.Distance(p.next, e.Stable); ok {
		out.Readable = &n
	}
	if h := e.Hold; h != nil && out.LagRecords != nil && *out.LagRecords > 0 {
		out.Hold = &status.Hold{Reason: string(h.Reason), By: h.By, Since: moment(h.Since), Ends: moment(h.Ends)}
	}
	readable := p.next.Cmp(e.Stable) < 0
	switch {
	case p.next.Cmp(e.End) >= 0:
		out.LagSeconds = new(float64)
	case p.maxTime != record.NoTime && p.maxTime != record.MaxTime:
		behind := max(at.Sub(time.Unix(0, int64(p.maxTime))), 0).Seconds()
		out.LagSeconds = &behind
	}
	out.Stalled = readable && b.phase == status.PhaseRunning && at.Sub(p.progress) >= b.cfg.Stalled
}

func text(p record.Position) *string {
	s := p.String()
	return &s
}

func countsOf(c partitions.Counts) status.Counts {
	return status.Counts{
		Records: c.Records, Consumed: c.Consumed, Filtered: c.Filtered, Omitted: c.Omitted, Duplicates: c.Duplicates, Late: c.Late, Future: c.Future, Outputs: c.Outputs,
	}
}
