package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/record"
)

// lateness tells of a run that has read everything, while its newest events wait for event time to move on. It is told when nothing else is: a log in
// which records come all the time has such events at any moment.
func (w *answer) lateness() bool {
	if !w.s.Live {
		return false
	}
	var waits []string
	newest, from := NoEventTime, (*time.Time)(nil)
	for i := range w.s.Partitions {
		p := &w.s.Partitions[i]
		still := p.WatermarkSince != nil && w.s.At.Sub(*p.WatermarkSince) >= silentAfter
		if p.Input == finishedStatus || p.MaxEventTime.T == record.NoTime || p.MaxEventTime.T < p.Watermark.T || !still || unread(p) {
			continue
		}
		waits = append(waits, fmt.Sprintf("%d (watermark %s, newest %s)", p.Partition, p.Watermark, p.MaxEventTime))
		newest.T = max(newest.T, p.MaxEventTime.T)
		if from == nil || p.WatermarkSince.After(*from) {
			from = p.WatermarkSince
		}
	}
	if len(waits) == 0 {
		return false
	}
	more := ""
	if n := len(waits) - namedPartitions; n > 0 {
		waits, more = waits[:namedPartitions], fmt.Sprintf(" and %d more", n)
	}
	w.add(Reason{Code: WhyLateness, Run: w.s.Run, Holder: "the flow's lateness", Since: from, Holds: true,
		Text: fmt.Sprintf("everything is read, and events from the watermark on wait for it in partition %s%s: it stays the flow's lateness behind the newest event, up to %s, since an older one may still come",
			strings.Join(waits, ", "), more, newest),
		Release: "newer events in these partitions; or the end of the input, where it has one (--once-n)"})
	return true
}

// withLateness adds what tells of lateness to other reasons, where it may be what is waited for: they tell of partitions that are confirmed idle, and, once
// nothing moves in any, of silent ones. A partition that lags no more than events come out of order is no silent one: lateness is told first then, since
// calling that one idle would release nothing.
func withLateness(reasons, lateness []Reason, at time.Time, peers []Partition) []Reason {
	still, mingled := resting(at, peers)
	for _, r := range reasons {
		if r.Code != WhyIdle && !(still && (r.Code == WhySilent || r.Code == WhyNeverRead)) {
			return reasons
		}
	}
	if mingled && slices.ContainsFunc(reasons, func(r Reason) bool { return r.Code == WhySilent }) {
		return append(lateness, reasons...)
	}
	return append(reasons, lateness...)
}

// resting says whether nothing comes in any partition, and whether the newest event of each is one that the others would still take.
func resting(at time.Time, peers []Partition) (still, mingled bool) {
	furthest := record.NoTime
	for i := range peers {
		p := &peers[i]
		if p.Input == finishedStatus || p.Input == "IDLE" {
			continue
		}
		if unread(p) || p.WatermarkSince != nil && at.Sub(*p.WatermarkSince) < silentAfter {
			return false, false
		}
		furthest = max(furthest, p.Watermark.T)
	}
	return true, !slices.ContainsFunc(peers, func(p Partition) bool {
		return p.Input != finishedStatus && p.Input != "IDLE" && p.MaxEventTime.T < furthest
	})
}

// namedPartitions is how many partitions one sentence names.
const namedPartitions = 3

// unread says whether a partition has something to read.
func unread(p *Partition) bool {
	if p.Readable != nil {
		return *p.Readable > 0
	}
	return p.LagSeconds != nil && *p.LagSeconds > 0
}

// time is what holds the watermark of a partition, and by it the merged one.
func (w *answer) time(p *Partition, name string, add func(Reason)) {
	if p.Input == "FINISHED" {
		return
	}
	stale := w.stale(p, name, add)
	holder := w.holds(p)
	if g := p.Gap; g != nil && g.At.T != record.NoTime && p.Watermark.T >= g.At.T {
		key := "one key"
		if g.Key != "" {
			key = fmt.Sprintf("key %q", g.Key)
		}
		more := ""
		switch {
		case g.Open == 2:
			more = ", and another gap is open"
		case g.Open > 2:
			more = fmt.Sprintf(", and %d more gaps are open", g.Open-1)
		}
		add(Reason{Code: WhyGap, Since: g.Since, Holds: true, Release: "the missing events, a recorded decision to close the gap, or event time that moves on by the flow's gap hold",
			Text: fmt.Sprintf("%s waits at %s for an event that is known to be missing: numbers %d to %d of %s%s", name, p.Watermark, g.First, g.Last, key, more)})
		return
	}
	if p.Input == "IDLE" {
		add(Reason{Code: WhyIdle, Since: p.InputSince, Text: fmt.Sprintf("%s is confirmed idle and left out of the merged watermark", name), Release: "its next record"})
		return
	}
	if !holder || stale || p.Blocked != nil || p.Hold != nil || p.Unobserved != nil {
		return
	}
	w.silent(p, name, add)
}

