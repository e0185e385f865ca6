package watermark

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
)

// inputLog is one partition's events, out of order by at most the lateness.
type inputLog struct {
	events []record.EventTime
	next   int
	p      *Partition
}

const mergeLateness = 20

func randomLogs(r *rand.Rand, n int) []*inputLog {
	logs := make([]*inputLog, n)
	for i := range logs {
		l := &inputLog{p: NewPartition(mergeLateness, 0)}
		at := record.EventTime(r.IntN(50))
		for range 1 + r.IntN(80) {
			at += record.EventTime(r.IntN(8))
			l.events = append(l.events, at-record.EventTime(r.IntN(mergeLateness+1)))
		}
		logs[i] = l
	}
	return logs
}

// oldestToCome is the minimum over all events that were not processed, or record.MaxTime.
func oldestToCome(logs []*inputLog) record.EventTime {
	low := record.MaxTime
	for _, l := range logs {
		for _, e := range l.events[l.next:] {
			low = min(low, e)
		}
	}
	return low
}

// TestMergeUnderAnyInterleaving (B39): whatever the interleaving, with restarts and rescales from N to M workers in between, the merged
// watermark is monotone, never above an event to come, the numeric minimum of the partitions, and the same at the end.
func TestMergeUnderAnyInterleaving(t *testing.T) {
	seeds(t, 150, func(t *testing.T, r *rand.Rand) {
		n := 1 + r.IntN(6)
		logs := randomLogs(r, n)
		ends := map[record.EventTime]int{}
		for range 3 {
			for _, l := range logs {
				l.next, l.p = 0, NewPartition(mergeLateness, 0)
			}
			ends[interleave(t, r, logs)]++
		}
		if len(ends) != 1 {
			t.Fatalf("the end depends on the interleaving: %v", ends)
		}
	})
}

// interleave plays the logs in a random interleaving and returns the last value before the inputs are finished.
func interleave(t *testing.T, r *rand.Rand, logs []*inputLog) record.EventTime {
	workers := split(t, r, len(logs), NewMerge(numbers(len(logs))))
	before := record.NoTime
	for left := pending(logs); left > 0; left = pending(logs) {
		i := r.IntN(len(logs))
		l := logs[i]
		for range min(1+r.IntN(10), len(l.events)-l.next) {
			l.p.Observe(l.events[l.next])
			l.next++
		}
		switch r.IntN(6) {
		case 0:
			l.p.Pause()
		case 1:
			l.p.Resume()
		}
		owner(t, workers, int32(i)).Update(int32(i), l.p.Status(), l.p.Watermark())
		value := whole(workers)
		if value < before {
			t.Fatalf("the merge moved backwards from %d to %d", before, value)
		}
		if low := oldestToCome(logs); value > low {
			t.Fatalf("the merge is at %d, an event of %d is to come", value, low)
		}
		if want := minimum(logs); value != want {
			t.Fatalf("the merge is at %d, the minimum is %d", value, want)
		}
		before = value
		if r.IntN(10) == 0 {
			workers = split(t, r, len(logs), workers...)
			if value := whole(workers); value != before {
				t.Fatalf("rescaling moved the merge from %d to %d", before, value)
			}
		}
	}
	return before
}

func pending(logs []*inputLog) int {
	n := 0
	for _, l := range logs {
		n += len(l.events) - l.next
	}
	return n
}

func minimum(logs []*inputLog) record.EventTime {
	low := record.MaxTime
	for _, l := range logs {
		low = min(low, l.p.Watermark())
	}
	return low
}

