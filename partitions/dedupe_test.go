package partitions

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// modelSet is the set of event ids as its rule reads.
type modelSet struct {
	span, horizon record.EventTime
	w             record.EventTime
	generation    map[string]int64
}

func (m *modelSet) floor(t record.EventTime) int64 {
	n := int64(t / m.span)
	if t%m.span < 0 {
		n--
	}
	return n
}

func (m *modelSet) alive(generation int64) bool {
	return m.w == record.NoTime || record.EventTime(generation+1)*m.span > m.w-m.horizon
}

func (m *modelSet) add(id string, t record.EventTime) bool {
	if g, ok := m.generation[id]; ok && m.alive(g) {
		return true
	}
	if g := m.floor(t); m.alive(g) {
		m.generation[id] = g
	}
	return false
}

func (m *modelSet) living() int {
	n := 0
	for _, g := range m.generation {
		if m.alive(g) {
			n++
		}
	}
	return n
}

// standing applies the deltas of a ledger to the blobs that stand, as a journal does.
type standing map[string][]byte

func (s standing) apply(t *testing.T, put []StateBlob, dropped []string) {
	t.Helper()
	for _, name := range dropped {
		if _, ok := s[name]; !ok {
			t.Fatalf("blob %q is deleted and does not stand", name)
		}
		delete(s, name)
	}
	for _, b := range put {
		s[b.Name] = bytes.Clone(b.Data)
	}
}

func (s standing) account() (count, sum uint64) {
	for name, data := range s {
		if name == coreName {
			continue
		}
		count++
		sum += checksum(name, data[:len(data)-checksumBytes])
	}
	return count, sum
}

// settle hands out what a ledger collected and empties it.
func settle(l *ledger) (put []StateBlob, dropped []string) {
	put, dropped = l.put, l.dropped
	l.put, l.dropped = nil, nil
	return put, dropped
}

func sameState(t testing.TB, where string, got, want []StateBlob) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d state blobs, want %d", where, len(got), len(want))
	}
	for i := range want {
		if got[i].Name != want[i].Name || !bytes.Equal(got[i].Data, want[i].Data) {
			t.Fatalf("%s: state blob %q differs from %q", where, got[i].Name, want[i].Name)
		}
	}
}

func restoreSet(t *testing.T, d *dedupe, stand standing, w record.EventTime, seq uint64) (*dedupe, *ledger) {
	t.Helper()
	r := &dedupe{limit: d.limit}
	r.gens.init(d.gens.span, d.gens.horizon)
	r.journal.init(1)
	r.journal.perBucket = d.journal.perBucket
	l := &ledger{seq: seq}
	for name, data := range stand { // in the map's order: any order must do
		if err := r.load(StateBlob{Name: name, Data: data}, l); err != nil {
			t.Fatal(err)
		}
	}
	r.loaded(w)
	return r, l
}

// checkLayout checks that every entry stands where the entries alone say.
func checkLayout(t *testing.T, d *dedupe) {
	t.Helper()
	total := 0
	for i := range d.segments {
		g := &d.segments[i]
		next, used := 0, 0
		var last slot
		for at, s := range g.slots {
			if s.tag() == 0 {
				continue
			}
			if want := max(next, g.home(s.high)); at != want {
				t.Fatalf("segment %d: an entry stands at %d, should at %d", i, at, want)
			}
			if used > 0 && !last.before(idHash{high: s.high, low: s.low &^ tagMask}) {
				t.Fatalf("segment %d: entries out of order at %d", i, at)
			}
			next, last = at+1, s
			used++
		}
		if used != g.used {
			t.Fatalf("segment %d: %d entries, counts %d", i, used, g.used)
		}
		total += used
	}
	if total != d.living+d.dead {
		t.Fatalf("%d entries, counts %d living and %d dead", total, d.living, d.dead)
	}
}

func TestDedupeAgainstModel(t *testing.T) {
	t.Parallel()
	cases := []struct{ horizon, lateness time.Duration }{
		{0, 0}, {time.Millisecond, 0}, {80 * time.Millisecond, 10 * time.Millisecond},
		{8 * time.Millisecond, 40 * time.Millisecond}, {time.Second, time.Second},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("horizon=%v,lateness=%v", c.horizon, c.lateness), func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 6; seed++ {
				dedupeAgainstModel(t, seed, c.horizon, c.lateness)
			}
		})
	}
}

