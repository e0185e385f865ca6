package invariant

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

func TestSoundHistoryIsFoundSound(t *testing.T) {
	t.Parallel()
	s := told(t)
	found := Check(s.h.Entries(), All(s.truth, testLimits)...)
	for _, v := range found {
		t.Error(v)
	}
	if t.Failed() {
		t.Log(Text(s.h.Entries(), 1000))
	}
}

// spoil changes the n-th event of a type.
func spoil[E Event](entries []Entry, n int, change func(*E)) []Entry {
	for i, e := range entries {
		ev, ok := e.Event.(E)
		if !ok {
			continue
		}
		if n--; n == 0 {
			change(&ev)
			entries[i].Event = ev
			return entries
		}
	}
	panic("no such event")
}

// insert puts events before the n-th of a type, by the same process at the same time.
func insert[E Event](entries []Entry, n int, events ...Event) []Entry {
	for i, e := range entries {
		if _, ok := e.Event.(E); !ok {
			continue
		}
		if n--; n == 0 {
			var more []Entry
			for _, ev := range events {
				more = append(more, Entry{N: e.N, At: e.At, Process: e.Process, Event: ev})
			}
			return slices.Insert(entries, i, more...)
		}
	}
	panic("no such event")
}

// parts lets a test change a commit without changing the one that other events share.
func parts(c *Committed) []control.PartitionCommit {
	c.Commit.Partitions = slices.Clone(c.Commit.Partitions)
	return c.Commit.Partitions
}

