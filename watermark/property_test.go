package watermark

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
)

// seeds runs a property for many seeds in parallel; the failing one is the name of the subtest.
func seeds(t *testing.T, n uint64, property func(t *testing.T, r *rand.Rand)) {
	t.Parallel()
	for seed := range n {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			property(t, rand.New(rand.NewPCG(seed, 0x77656972)))
		})
	}
}

// naive is the watermark written down number by number, without ranges, heaps or shortcuts.
type naive struct {
	lateness, hold record.EventTime
	max, w         record.EventTime
	keys           map[string]*naiveKey
	ranges         int
}

type naiveKey struct {
	last    int64
	at      record.EventTime
	missing map[int64]naiveGap
}

type naiveGap struct {
	run    int
	anchor record.EventTime
}

func newNaive(lateness, hold time.Duration) *naive {
	return &naive{
		lateness: record.EventTime(lateness), hold: record.EventTime(hold),
		max: record.NoTime, w: record.NoTime, keys: map[string]*naiveKey{},
	}
}

func (n *naive) sequence(key string, seq int64, t record.EventTime) {
	n.number(key, seq, t)
	n.expire(max(n.max, t))
	n.raise()
}

func (n *naive) number(key string, seq int64, t record.EventTime) {
	k, known := n.keys[key]
	if !known {
		n.keys[key] = &naiveKey{last: seq, at: t, missing: map[int64]naiveGap{}}
		return
	}
	if seq > k.last {
		n.ranges++
		for m := k.last + 1; m < seq; m++ {
			k.missing[m] = naiveGap{run: n.ranges, anchor: k.at}
		}
		k.last, k.at = seq, t
	} else if g, missing := k.missing[seq]; missing {
		delete(k.missing, seq)
		n.ranges++
		for m, o := range k.missing {
			if o.run == g.run && m > seq {
				k.missing[m] = naiveGap{run: n.ranges, anchor: max(g.anchor, t)}
			}
		}
	}
}

func (n *naive) observe(t record.EventTime) {
	n.max = max(n.max, t)
	n.expire(n.max)
	n.raise()
}

func (n *naive) expire(now record.EventTime) {
	for _, k := range n.keys {
		for m, g := range k.missing {
			if now-g.anchor >= n.hold {
				delete(k.missing, m)
			}
		}
	}
}

func (n *naive) raise() {
	if n.max == record.NoTime {
		return
	}
	w := n.max - n.lateness
	for _, k := range n.keys {
		for _, g := range k.missing {
			w = min(w, g.anchor)
		}
	}
	n.w = max(n.w, w)
}

func (n *naive) close(key string, seq int64) bool {
	k, known := n.keys[key]
	if !known {
		return false
	}
	g, missing := k.missing[seq]
	for m, o := range k.missing {
		if missing && o.run == g.run {
			delete(k.missing, m)
		}
	}
	n.raise()
	return missing
}

func (n *naive) open() int {
	runs := map[int]bool{}
	for _, k := range n.keys {
		for _, g := range k.missing {
			runs[g.run] = true
		}
	}
	return len(runs)
}

// TestPartitionEqualsNaive feeds random numbers, times, decisions and restarts to the partition and to its naive twin: the
// watermark, the verdicts and the number of open ranges are the same after every step, W never moves backwards, and Observe reports
// every move.
func TestPartitionEqualsNaive(t *testing.T) {
	seeds(t, 200, func(t *testing.T, r *rand.Rand) {
		lateness, hold := time.Duration(r.IntN(20)), time.Duration(r.IntN(60))
		p, n := NewPartition(lateness, hold), newNaive(lateness, hold)
		now, told := record.EventTime(0), record.NoTime
		for range 600 {
			before := p.Watermark()
			key := string(rune('a' + r.IntN(3)))
			switch r.IntN(20) {
			case 0:
				seq := n.top(key) - int64(r.IntN(8))
				if got, want := p.CloseGap(key, seq), n.close(key, seq); got != want {
					t.Fatalf("CloseGap(%s, %d) = %v, want %v", key, seq, got, want)
				}
			case 1:
				p = restarted(t, p)
				told = p.Watermark()
			default:
				now += record.EventTime(r.IntN(6))
				at := now - record.EventTime(r.IntN(25))
				seq := n.top(key) + int64(r.IntN(9)) - 4
				if got, want := p.IsLate(at), at < n.w; got != want {
					t.Fatalf("IsLate(%d) = %v with W %d", at, got, n.w)
				}
				p.Sequence(key, seq, at)
				n.sequence(key, seq, at)
				same(t, p, n)
				moved := p.Observe(at)
				n.observe(at)
				if moved != (p.Watermark() != told) {
					t.Fatalf("Observe reported %v, W went from %d to %d", moved, told, p.Watermark())
				}
				told = p.Watermark()
			}
			same(t, p, n)
			if p.Watermark() < before {
				t.Fatalf("W moved backwards from %d to %d", before, p.Watermark())
			}
		}
	})
}

