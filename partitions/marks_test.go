package partitions

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/watermark"
)

const sequenceFlow = "lateness: 1s\nsequence: {field: seq, gap_hold: 10s}\n" + emaFlow

// sequences delivers one record of each of the keys from…to-1, with the sequence number seq. next is where its log goes on.
func (h *harness) sequences(t testing.TB, next *int64, seq, from, to int) {
	t.Helper()
	var records []record.Record
	for k := from; k < to; k++ {
		v := fmt.Sprintf(`{"id":"%d-%d","key":"key-%05d","at":%d,"x":1,"seq":%d}`, k, seq, k, 100*seq, seq)
		records = append(records, record.Record{Position: record.Offset(*next), Arrival: record.NoTime, Value: []byte(v)})
		*next++
	}
	h.deliver(t, records)
}

func putsOf(c Cut, prefix string) (names []string, bytes int) {
	for _, b := range c.Put {
		if strings.HasPrefix(b.Name, prefix) {
			names, bytes = append(names, b.Name), bytes+len(b.Data)
		}
	}
	return names, bytes
}

// Of the sequence numbers of many keys, a cut writes the parts that changed.
func TestSequenceNumbersAreWrittenWhereTheyChanged(t *testing.T) {
	t.Parallel()
	h := newHarness(planOf(t, sequenceFlow), 0)
	var next int64
	const keys = 4*watermark.KeysPerPart + 10
	h.sequences(t, &next, 1, 0, keys)
	first, whole := putsOf(h.cut(t), marksPrefix)
	if len(first) != 5 {
		t.Fatalf("the first cut puts %v", first)
	}
	// One key of the second part, and one that is new in the last.
	h.sequences(t, &next, 2, watermark.KeysPerPart+3, watermark.KeysPerPart+4)
	h.sequences(t, &next, 1, keys, keys+1)
	c := h.cut(t)
	if names, n := putsOf(c, marksPrefix); !slices.Equal(names, []string{"marks/000002", "marks/000005"}) || n > whole/3 {
		t.Errorf("%v with %d bytes of %d", names, n, whole)
	}
	if _, n := putsOf(c, coreName); n > 400 {
		t.Errorf("the core has %d bytes", n)
	}
	h.cutAndCrash(t)
	if names, _ := putsOf(h.cut(t), marksPrefix); names != nil {
		t.Errorf("nothing changed, and a cut after the restore puts %v", names)
	}
	// A gap of a restored machine still holds the watermark.
	h.sequences(t, &next, 30, 7, 8)
	if h.m.Watermark() >= millis(3000) {
		t.Errorf("watermark %s passes the gap", h.m.Watermark())
	}
	h.cutAndCrash(t)
}

// A state whose core holds the whole snapshot, as earlier versions wrote it, is read, and the next cut writes the parts.
func TestSequenceNumbersInTheCore(t *testing.T) {
	t.Parallel()
	h := newHarness(planOf(t, sequenceFlow), 0)
	var next int64
	h.sequences(t, &next, 1, 0, 2*watermark.KeysPerPart)
	h.cut(t)
	want := h.m.FullState()
	for _, ref := range h.m.marks.refs {
		h.m.ledger.drop(ref)
		delete(h.stand, ref.name)
	}
	h.m.ledger.putCore(h.m.appendCore(nil, h.m.wm.Snapshot(nil)))
	h.stand[coreName] = h.m.ledger.put[0].Data
	h.crash(t)
	sameState(t, "restored machine", h.m.FullState(), want)
	if names, _ := putsOf(h.cut(t), marksPrefix); len(names) != 2 {
		t.Errorf("the next cut puts %v", names)
	}
	h.cutAndCrash(t)
}

func TestRestoreRefusesSequenceNumbers(t *testing.T) {
	t.Parallel()
	h := newHarness(planOf(t, sequenceFlow), 0)
	var next int64
	h.sequences(t, &next, 1, 0, 3*watermark.KeysPerPart)
	h.cut(t)
	for name, change := range map[string]func(s standing){
		"a part is missing": func(s standing) { delete(s, "marks/000002") },
		"the last part is missing, and the books agree": func(s standing) {
			delete(s, "marks/000003")
			s.balance()
		},
		"a part in the middle is missing, and the books agree": func(s standing) {
			delete(s, "marks/000002")
			s.balance()
		},
		"two parts have one number": func(s standing) {
			s["marks/000002"] = reseal("marks/000002", slices.Clone(s["marks/000001"]))
			s.balance()
		},
		"a later version": func(s standing) {
			b := slices.Clone(s["marks/000001"])
			b[0] = 9
			s["marks/000001"] = reseal("marks/000001", b)
			s.balance()
		},
		"a flipped bit": func(s standing) {
			b := slices.Clone(s["marks/000001"])
			b[40] ^= 1
			s["marks/000001"] = b
		},
		"a part that is longer": func(s standing) {
			s["marks/000003"] = reseal("marks/000003", append(slices.Clone(s["marks/000003"]), 1, 2, 3))
			s.balance()
		},
		"an empty part": func(s standing) { s["marks/000003"] = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := maps.Clone(h.stand)
			change(s)
			if m, err := Restore(h.plan, 0, (&harness{stand: s}).load); m != nil || !codes.Has(err, codes.JournalCorrupt) {
				t.Errorf("got %v", err)
			}
		})
	}
}