// What is wrong with a history is found by the checker that is there for it, among others perhaps.
func TestEveryDefectIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		checker string
		spoil   func(s *story, es []Entry) []Entry
	}{
		"a token is given out twice": {"fence-increases", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(g *Granted) { g.Row.Token = 1 })
		}},
		"a token is left out": {"fence-increases", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(g *Granted) { g.Row.Token = 3 })
		}},
		"a valid term is taken over": {"fence-increases", func(_ *story, es []Entry) []Entry {
			return spoil(es, 1, func(g *Granted) { g.Row.Until = g.Row.Until.Add(time.Hour) })
		}},
		"a commit under a lower token": {"fence-increases", func(_ *story, es []Entry) []Entry {
			return spoil(es, 4, func(c *Committed) { c.Token = 1 })
		}},
		"a write after the term": {"stale-silent", func(_ *story, es []Entry) []Entry {
			return spoil(es, 3, func(w *Written) { w.Now = w.Now.Add(time.Hour) })
		}},
		"a write under the token before": {"stale-silent", func(_ *story, es []Entry) []Entry {
			return spoil(es, 6, func(w *Written) { w.Hold.Token = 1 })
		}},
		"a write under no lease": {"stale-silent", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(w *Written) { w.Hold = Hold{} })
		}},
		"a write after the release": {"stale-silent", func(s *story, es []Entry) []Entry {
			return insert[Written](es, 3, Released{Hold: Hold{testLease, "a", 1}, Now: s.now.Add(-time.Hour)})
		}},
		"reading without a lease": {"lease-first", func(_ *story, es []Entry) []Entry {
			return spoil(es, 1, func(l *LeaseTold) { l.Holds = false })
		}},
		"reading after the lease is lost": {"lease-first", func(_ *story, es []Entry) []Entry {
			es = insert[PollBegan](es, 2, LeaseTold{What: "LOST"})
			for i := range es {
				if _, ok := es[i].Event.(PollBegan); ok {
					es[i].At += time.Millisecond
				}
			}
			return es
		}},
		"an epoch is left out": {"journal-monotone", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(c *Committed) { c.Commit.Epoch = 3 })
		}},
		"a position goes back": {"journal-monotone", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(c *Committed) { parts(c)[1].Cut.Next = record.Offset(2) })
		}},
		"a position beyond what was read": {"journal-monotone", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(c *Committed) { parts(c)[1].Cut.Next = record.Offset(9) })
		}},
		"a partition's watermark goes back": {"journal-monotone", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(c *Committed) { parts(c)[0].Cut.Watermark = 1 })
		}},
		"opened at an older epoch": {"journal-monotone", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(o *Opened) { o.State.Epoch = 1 })
		}},
		"an epoch after the last": {"journal-monotone", func(_ *story, es []Entry) []Entry {
			return spoil(es, 3, func(c *Committed) { c.Commit.Status = control.RunFinished })
		}},
		"the merged watermark goes back": {"watermark-monotone", func(_ *story, es []Entry) []Entry {
			return spoil(es, 3, func(c *Committed) { c.Commit.Watermark = 1 })
		}},
		"the merged watermark passes a partition": {"watermark-monotone", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(c *Committed) { c.Commit.Watermark += 1000 })
		}},
		"an unknown commit stands twice": {"unknown-once", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(c *Committed) { c.ID = 1 })
		}},
		"a refused commit stands": {"unknown-once", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(a *Answered) { a.Outcome = Refused })
		}},
		"an answered commit does not stand": {"unknown-once", func(_ *story, es []Entry) []Entry {
			return insert[Answered](es, 2, Sent{ID: 99}, Answered{ID: 99, Outcome: Stands})
		}},
		"results that the cut does not count": {"unknown-once", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(c *Committed) { parts(c)[0].Rows = partitions.Rows{} })
		}},
		"the group is ahead": {"offsets-behind", func(_ *story, es []Entry) []Entry {
			return insert[Committed](es, 2, OffsetsTold{Next: map[int32]record.Position{0: record.Offset(8)}})
		}},
		"a result is lost": {"no-loss", func(s *story, es []Entry) []Entry {
			return spoil(es, 1, func(p *Published) { p.Rows = map[int32][]byte{0: p.Rows[0], 1: firstRow(s, p.Rows[1])} })
		}},
		"a record aside is lost": {"no-loss", func(_ *story, es []Entry) []Entry {
			return spoil(es, 1, func(p *Published) { p.Quarantine = p.Quarantine[:1] })
		}},
		"nobody looked": {"no-loss", func(_ *story, es []Entry) []Entry { return es[:len(es)-1] }},
		"a result is committed twice": {"no-duplicate", func(s *story, es []Entry) []Entry {
			return spoil(es, 3, func(c *Committed) {
				parts(c)[0].Rows.Data = append(bytes.Clone(firstRow(s, s.rows[0])), c.Commit.Partitions[0].Rows.Data...)
			})
		}},
		"a result is read twice": {"no-duplicate", func(s *story, es []Entry) []Entry {
			return spoil(es, 1, func(p *Published) {
				p.Rows = map[int32][]byte{0: p.Rows[0], 1: append(firstRow(s, p.Rows[1]), p.Rows[1]...)}
			})
		}},
		"a record stands aside twice": {"no-duplicate", func(_ *story, es []Entry) []Entry {
			return spoil(es, 1, func(p *Published) { p.Quarantine = append(slices.Clone(p.Quarantine), p.Quarantine[0]) })
		}},
		"another result": {"same-as-undisturbed", func(_ *story, es []Entry) []Entry {
			return spoil(es, 1, func(p *Published) {
				rows := bytes.Clone(p.Rows[0])
				rows[len(rows)-1] ^= 1
				p.Rows = map[int32][]byte{0: rows, 1: p.Rows[1]}
			})
		}},
		"the run is open": {"same-as-undisturbed", func(_ *story, es []Entry) []Entry {
			return spoil(es, 1, func(p *Published) { p.State.Status = control.RunOpen })
		}},
		"another hash": {"same-as-undisturbed", func(s *story, es []Entry) []Entry {
			s.truth.Hash = "sha256:ab"
			return es
		}},
		"a decision is missing": {"same-as-undisturbed", func(_ *story, es []Entry) []Entry {
			return spoil(es, 1, func(p *Published) { p.Decisions = p.Decisions[1:] })
		}},
		"a restored byte differs": {"restore-equals-cut", func(_ *story, es []Entry) []Entry {
			return spoil(es, 1, func(l *Loaded) { l.Blobs = flipped(l.Blobs) })
		}},
		"a blob is not restored": {"restore-equals-cut", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(l *Loaded) { l.Blobs = l.Blobs[1:] })
		}},
		"a cut of another state": {"restore-equals-cut", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(c *Committed) { parts(c)[0].Cut.Next = record.Offset(7) })
		}},
		"a checkpoint's byte differs": {"restore-equals-cut", func(_ *story, es []Entry) []Entry {
			return spoil(es, 1, func(c *CheckpointRead) { c.Blobs = flipped(c.Blobs) })
		}},
		"a checkpoint cannot be read": {"restore-equals-cut", func(_ *story, es []Entry) []Entry {
			return spoil(es, 1, func(c *CheckpointRead) { c.Err = "gone" })
		}},
		"a pointer before its blob": {"checkpoint-whole", func(_ *story, es []Entry) []Entry {
			return spoil(es, 1, func(p *PointerKept) { p.Needs = append(p.Needs, "b2") })
		}},
		"a blob goes while it is needed": {"checkpoint-whole", func(_ *story, es []Entry) []Entry {
			return append(es, Entry{N: len(es), Event: BlobDropped{Name: "b1"}})
		}},
		"a record before the state": {"restore-barrier", func(_ *story, es []Entry) []Entry {
			return insert[Restored](es, 2, Stepped{Incarnation: 1})
		}},
		"a question before the state": {"restore-barrier", func(_ *story, es []Entry) []Entry {
			return insert[Restored](es, 2, PollBegan{Reader: 1})
		}},
		"a record of another incarnation": {"restore-barrier", func(_ *story, es []Entry) []Entry {
			return spoil(es, 3, func(st *Stepped) { st.Incarnation = 2 })
		}},
		"the log is opened elsewhere": {"restore-barrier", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(o *SourceOpened) { o.From = map[int32]record.Position{0: record.Offset(8), 1: record.Offset(9)} })
		}},
		"a paused partition speaks": {"paused-silent", func(_ *story, es []Entry) []Entry {
			return insert[PollBegan](es, 2, Paused{Reader: 1, Partition: 1})
		}},
		"all are paused and asked": {"paused-silent", func(_ *story, es []Entry) []Entry {
			return insert[PollBegan](es, 4, Paused{Reader: 2, Partition: 0}, Paused{Reader: 2, Partition: 1})
		}},
		"more out than the windows": {"memory-bounded", func(_ *story, es []Entry) []Entry {
			return spoil(es, 1, func(p *Polled) { p.Batches = []Span{{Records: 25}} })
		}},
		"more back than out": {"memory-bounded", func(_ *story, es []Entry) []Entry {
			return spoil(es, 1, func(g *Given) { g.Span.Records = 100 })
		}},
		"results beyond the bound": {"memory-bounded", func(_ *story, es []Entry) []Entry {
			return spoil(es, 2, func(c *Committed) { parts(c)[0].Rows.Data = make([]byte, 2001) })
		}},
		"two epochs under way": {"memory-bounded", func(_ *story, es []Entry) []Entry { return insert[Sent](es, 2, Sent{ID: 98}) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := told(t)
			found := Check(c.spoil(s, s.h.Entries()), All(s.truth, testLimits)...)
			if !slices.Contains(names(found), c.checker) {
				t.Errorf("%s has found nothing; others: %v", c.checker, found)
			}
		})
	}
}