func numbers(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// split hands all partitions over to a random number of workers, each restored from bytes.
func split(t *testing.T, r *rand.Rand, n int, from ...*Merge) []*Merge {
	t.Helper()
	own := make([][]int32, 1+r.IntN(n))
	for i := range int32(n) {
		// The first worker has at least partition 0, the others what falls to them, if anything.
		w := 0
		if i > 0 {
			w = r.IntN(len(own))
		}
		own[w] = append(own[w], i)
	}
	var workers []*Merge
	for _, ps := range own {
		if len(ps) == 0 {
			continue
		}
		m, err := Rescale(ps, from...)
		if err != nil {
			t.Fatal(err)
		}
		q := NewMerge(nil)
		if err := q.Restore(m.Snapshot(nil)); err != nil {
			t.Fatal(err)
		}
		workers = append(workers, q)
	}
	return workers
}

func owner(t *testing.T, workers []*Merge, partition int32) *Merge {
	t.Helper()
	for _, m := range workers {
		if _, owned := m.index[partition]; owned {
			return m
		}
	}
	t.Fatalf("partition %d has no owner", partition)
	return nil
}

// whole is the watermark of a run over its workers: the minimum.
func whole(workers []*Merge) record.EventTime {
	low := record.MaxTime
	for _, m := range workers {
		low = min(low, m.Watermark())
	}
	return low
}

// TestMergeIsMonotone throws every kind of update at the merge, old values and statuses after the end included.
func TestMergeIsMonotone(t *testing.T) {
	seeds(t, 100, func(t *testing.T, r *rand.Rand) {
		n := 1 + r.IntN(5)
		m := NewMerge(numbers(n))
		before := record.NoTime
		for range 400 {
			status := Status(r.IntN(int(Finished)))
			if r.IntN(80) == 0 {
				status = Finished
			}
			w, moved := m.Update(int32(r.IntN(n)), status, record.EventTime(r.IntN(1000)))
			if w < before || moved != (w != before) || w != m.Watermark() {
				t.Fatalf("from %d to %d, moved %v", before, w, moved)
			}
			if finished := allFinished(m); (w == record.MaxTime) != finished {
				t.Fatalf("value %d, all finished %v", w, finished)
			}
			before = w
		}
	})
}

func allFinished(m *Merge) bool {
	all := true
	m.Each(func(_ int32, s Status, _ record.EventTime) bool { all = s == Finished; return all })
	return all
}

func TestEmptyMerge(t *testing.T) {
	t.Parallel()
	m := NewMerge(nil)
	if m.Watermark() != record.NoTime {
		t.Errorf("no partition, watermark %d", m.Watermark())
	}
	m, err := Rescale([]int32{3})
	if err != nil || m.Watermark() != record.NoTime {
		t.Errorf("rescaled from nothing: %d, %v", m.Watermark(), err)
	}
	if w, moved := m.Update(3, Finished, record.NoTime); w != record.MaxTime || !moved {
		t.Errorf("finished without an event: %d, %v", w, moved)
	}
}

func FuzzMergeRestore(f *testing.F) {
	m := NewMerge([]int32{3, -1, 7})
	m.Update(3, Active, 50)
	m.Update(-1, Idle, 20)
	m.Update(7, Finished, -4)
	f.Add(m.Snapshot(nil))
	f.Add(NewMerge(nil).Snapshot(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, src []byte) {
		m := NewMerge([]int32{1})
		before := m.Snapshot(nil)
		if err := m.Restore(src); err != nil {
			if !errors.Is(err, ErrSnapshot) || !bytes.Equal(m.Snapshot(nil), before) {
				t.Fatalf("%v left %x", err, m.Snapshot(nil))
			}
			return
		}
		if got := m.Snapshot(nil); !bytes.Equal(got, src) {
			t.Fatalf("restored %x, snapshot %x", src, got)
		}
		before2 := m.Watermark()
		if w, _ := m.Update(1, Active, 10); w < before2 {
			t.Fatalf("moved backwards from %d to %d", before2, w)
		}
	})
}

func FuzzPartitionRestore(f *testing.F) {
	p := NewPartition(5, 1000)
	f.Add(p.Snapshot(nil))
	p.Sequence("a", 1, 100)
	p.Sequence("a", 9, 110)
	p.Sequence("", -4, 111)
	p.Sequence("a", 5, 105)
	p.Observe(111)
	p.Idle()
	p.Pause()
	f.Add(p.Snapshot(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, src []byte) {
		p := NewPartition(time.Second, time.Minute)
		before := p.Snapshot(nil)
		if err := p.Restore(src); err != nil {
			if !errors.Is(err, ErrSnapshot) || !bytes.Equal(p.Snapshot(nil), before) {
				t.Fatalf("%v left %x", err, p.Snapshot(nil))
			}
			return
		}
		if got := p.Snapshot(nil); !bytes.Equal(got, src) {
			t.Fatalf("restored %x, snapshot %x", src, got)
		}
		w := p.Watermark()
		p.Sequence("a", 6, 200)
		p.Observe(200)
		if p.Watermark() < w {
			t.Fatalf("W moved backwards from %d to %d", w, p.Watermark())
		}
	})
}

// TestRestoreRefusesEveryCut: no prefix of a snapshot restores, and nothing may follow it.
func TestRestoreRefusesEveryCut(t *testing.T) {
	t.Parallel()
	p := NewPartition(5, 1000)
	p.Sequence("a", 1, 100)
	p.Sequence("a", 9, 110)
	p.Observe(110)
	m := NewMerge([]int32{1, 2})
	for name, c := range map[string]struct {
		snapshot []byte
		restore  func([]byte) error
	}{
		"partition": {p.Snapshot(nil), NewPartition(5, 1000).Restore},
		"merge":     {m.Snapshot(nil), NewMerge(nil).Restore},
	} {
		for n := range c.snapshot {
			if err := c.restore(c.snapshot[:n]); !errors.Is(err, ErrSnapshot) {
				t.Errorf("%s: %d of %d bytes restored: %v", name, n, len(c.snapshot), err)
			}
		}
		if err := c.restore(append(c.snapshot, 0)); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: a trailing byte was accepted: %v", name, err)
		}
	}
}
