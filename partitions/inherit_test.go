package partitions

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// lineage is a log that is split and merged as it goes on: each key is in one live partition at a time.
type lineage struct {
	t     *testing.T
	text  string
	live  []*harness
	keys  map[*harness]map[string]bool
	next  map[*harness]int64
	born  int32
	rows  []string
	taken int64
}

func newLineage(t *testing.T, text string, keys int) *lineage {
	l := &lineage{t: t, text: text, keys: map[*harness]map[string]bool{}, next: map[*harness]int64{}}
	all := map[string]bool{}
	for k := range keys {
		all[fmt.Sprintf("k%d", k)] = true
	}
	l.begin(newHarness(planOf(t, text), 0), all)
	return l
}

func (l *lineage) begin(h *harness, keys map[string]bool) {
	l.live = append(l.live, h)
	l.keys[h] = keys
}

// deliver gives a record to the partition of its key.
func (l *lineage) deliver(m made) {
	for _, h := range l.live {
		if l.keys[h][m.key] {
			r := m.Record
			r.Position = record.Offset(l.next[h])
			l.next[h]++
			h.deliver(l.t, []record.Record{r})
			return
		}
	}
	l.t.Fatalf("nobody has key %s", m.key)
}

// end closes a partition as a shard is closed: its last cut stands, and its machine is read back from it.
func (l *lineage) end(h *harness) *Machine {
	l.live = slices.DeleteFunc(l.live, func(x *harness) bool { return x == h })
	h.cutAndCrash(l.t)
	l.rows = append(l.rows, h.rows...)
	l.taken += h.m.Counts().Consumed
	return h.m
}

// child begins a partition behind parents with some of their keys.
func (l *lineage) child(keys map[string]bool, parents ...*Machine) {
	l.born++
	h := newHarness(planOf(l.t, l.text), l.born)
	m, err := Inherit(h.plan, l.born, parents, func(key string) bool { return keys[key] }, &h.eff)
	if err != nil {
		l.t.Fatal(err)
	}
	h.m = m
	h.rows = append(h.rows, showRows(l.t, h.eff.Rows, len(h.plan.Outputs))...)
	h.eff.Reset()
	h.cutAndCrash(l.t) // what was inherited is in the first cut, whole
	l.begin(h, keys)
}

func (l *lineage) split(rng *rand.Rand) {
	h := l.live[rng.IntN(len(l.live))]
	keys := l.keys[h]
	l.end(h)
	a, b := map[string]bool{}, map[string]bool{}
	for k := range keys {
		if strings.Compare(k, "k"+fmt.Sprint(rng.IntN(8))) < 0 {
			a[k] = true
		} else {
			b[k] = true
		}
	}
	for _, part := range []map[string]bool{a, b} { // each reads the parent's cut by itself
		parent, err := Restore(h.plan, h.partition, h.load)
		if err != nil {
			l.t.Fatal(err)
		}
		l.child(part, parent)
	}
}

func (l *lineage) merge(rng *rand.Rand) {
	rng.Shuffle(len(l.live), func(i, j int) { l.live[i], l.live[j] = l.live[j], l.live[i] })
	a, b := l.live[0], l.live[1]
	keys := map[string]bool{}
	for _, h := range []*harness{a, b} {
		for k := range l.keys[h] {
			keys[k] = true
		}
	}
	l.child(keys, l.end(a), l.end(b))
}

// However a log is split and merged, its keys give the rows that they give in one partition, as long as nothing is late.
func TestInheritAnyHistory(t *testing.T) {
	t.Parallel()
	for name, text := range flows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(60) {
				rng := rand.New(rand.NewPCG(seed, 7))
				log := generate(rng, logShape{records: 300, keys: 8, step: 3, lag: 40, gaps: 15, duplicates: 12, sequence: strings.Contains(text, "sequence"), lost: 40})
				want := runWhole(t, planOf(t, text), log, false)
				through := want.m.MaxEventTime()
				want.finish(t, through)
				if want.m.Counts().Late > 0 && !strings.Contains(text, "horizon: 0s") {
					t.Fatalf("seed %d: the log has late records: %+v", seed, want.m.Counts())
				}
				l := newLineage(t, text, 8)
				for _, m := range log {
					l.deliver(m)
					switch n := rng.IntN(60); {
					case n == 0:
						l.split(rng)
					case n == 1 && len(l.live) > 1:
						l.merge(rng)
					}
				}
				for _, h := range slices.Clone(l.live) {
					h.finish(t, through)
					l.rows = append(l.rows, h.rows...)
					l.taken += h.m.Counts().Consumed
				}
				slices.Sort(l.rows)
				rows := slices.Sorted(slices.Values(want.rows))
				if !slices.Equal(l.rows, rows) {
					t.Fatalf("seed %d, %d partitions in all: %d rows, want %d; first difference: %s", seed, l.born+1, len(l.rows), len(rows), firstDifference(l.rows, rows))
				}
				if l.taken != want.m.Counts().Consumed {
					t.Errorf("seed %d: %d records were taken in, want %d", seed, l.taken, want.m.Counts().Consumed)
				}
			}
		})
	}
}

func firstDifference(got, want []string) string {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return "missing " + want[i]
		case i >= len(want):
			return "too many " + got[i]
		case got[i] != want[i]:
			return got[i] + " instead of " + want[i]
		}
	}
	return "none"
}

// A parent that is behind is brought up to the others: its rows on the way are the child's.
func TestInheritBringsParentsTogether(t *testing.T) {
	t.Parallel()
	text := "operators: [{name: l, type: last, input: x}]\noutputs: [l]\n"
	ahead, behind := newHarness(planOf(t, text), 4), newHarness(planOf(t, text), 5)
	at := func(id string, ms int) string { return fmt.Sprintf(`{"id":%q,"key":%q,"at":%d,"x":1}`, id, id[:1], ms) }
	ahead.deliver(t, logOf(at("a1", 1000), at("a2", 5000)))
	behind.deliver(t, logOf(at("b1", 100), at("b2", 2000), at("b3", 3000)))
	if len(behind.rows) == 3 {
		t.Fatal("the one that is behind has released everything already")
	}
	parents := []*Machine{behind.m, ahead.m}
	var eff Effects
	m, err := Inherit(planOf(t, text), 9, parents, func(string) bool { return true }, &eff)
	if err != nil {
		t.Fatal(err)
	}
	if m.Watermark() != ahead.m.Watermark() || m.Waiting() != 1 || eff.Rows.Count+len(behind.rows) != 3 || m.Counts().Outputs != int64(eff.Rows.Count) {
		t.Errorf("at %s with %d waiting and %d rows, counts %+v", m.Watermark(), m.Waiting(), eff.Rows.Count, m.Counts())
	}
	if len(eff.Decisions) != 1 || eff.Decisions[0].Kind != DecisionInherited || !strings.Contains(eff.Decisions[0].Detail, "4 and 5") {
		t.Errorf("decided %+v", eff.Decisions)
	}
}

// Nothing is inherited from nobody, nor from one that has ended.
func TestInheritRefuses(t *testing.T) {
	t.Parallel()
	plan := planOf(t, emaFlow)
	ended := newHarness(plan, 0)
	ended.finish(t, record.NoTime)
	for name, parents := range map[string][]*Machine{"nobody": nil, "finished": {ended.m}} {
		if _, err := Inherit(plan, 1, parents, func(string) bool { return true }, new(Effects)); !codes.Has(err, codes.Internal) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