func firstRow(s *story, data []byte) []byte {
	var row partitions.Row
	rest, err := partitions.DecodeRow(data, len(s.truth.Plan.Outputs), &row)
	if err != nil {
		s.t.Fatal(err)
	}
	return bytes.Clone(data[:len(data)-len(rest)])
}

func flipped(blobs []partitions.StateBlob) []partitions.StateBlob {
	out := slices.Clone(blobs)
	out[0].Data = bytes.Clone(out[0].Data)
	out[0].Data[0] ^= 1
	return out
}

// A paused partition may still come from the question that was under way, and comes again once it is resumed.
func TestPausedInTheMiddleOfAQuestion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events []Event
		silent bool
	}{
		"under way": {[]Event{PollBegan{1}, Paused{1, 0}, Polled{1, []Span{{}}}}, true},
		"resumed":   {[]Event{Paused{1, 0}, PollBegan{1}, Resumed{1, 0}, Polled{1, []Span{{}}}}, true},
		"a later":   {[]Event{PollBegan{1}, Paused{1, 0}, Polled{1, nil}, PollBegan{1}, Polled{1, []Span{{}}}}, false},
	} {
		h := NewHistory(time.Now)
		h.Add("a", SourceOpened{Reader: 1, From: map[int32]record.Position{0: {}, 1: {}}})
		for _, e := range c.events {
			h.Add("a", e)
		}
		if found := Check(h.Entries(), NewPausedSilent()); (len(found) == 0) != c.silent {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// A renewal prolongs, a release ends, and the owner may come back under the next token.
func TestTermsOfALease(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	row := func(owner string, token control.FenceToken, until int) control.LeaseRow {
		return control.LeaseRow{Name: "l", Owner: owner, Token: token, Until: now.Add(time.Duration(until) * time.Second)}
	}
	h := NewHistory(time.Now)
	h.Add("a", Granted{Row: row("a", 1, 10), Now: now})
	h.Add("a", Granted{Row: row("a", 1, 20), Now: now.Add(5 * time.Second)})
	h.Add("a", Written{What: "x", Hold: Hold{"l", "a", 1}, Now: now.Add(15 * time.Second)})
	h.Add("a", Released{Hold: Hold{"l", "a", 1}, Now: now.Add(16 * time.Second)})
	h.Add("a", Granted{Row: row("a", 2, 30), Now: now.Add(16 * time.Second)})
	h.Add("a", Written{What: "x", Hold: Hold{"l", "a", 2}, Now: now.Add(17 * time.Second)})
	if found := Check(h.Entries(), NewFenceIncreases(), NewStaleSilent()); len(found) != 0 {
		t.Error(found)
	}
}

func TestTextAndReportAreBounded(t *testing.T) {
	t.Parallel()
	s := told(t)
	if text := Text(s.h.Entries(), 3); strings.Count(text, "\n") != 4 || !strings.HasPrefix(text, "…") {
		t.Errorf("text %q", text)
	}
	h := NewHistory(time.Now)
	for range 100 {
		h.Add("a", Written{What: "x"})
	}
	found := Check(h.Entries(), NewStaleSilent())
	if len(found) != maxFound || found[1].N != 1 || !strings.Contains(found[1].String(), "stale-silent: at 1: x took effect under no lease") {
		t.Errorf("found %v", found)
	}
}

func TestTruthKnowsItsLog(t *testing.T) {
	t.Parallel()
	truth := smallTruth(t)
	if n := truth.Before(0, record.Offset(5)); n != 5 {
		t.Errorf("%d records before offset 5", n)
	}
	if truth.End(1) != record.Offset(12) || truth.End(7) != (record.Position{}) {
		t.Errorf("ends %s, %s", truth.End(1), truth.End(7))
	}
	if c := truth.Counts[0]; c.Records != 12 || c.Duplicates != 1 || c.Omitted != 1 || c.Consumed != 10 {
		t.Errorf("counts %+v", c)
	}
	if few, all := truth.MostIn(1), truth.MostIn(100); few <= 0 || few >= all {
		t.Errorf("the most in one record %d, in all %d", few, all)
	}
	m, err := truth.At(0, record.Offset(5), false)
	if err != nil || m.Next() != record.Offset(5) || m.Counts().Records != 5 {
		t.Errorf("the machine at 5: %v, %+v", err, m.Counts())
	}
}