// stale tells of records that come and move nothing.
func (w *answer) stale(p *Partition, name string, add func(Reason)) (told bool) {
	for _, a := range p.Aside {
		if a.Stale == 0 || p.WatermarkSince != nil && a.Since != nil && w.s.At.Sub(*a.Since) < staleAfter {
			continue
		}
		switch a.Reason {
		case "FUTURE":
			add(Reason{Code: WhyFuture, Since: a.Since, Holds: true, Release: "records of the present; or a flow with another max_future_skew, if the clocks of the producers are right",
				Text: fmt.Sprintf("%s has set aside %s from the future since its watermark moved last, to %s: that moves no watermark", name, records(&a.Stale), p.Watermark)})
			told = true
		case "LATE":
			add(Reason{Code: WhyLate, Since: a.Since, Holds: true, Release: "records that are newer than the watermark; one record with a time far ahead may have moved it there",
				Text: fmt.Sprintf("%s has set aside %s as late since its watermark moved last, to %s", name, records(&a.Stale), p.Watermark)})
			told = true
		}
	}
	return told
}

// staleAfter is how long records have to be set aside, with nothing else moving the watermark, before that is called a stall.
const staleAfter = 10 * time.Second

// silentAfter is how long a partition holds the merged watermark, with others ahead, before that is told.
const silentAfter = 5 * time.Second

// silent tells of a partition that holds the merged watermark because nothing comes, or because it is behind.
func (w *answer) silent(p *Partition, name string, add func(Reason)) {
	ahead, furthest := false, record.NoTime
	for _, q := range w.peers {
		if q.Partition != p.Partition && q.Input != "FINISHED" && q.Watermark.T > p.Watermark.T {
			ahead, furthest = true, max(furthest, q.Watermark.T)
		}
	}
	if !ahead {
		return
	}
	from := p.WatermarkSince
	if from != nil && w.s.At.Sub(*from) < silentAfter {
		return
	}
	switch {
	case unread(p):
		add(Reason{Code: WhyBehind, Since: from, Holds: true, Release: "reading on; the others wait for it",
			Text: fmt.Sprintf("%s holds the merged watermark at %s: it is behind in event time, with %s to read; the furthest is at %s", name, p.Watermark, records(p.Readable), EventTime{furthest})})
	case p.MaxEventTime.T == record.NoTime && p.Watermark.T == record.NoTime:
		add(Reason{Code: WhyNeverRead, Since: from, Holds: true, Release: w.silentRelease(),
			Text: fmt.Sprintf("%s holds the merged watermark: it has had no event yet; the furthest is at %s", name, EventTime{furthest})})
	default:
		add(Reason{Code: WhySilent, Since: from, Holds: true, Release: w.silentRelease(),
			Text: fmt.Sprintf("%s holds the merged watermark at %s: no event has moved it for %s; the furthest is at %s", name, p.Watermark, age(w.s.At, from), EventTime{furthest})})
	}
}

// silentRelease is what ends a silence. The store alone does not tell a silent partition from one that its process has blocked.
func (w *answer) silentRelease() string {
	const ends = "its next record; or a recorded decision that it is idle: `weir idle confirm`, or the flow's idle policy"
	if !w.s.Live && w.s.Lease.State != LeaseFree {
		return "first ask the process with --url whether the partition is blocked; if it is not: " + ends
	}
	return ends
}

func (w *answer) holds(p *Partition) bool {
	for _, h := range w.s.Holders {
		if h == p.Partition {
			return true
		}
	}
	return false
}