func (n *naive) top(key string) int64 {
	if k, known := n.keys[key]; known {
		return k.last
	}
	return 100
}

func same(t *testing.T, p *Partition, n *naive) {
	t.Helper()
	if p.Watermark() != n.w || p.MaxEventTime() != n.max || p.OpenGaps() != n.open() {
		t.Fatalf("W %d max %d open %d, want W %d max %d open %d",
			p.Watermark(), p.MaxEventTime(), p.OpenGaps(), n.w, n.max, n.open())
	}
}

// restarted sends the state through a snapshot into a new partition, which must be byte-identical.
func restarted(t *testing.T, p *Partition) *Partition {
	t.Helper()
	snapshot := p.Snapshot(nil)
	q := NewPartition(time.Duration(p.lateness), time.Duration(p.gapHold))
	q.IdleAfterPolls(p.idleAfter)
	if err := q.Restore(snapshot); err != nil {
		t.Fatal(err)
	}
	if again := q.Snapshot(nil); !bytes.Equal(snapshot, again) {
		t.Fatalf("restored state differs:\n%x\n%x", snapshot, again)
	}
	return q
}

// TestPartsAreTheSnapshot saves only the parts that changed, as a cut does: together they are always the whole state.
func TestPartsAreTheSnapshot(t *testing.T) {
	seeds(t, 20, func(t *testing.T, r *rand.Rand) {
		p := NewPartition(10, 200)
		var saved [][]byte
		skipped := 0
		for cut := range 60 {
			for range r.IntN(200) {
				at := record.EventTime(cut*20 + r.IntN(40))
				key := fmt.Sprint("key", r.IntN(1+20*cut))
				p.Sequence(key, int64(r.IntN(30)), at)
				if r.IntN(3) > 0 {
					p.Observe(at)
				}
				if r.IntN(20) == 0 {
					p.CloseGap(key, int64(r.IntN(30)))
				}
			}
			for part := range p.Parts() {
				switch {
				case part == len(saved):
					saved = append(saved, p.AppendPart(nil, part))
				case p.Changed(part):
					saved[part] = p.AppendPart(nil, part)
				default:
					skipped++
				}
			}
			p.Saved()
			whole := slices.Concat(saved...)
			if !bytes.Equal(whole, p.Snapshot(nil)) {
				t.Fatalf("cut %d: the saved parts are not the state", cut)
			}
			if r.IntN(4) == 0 {
				p = restarted(t, p)
			}
		}
		if skipped == 0 {
			t.Fatal("every part changed at every cut: the test shows nothing")
		}
	})
}

// TestMissingEventIsOnTime is what gaps are for: when a key's numbers and times rise together and the jump is seen while W is still at
// or below the event before it, the missing event is not late, however far the rest of the partition has moved on within the hold.
func TestMissingEventIsOnTime(t *testing.T) {
	seeds(t, 100, func(t *testing.T, r *rand.Rand) {
		const lateness, hold = 20, 1000
		p := NewPartition(lateness, hold)
		heldFrom := map[string]bool{}
		onTime := 0
		for _, e := range withheldLog(r) {
			late := p.IsLate(e.at)
			w := p.Watermark()
			for _, c := range p.Sequence(e.key, e.seq, e.at) {
				switch c.Kind {
				case GapOpened:
					for n := c.First; n <= c.Last; n++ {
						heldFrom[fmt.Sprint(c.Key, n)] = w <= c.Anchor
					}
				case GapFilled:
					if held := heldFrom[fmt.Sprint(c.Key, c.First)]; held && late {
						t.Fatalf("missing event %s:%d of time %d is late at W %d", e.key, e.seq, e.at, w)
					} else if held && e.at < p.MaxEventTime()-lateness {
						onTime++
					}
				}
			}
			if !late {
				p.Observe(e.at)
			}
		}
		if onTime == 0 {
			t.Fatal("no event was saved by its gap: the test shows nothing")
		}
	})
}

