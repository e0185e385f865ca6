package drill

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stepTold has a daemon tell of every batch that was processed.
const stepTold = "after_step=tell"

// The bounds of how long a rebalance may stop a partition.
const (
	unmovedWithin = 100 * time.Millisecond
	movedWithin   = time.Second
)

// The kinds of what happens in a step of the script.
const (
	byMove  = "move"  // a daemon joins, or is asked to end
	byFault = "fault" // a daemon is killed or stopped
	calmly  = "calm"  // nothing
)

// window is one step of the script, from its beginning until everything had settled. hurt is the process that had a fault.
type window struct {
	kind         string
	began, ended time.Time
	hurt         int
}

// advance is one moment at which a partition got further: the record at from, and everything before next, is processed, or committed.
type advance struct {
	at         time.Time
	pid        int
	from, next int64
}

// stop is the longest time in a window in which a partition had something to do and did nothing of it. moved: at another process afterwards.
type stop struct {
	moved bool
	took  time.Duration
}

// judgeStanding measures how long partitions stood still that had records to process.
func (f *flock) judgeStanding() {
	stops := map[string][]time.Duration{}
	commits := map[string][]time.Duration{}
	for n := range f.Partitions {
		processed, committed := f.advances(n)
		for _, w := range f.windows {
			s, ok := f.track.stop(n, w, processed)
			if !ok || f.given(w.hurt, n) {
				continue // it had nothing to do, or was with the process that had the fault
			}
			name := w.name(s.moved)
			stops[name] = append(stops[name], s.took)
			if c, ok := f.track.stop(n, w, committed); ok {
				// A commit may be due that much later than the records.
				commits[name] = append(commits[name], max(0, c.took-apartEpoch))
			}
		}
	}
	machine := time.Duration(0)
	for _, w := range f.windows {
		if w.kind == byMove {
			machine = max(machine, f.waits.longest(w))
		}
	}
	f.figure("machine_stood_longest", machine)
	for name, all := range stops {
		f.spread(name+"_stood", all)
	}
	for name, all := range commits {
		f.spread(name+"_uncommitted", all)
	}
	for name, within := range map[string]time.Duration{"unmoved": unmovedWithin, "moved": movedWithin} {
		all := stops[name]
		longest := slices.Max(append(all, 0))
		f.promise(len(all) > 0 && longest <= within+f.Grace, fmt.Sprintf("a rebalance stops a partition that is %s and has records for at most %s", name, within+f.Grace),
			"%s at most, in %d cases of %d moves; without a rebalance %s; a process that does nothing stood for %s meanwhile", longest.Round(time.Millisecond), len(all), f.Moves,
			slices.Max(append(stops[calmly], 0)).Round(time.Millisecond), machine.Round(time.Millisecond))
	}
}

// given says whether a process was ever given a partition.
func (f *flock) given(pid int, n int32) bool {
	for _, p := range f.hurt {
		if p.pid == pid {
			_, _, is := p.when(fmt.Sprintf("weir: partition %d assigned", n))
			return is
		}
	}
	return false
}

// spread notes the median and the greatest of some times.
func (f *flock) spread(name string, all []time.Duration) {
	slices.Sort(all)
	f.figure(name+"_median", all[len(all)/2])
	f.figure(name+"_longest", all[len(all)-1])
}

// name is that of the figures for what was seen in a window.
func (w window) name(moved bool) string {
	switch {
	case w.kind == calmly:
		return calmly
	case moved && w.kind == byMove:
		return "moved"
	case moved:
		return "moved_by_fault"
	case w.kind == byMove:
		return "unmoved"
	}
	return "unmoved_by_fault"
}

// advances are the moments at which a partition got further than ever before: by what was processed, and by what was committed.
func (f *flock) advances(n int32) (processed, committed []advance) {
	for _, p := range append(slices.Clone(f.healthy), f.hurt...) {
		p.mu.Lock()
		for _, s := range p.steps {
			if from, err := strconv.ParseInt(s.Position, 10, 64); err == nil && s.Partition == n {
				processed = append(processed, advance{at: s.Time, pid: p.pid, from: from, next: from + 1})
			}
		}
		for _, l := range p.lines {
			if at, partition, next, ok := committedLine(l.text); ok && partition == n {
				committed = append(committed, advance{at: at, pid: p.pid, next: next})
			}
		}
		p.mu.Unlock()
	}
	return onwards(processed), onwards(committed)
}

// onwards sorts by time, and leaves out what had been reached before: work that is done again is no advance.
func onwards(all []advance) (out []advance) {
	slices.SortFunc(all, func(a, b advance) int { return a.at.Compare(b.at) })
	reached := int64(0)
	for _, a := range all {
		if a.next > reached {
			a.from = max(a.from, reached)
			out = append(out, a)
			reached = a.next
		}
	}
	return out
}

// committedLine reads the line of a commit of a partition: when, and how many of its records are committed.
func committedLine(text string) (at time.Time, partition int32, next int64, ok bool) {
	if !strings.Contains(text, " msg=committed ") {
		return at, 0, 0, false
	}
	value := func(key string) string {
		_, rest, _ := strings.Cut(text, key+"=")
		v, _, _ := strings.Cut(rest, " ")
		return v
	}
	at, err1 := time.Parse(time.RFC3339Nano, value("time"))
	n, err2 := strconv.ParseInt(value("partition"), 10, 32)
	next, err3 := strconv.ParseInt(value("records"), 10, 64)
	return at, int32(n), next, err1 == nil && err2 == nil && err3 == nil
}

// stop is how long a partition stood still in a window: the longest time between two advances of which some is in the window, counted from when
// the first record was handed over that it had not passed. What was not written yet stops nothing. It is false when the partition had nothing to do.
func (t *track) stop(n int32, w window, all []advance) (s stop, ok bool) {
	pid := 0
	for i, a := range all {
		if i == 0 || a.at.Before(w.began) {
			pid = a.pid
			continue
		}
		since, known := t.when(n, a.from)
		for _, at := range []time.Time{all[i-1].at, w.began} {
			if since.Before(at) {
				since = at
			}
		}
		if !known || since.After(w.ended) {
			break
		}
		ok = true
		s.moved = s.moved || a.pid != pid
		s.took = max(s.took, a.at.Sub(since))
	}
	return s, ok
}

// waitEvery is how often the waiter wakes.
const waitEvery = 5 * time.Millisecond

// waiter wakes and does nothing, to see how long the machine lets a process stand that has nothing to do with a run.
type waiter struct {
	stop context.CancelFunc
	done chan struct{}
	late []lateness
}

// lateness is how much later than asked for the waiter woke, and when.
type lateness struct {
	at time.Time
	by time.Duration
}

func startWaiter(ctx context.Context) *waiter {
	ctx, stop := context.WithCancel(ctx)
	w := &waiter{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		timer := time.NewTimer(waitEvery)
		defer timer.Stop()
		for {
			slept := time.Now()
			timer.Reset(waitEvery)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			if now := time.Now(); now.Sub(slept) > 2*waitEvery {
				w.late = append(w.late, lateness{now, now.Sub(slept) - waitEvery})
			}
		}
	}()
	return w
}

// close ends it. It may be called again.
func (w *waiter) close() {
	w.stop()
	<-w.done
}

// longest is how long it stood at most in a window; only after close.
func (w *waiter) longest(in window) (most time.Duration) {
	for _, l := range w.late {
		if l.at.After(in.began) && l.at.Add(-l.by).Before(in.ended) {
			most = max(most, l.by)
		}
	}
	return most
}