func dedupeAgainstModel(t *testing.T, seed uint64, horizon, lateness time.Duration) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	d := newDedupe(horizon, lateness, 0, 0)
	l := &ledger{}
	stand := standing{}
	m := &modelSet{span: d.gens.span, horizon: record.EventTime(horizon), w: record.NoTime, generation: map[string]int64{}}
	scale := int64(horizon+lateness)/4 + int64(time.Millisecond)
	now, top := record.EventTime(-3*scale), record.EventTime(record.NoTime)
	for step := range 6000 {
		now += record.EventTime(rng.Int64N(scale/50 + 1))
		if rng.IntN(700) == 0 {
			now += record.EventTime(rng.Int64N(12 * scale))
		}
		at := now - record.EventTime(rng.Int64N(2*int64(lateness)+int64(horizon)+1))
		id := fmt.Sprintf("event-%d", int64(step)-rng.Int64N(1+rng.Int64N(400)))
		h := hashID([]byte(id))
		had := d.has(h)
		dup, err := d.add(h, at)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if want := m.add(id, at); dup != want || had != want {
			t.Fatalf("seed %d, step %d: duplicate %v, has %v, the rule says %v", seed, step, dup, had, want)
		}
		if top = max(top, at); top-record.EventTime(lateness) > m.w {
			m.w = top - record.EventTime(lateness)
			d.advance(m.w)
		}
		if rng.IntN(60) != 0 {
			continue
		}
		if d.living != m.living() {
			t.Fatalf("seed %d, step %d: %d ids live, the rule says %d", seed, step, d.living, m.living())
		}
		d.cut(m.w, l)
		stand.apply(t, l.put, l.dropped)
		settle(l)
		if count, sum := stand.account(); count != l.count || sum != l.sum {
			t.Fatalf("seed %d, step %d: %d blobs stand with sum %x, the ledger says %d, %x", seed, step, count, sum, l.count, l.sum)
		}
		r, rl := restoreSet(t, d, stand, m.w, l.seq)
		sameState(t, fmt.Sprintf("seed %d, step %d, restored", seed, step), r.state(), d.state())
		if r.living != d.living || rl.count != l.count || rl.sum != l.sum {
			t.Fatalf("seed %d, step %d: restored %d of %d ids", seed, step, r.living, d.living)
		}
		checkLayout(t, d)
		checkLayout(t, r)
		if rng.IntN(2) == 0 {
			d, l = r, rl
		}
	}
}

// The cuts of a restored set are those of the one that was never away, to the byte.
func TestDedupeCutsAfterRestore(t *testing.T) {
	t.Parallel()
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, 2))
	d := newDedupe(time.Second, 100*time.Millisecond, 0, 0)
	l := &ledger{}
	stand := standing{}
	var r *dedupe
	var rl *ledger
	w := record.NoTime
	for step := range 30_000 {
		at := record.EventTime(step) * record.EventTime(200*time.Microsecond)
		at -= record.EventTime(rng.Int64N(int64(50 * time.Millisecond)))
		h := hashID(binary.BigEndian.AppendUint64(nil, uint64(step)))
		w = max(w, at-record.EventTime(100*time.Millisecond))
		for _, s := range []*dedupe{d, r} {
			if s == nil {
				continue
			}
			if _, err := s.add(h, at); err != nil {
				t.Fatal(err)
			}
			s.advance(w)
		}
		if step%5 != 0 && rng.IntN(40) != 0 {
			continue
		}
		d.cut(w, l)
		put, dropped := settle(l)
		stand.apply(t, put, dropped)
		if r != nil {
			r.cut(w, rl)
			rput, rdropped := settle(rl)
			sameState(t, fmt.Sprintf("step %d, put", step), rput, put)
			if fmt.Sprint(rdropped) != fmt.Sprint(dropped) {
				t.Fatalf("step %d: deletes %v, want %v", step, rdropped, dropped)
			}
		}
		if step%97 == 0 {
			r, rl = restoreSet(t, d, stand, w, l.seq)
		}
	}
	if r == nil || d.living == 0 {
		t.Fatal("nothing was compared")
	}
}