type numbered struct {
	key string
	seq int64
	at  record.EventTime
}

// withheldLog is a log of three keys, ordered but for a tenth of the events, which come up to 300 time units after their place.
func withheldLog(r *rand.Rand) []numbered {
	var log, withheld []numbered
	seq := map[string]int64{}
	at := record.EventTime(0)
	for range 600 {
		at += record.EventTime(r.IntN(3))
		key := string(rune('a' + r.IntN(3)))
		seq[key]++
		e := numbered{key, seq[key], at}
		if seq[key] > 1 && r.IntN(10) == 0 {
			withheld = append(withheld, e)
		} else {
			log = append(log, e)
		}
		withheld = slices.DeleteFunc(withheld, func(w numbered) bool {
			if at-w.at < 300 && r.IntN(60) != 0 {
				return false
			}
			log = append(log, w)
			return true
		})
	}
	return log
}

// TestGapBound opens more ranges than may stand: each one too many forces the oldest closed, which is told, and the state still
// restores.
func TestGapBound(t *testing.T) {
	t.Parallel()
	p := NewPartition(0, time.Duration(record.MaxTime))
	p.Sequence("a", 0, 0)
	p.Observe(0)
	for i := int64(1); i <= MaxOpenGaps; i++ {
		at := record.EventTime(i)
		if got := p.Sequence("a", 2*i, at); len(got) != 1 || got[0].Kind != GapOpened {
			t.Fatalf("jump %d: %v", i, got)
		}
		p.Observe(at)
	}
	if p.OpenGaps() != MaxOpenGaps || p.Watermark() != 0 {
		t.Fatalf("%d gaps, W %d", p.OpenGaps(), p.Watermark())
	}
	got := slices.Clone(p.Sequence("a", 2*MaxOpenGaps+2, MaxOpenGaps+1))
	want := []GapChange{
		{Kind: GapForced, Key: "a", First: 1, Last: 1, Anchor: 0},
		{Kind: GapOpened, Key: "a", First: 2*MaxOpenGaps + 1, Last: 2*MaxOpenGaps + 1, Anchor: MaxOpenGaps},
	}
	if !slices.Equal(got, want) {
		t.Fatalf("changes %v, want %v", got, want)
	}
	if p.OpenGaps() != MaxOpenGaps || p.Watermark() != 1 {
		t.Fatalf("%d gaps, W %d", p.OpenGaps(), p.Watermark())
	}
	restarted(t, p)
}

// TestSplitAtTheBound splits a range when there is no place: the lower part may be the one that is forced.
func TestSplitAtTheBound(t *testing.T) {
	t.Parallel()
	p := NewPartition(0, time.Duration(record.MaxTime))
	p.Sequence("a", 0, 0)
	p.Sequence("a", 10, 1)
	for i := int64(1); i < MaxOpenGaps; i++ {
		p.Sequence("a", 10+2*i, record.EventTime(1+i))
	}
	got := slices.Clone(p.Sequence("a", 5, 1))
	want := []GapChange{
		{Kind: GapFilled, Key: "a", First: 5, Last: 5, Anchor: 0},
		{Kind: GapForced, Key: "a", First: 1, Last: 4, Anchor: 0},
	}
	if !slices.Equal(got, want) {
		t.Fatalf("changes %v, want %v", got, want)
	}
	if g, _ := p.OldestGap(); g != (Gap{Key: "a", First: 6, Last: 9, Anchor: 1}) || p.OpenGaps() != MaxOpenGaps {
		t.Fatalf("oldest %v of %d", g, p.OpenGaps())
	}
	restarted(t, p)
}

// TestNoAllocation: the hot path allocates nothing, with a gap that opens and closes in it.
func TestNoAllocation(t *testing.T) {
	p := NewPartition(5, 100)
	at, seq := record.EventTime(0), int64(0)
	step := func() {
		for _, n := range [...]int64{1, 4, 3, 2, 5} {
			at++
			if p.IsLate(at) {
				t.Fatal("late")
			}
			p.Sequence("key", seq+n, at)
			p.Observe(at)
			p.Record()
		}
		seq += 5
	}
	for range 10 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations in five records", n)
	}
}
