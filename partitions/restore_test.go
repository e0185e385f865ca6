package partitions

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// cutHarness is a machine with every kind of blob standing.
func cutHarness(t *testing.T) *harness {
	t.Helper()
	h := newHarness(planOf(t, "lateness: 1s\n"+emaFlow), 3)
	for i := range 40 {
		v := fmt.Sprintf(`{"id":%d,"key":"k%d","at":%d,"x":%d}`, i, i%3, 100*i, i)
		h.deliver(t, []record.Record{{Position: record.Offset(int64(i)), Arrival: record.NoTime, Value: []byte(v)}})
		if i%10 == 9 {
			h.cut(t)
		}
	}
	return h
}

// Whatever is wrong with the blobs, the restore is refused with the right code and a message that names the blob; it never starts
// afresh and never goes on with less.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	h := cutHarness(t)
	refused := func(name string, code *codes.Code, text string, change func(s standing)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := standing{}
			for n, data := range h.stand {
				s[n] = bytes.Clone(data)
			}
			change(s)
			m, err := Restore(h.plan, 3, (&harness{stand: s}).load)
			if m != nil || !codes.Has(err, code) || !strings.Contains(fmt.Sprint(err), text) {
				t.Fatalf("got %v, want %s with %q", err, code.Name, text)
			}
		})
	}
	refused("nothing stands", codes.JournalCorrupt, "core", func(s standing) { clear(s) })
	refused("no core", codes.JournalCorrupt, "core", func(s standing) { delete(s, coreName) })
	refused("unknown blob", codes.JournalCorrupt, `"windows/1"`, func(s standing) { s["windows/1"] = nil })
	for _, name := range h.stand.names() {
		refused("flipped bit in "+name, codes.JournalCorrupt, name, func(s standing) { s[name][len(s[name])/2] ^= 4 })
		refused("cut short "+name, codes.JournalCorrupt, name, func(s standing) { s[name] = s[name][:len(s[name])-1] })
		refused("empty "+name, codes.JournalCorrupt, name, func(s standing) { s[name] = nil })
		refused("longer "+name, codes.JournalCorrupt, name, func(s standing) {
			s[name] = reseal(name, append(s[name], 1, 2, 3))
			s.balance()
		})
		refused("later version of "+name, codes.JournalCorrupt, name, func(s standing) {
			s[name][0] = 99
			s[name] = reseal(name, s[name])
			s.balance()
		})
		if name != coreName {
			refused("missing "+name, codes.JournalCorrupt, "state blobs", func(s standing) { delete(s, name) })
			refused("renamed "+name, codes.JournalCorrupt, "checksum", func(s standing) { s[name+"0"] = s[name]; delete(s, name) })
		}
	}
	refused("stale blob", codes.JournalCorrupt, "another cut", func(s standing) {
		old := cutHarness(t)
		old.deliver(t, []record.Record{{Position: record.Offset(40), Arrival: record.NoTime, Value: []byte(`{"id":"new","key":"k0","at":9000,"x":1}`)}})
		old.cut(t)
		s["keys/000000"] = old.stand["keys/000000"]
	})
}

func TestRestoreMismatch(t *testing.T) {
	t.Parallel()
	h := cutHarness(t)
	if _, err := Restore(h.plan, 4, h.load); !codes.Has(err, codes.RunMismatch) || !strings.Contains(err.Error(), "partition 3 was handed to partition 4") {
		t.Errorf("another partition: %v", err)
	}
	other := planOf(t, "lateness: 2s\n"+emaFlow)
	for range 10 { // the blobs come in random order: the mismatch must win over what it causes elsewhere
		if _, err := Restore(other, 3, h.load); !codes.Has(err, codes.RunMismatch) || !strings.Contains(err.Error(), h.plan.Fingerprint) {
			t.Fatalf("another flow: %v", err)
		}
	}
	// Limits are no part of a flow's meaning: a run that met one resumes under a higher one.
	higher := planOf(t, "lateness: 1s\nlimits: {ids: 5000000}\n"+emaFlow)
	if _, err := Restore(higher, 3, h.load); err != nil {
		t.Errorf("a higher limit: %v", err)
	}
}