// A cut every second over a day must not leave a blob per cut, and an id must not be written again and again.
func TestDedupeJournalStaysBounded(t *testing.T) {
	t.Parallel()
	d := newDedupe(24*time.Hour, 5*time.Second, 0, 0)
	l := &ledger{}
	ids, most, written := 0, uint64(0), 0
	for second := range 48 * 3600 {
		at := record.EventTime(second) * record.EventTime(time.Second)
		for range 3 {
			ids++
			if _, err := d.add(hashID(binary.BigEndian.AppendUint64(nil, uint64(ids))), at); err != nil {
				t.Fatal(err)
			}
		}
		if ids%1000 == 0 { // a straggler far behind, within the horizon
			if _, err := d.add(hashID(binary.BigEndian.AppendUint64([]byte("late"), uint64(ids))), at-record.EventTime(20*time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		w := at - record.EventTime(5*time.Second)
		d.advance(w)
		d.cut(w, l)
		put, _ := settle(l)
		for _, b := range put {
			written += len(b.Data)
		}
		most = max(most, l.count)
	}
	perID := float64(written) / float64(ids)
	t.Logf("%d cuts, %d ids, %d living: at most %d blobs stand, %.0f bytes written an id", 48*3600, ids, d.living, most, perID)
	if most > 400 {
		t.Errorf("%d blobs stood at once, at most 400 expected", most)
	}
	if perID > 120 {
		t.Errorf("%.0f bytes written for each id, at most 120 expected", perID)
	}
}

func TestDedupeLimit(t *testing.T) {
	t.Parallel()
	d := newDedupe(8*time.Millisecond, 0, 0, 10)
	for i := range 10 {
		if dup, err := d.add(hashID([]byte{byte(i)}), 0); dup || err != nil {
			t.Fatal(dup, err)
		}
	}
	if dup, err := d.add(hashID([]byte{3}), 0); !dup || err != nil {
		t.Fatalf("a duplicate at the limit: %v, %v", dup, err)
	}
	if d.over() {
		t.Fatal("over the limit at the limit")
	}
	if dup, err := d.add(hashID([]byte("one more")), record.EventTime(10*time.Millisecond)); dup || err != nil || !d.over() {
		t.Fatal(dup, err, d.living)
	}
	if err := d.limitError(); !codes.Has(err, codes.LimitReached) || !bytes.Contains([]byte(err.Error()), []byte("limits.ids")) {
		t.Fatalf("got %v", err)
	}
	if d.advance(record.EventTime(10 * time.Millisecond)); d.over() || d.living != 1 {
		t.Fatalf("%d ids live after the others died", d.living)
	}
}

// Memory follows the living ids: up with a burst, on a plateau while ids come and go, down again after it.
func TestDedupeMemory(t *testing.T) {
	t.Parallel()
	const horizon = 8 * time.Second
	d := newDedupe(horizon, 0, 0, 0)
	next := uint64(0)
	run := func(seconds, perSecond int, from record.EventTime) record.EventTime {
		for i := range seconds * perSecond {
			at := from + record.EventTime(i)*record.EventTime(time.Second)/record.EventTime(perSecond)
			next++
			if _, err := d.add(hashID(binary.BigEndian.AppendUint64(nil, next)), at); err != nil {
				t.Fatal(err)
			}
			d.advance(at)
		}
		return from + record.EventTime(seconds)*record.EventTime(time.Second)
	}
	at := run(9, 20_000, 0)
	for range 3 {
		at = run(9, 20_000, at)
		if per := float64(d.places()*slotBytes) / float64(d.living); per > 36 {
			t.Errorf("plateau: %.1f bytes a living id", per)
		}
	}
	high := d.places()
	run(60, 1500, at)
	if d.places() > high/4 {
		t.Errorf("after the burst %d of %d places are still there for %d ids", d.places(), high, d.living)
	}
	if tags := len(d.gens.tags); tags > 64 {
		t.Errorf("%d tags for %d generations", tags, len(d.gens.living))
	}
}

// Few ids in very many generations: tags are used again before they run out, and running out is survived.
func TestDedupeManyGenerations(t *testing.T) {
	t.Parallel()
	d := newDedupe(time.Millisecond, 0, 0, 0)
	for i := range 200_000 {
		at := record.EventTime(i) * record.EventTime(5*time.Millisecond)
		if dup, err := d.add(hashID(binary.BigEndian.AppendUint64(nil, uint64(i))), at); dup || err != nil {
			t.Fatal(i, dup, err)
		}
		if dup, _ := d.add(hashID(binary.BigEndian.AppendUint64(nil, uint64(i))), at); !dup {
			t.Fatalf("id %d is forgotten at once", i)
		}
		d.advance(at)
	}
	if d.living > 3 || len(d.gens.tags) == maxTags || len(d.journal.buckets) > 2*liveBuckets {
		t.Errorf("%d living, %d tags, %d buckets", d.living, len(d.gens.tags), len(d.journal.buckets))
	}
}

// When the tags do run out, everything dead is swept at once; the id that asked for a tag still goes to its place.
func TestDedupeOutOfTags(t *testing.T) {
	t.Parallel()
	d := newDedupe(8*time.Millisecond, 0, 0, 0)
	for i := range 4000 {
		if _, err := d.add(hashID(binary.BigEndian.AppendUint64(nil, uint64(i))), record.EventTime(i%5)*record.EventTime(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	for len(d.gens.tags) < maxTags { // tags of generations whose entries are still about
		d.gens.tags = append(d.gens.tags, tagState{entries: 1})
	}
	at := record.EventTime(20 * time.Millisecond)
	d.advance(at)
	if d.living != 0 || d.dead != 4000 {
		t.Fatalf("%d living, %d dead", d.living, d.dead)
	}
	h := hashID([]byte("new"))
	if dup, err := d.add(h, at); dup || err != nil || !d.has(h) || d.living != 1 || d.dead != 0 {
		t.Fatal(dup, err, d.has(h), d.living, d.dead)
	}
	checkLayout(t, d)
	d.gens.free = nil
	if _, err := d.add(hashID([]byte("other")), at+record.EventTime(time.Second)); !codes.Has(err, codes.Internal) {
		t.Fatalf("no tag is left: %v", err)
	}
}

func TestDedupeTimesAtTheEnds(t *testing.T) {
	t.Parallel()
	d := newDedupe(time.Hour, time.Minute, time.Minute, 0)
	for i, at := range []record.EventTime{record.NoTime + 1, record.NoTime + 2, -1, 0, record.MaxTime - 1} {
		h := hashID([]byte{byte(i)})
		if dup, err := d.add(h, at); dup || err != nil {
			t.Fatal(at, dup, err)
		}
		if dup, err := d.add(h, at); !dup || err != nil {
			t.Fatal(at, dup, err)
		}
		d.advance(at)
	}
}