func TestRestoreGivesTheStoresError(t *testing.T) {
	t.Parallel()
	h := cutHarness(t)
	errStore := errors.New("the store is gone")
	_, err := Restore(h.plan, 3, func(yield func(StateBlob) error) error {
		if err := h.load(yield); err != nil {
			return err
		}
		return errStore
	})
	if !errors.Is(err, errStore) {
		t.Errorf("got %v", err)
	}
}

// The watermark decides what is late; it is what the cut says, whatever the flow would say afresh (an event at 100 s, a restart, an
// event at 40 s with a lateness of 30 s: late with and without the restart).
func TestLatenessAcrossRestart(t *testing.T) {
	t.Parallel()
	for _, restart := range []bool{false, true} {
		h := newHarness(planOf(t, "lateness: 30s\n"+emaFlow), 0)
		log := logOf(`{"id":1,"key":"k","at":100000,"x":1}`, `{"id":2,"key":"k","at":40000,"x":2}`, `{"id":3,"key":"k","at":70000,"x":3}`)
		h.deliver(t, log[:1])
		if restart {
			h.cutAndCrash(t)
		}
		h.deliver(t, log[1:])
		if want := (Counts{Records: 3, Consumed: 2, Late: 1}); h.m.Counts() != want {
			t.Errorf("restart %v: %+v", restart, h.m.Counts())
		}
	}
}

// Tombstone, empty value and JSON null are three things; all of them move the position, even at the end of the log.
func TestNothingHasThreeFaces(t *testing.T) {
	t.Parallel()
	h := newHarness(planOf(t, emaFlow), 0)
	log := logOf("", "null", "")
	log[2].Value = nil
	h.deliver(t, log)
	details := map[string]bool{}
	for _, q := range h.quarantine {
		details[q[strings.Index(q, ": "):]] = true
	}
	if len(details) != 3 || h.m.Next() != record.Offset(3) || h.m.Counts().Omitted != 3 {
		t.Errorf("%q, next %s", h.quarantine, h.m.Next())
	}
}

// A caller that breaks the protocol gets INTERNAL, and the machine stays broken: it has no cut any more.
func TestProtocol(t *testing.T) {
	t.Parallel()
	good := `{"id":1,"key":"k","at":1,"x":1}`
	batch := func(change func(b *record.Batch)) Event {
		b := &record.Batch{Records: logOf(good, good), Next: record.Offset(2)}
		change(b)
		return Deliver{Batch: b}
	}
	cases := map[string]Event{
		"another partition":       batch(func(b *record.Batch) { b.Partition = 1 }),
		"position twice":          batch(func(b *record.Batch) { b.Records[1].Position = record.Offset(0) }),
		"next before the records": batch(func(b *record.Batch) { b.Next = record.Offset(1) }),
		"next goes back":          Deliver{Batch: &record.Batch{}},
		"no event":                nil,
	}
	for name, ev := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(planOf(t, emaFlow), 0)
			if name == "next goes back" {
				h.deliver(t, logOf(good))
			}
			err := h.try(t, ev)
			if !codes.Has(err, codes.Internal) {
				t.Fatalf("got %v", err)
			}
			if again := h.try(t, EmptyPoll{}); again != err {
				t.Errorf("the step after it: %v", again)
			}
			defer func() {
				if recover() == nil {
					t.Error("a machine that failed has a cut")
				}
			}()
			h.m.Cut()
		})
	}
}

// A batch may have no records: only the position moved.
func TestEmptyBatchMovesThePosition(t *testing.T) {
	t.Parallel()
	h := newHarness(planOf(t, emaFlow), 0)
	h.step(t, Deliver{Batch: &record.Batch{Next: record.Offset(17)}})
	h.cutAndCrash(t)
	if h.m.Next() != record.Offset(17) || h.m.Counts() != (Counts{}) {
		t.Errorf("next %s, %+v", h.m.Next(), h.m.Counts())
	}
}
