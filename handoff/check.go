package handoff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// Check is one claim of a manifest, held against what is there.
type Check struct {
	// Name is stable, in upper snake case; those of one partition end in its number.
	Name   string
	OK     bool
	Detail string
}

// Journal is what a store holds of a run.
type Journal struct {
	// Known is false when there is no such run.
	Known bool
	State control.RunState
	// HistoryOpen: a batch still takes a history in, so that the log must not continue the run.
	HistoryOpen bool
	// Histories are those that were taken in, with the number of their records.
	Histories map[string]int64
	// Lease is that of the run; Leased is false when there was never one.
	Lease    control.LeaseInfo
	Leased   bool
	Pointers []control.Pointer
}

// Topic is what the brokers say of a log.
type Topic struct {
	Name, ID string
	Bounds   map[int32]Bounds
}

// Bounds are the first position that a log still has and the one after its last.
type Bounds struct{ Start, End record.Position }

type checks []Check

func (c *checks) add(name string, ok bool, format string, args ...any) {
	*c = append(*c, Check{Name: name, OK: ok, Detail: fmt.Sprintf(format, args...)})
}

func (c *checks) equal(name, was, is string) {
	if was == is {
		c.add(name, true, "%s", shown(is))
		return
	}
	c.add(name, false, "the manifest says %s, there is %s", shown(was), shown(is))
}

func shown(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// AgainstJournal holds a manifest of a run against its journal. A run that has gone on since is fine; one that has gone back is not. Whoever
// verifies a MARK has no journal to ask.
func AgainstJournal(m Manifest, j Journal) []Check {
	var c checks
	if c.add("RUN_KNOWN", j.Known, "run %s", m.RunID); !j.Known {
		c[0].Detail = fmt.Sprintf("the store holds no run %s", m.RunID)
		return c
	}
	s := j.State
	c.equal("FLOW", m.Fingerprint, s.Header.Fingerprint)
	c.equal("SOURCE", m.Source, s.Header.Source)
	c.equal("SOURCE_ID", m.SourceID, s.Header.SourceID)
	c.add("GROUP", true, "%s, the manifest says %s; a courtesy", shown(s.Header.Group), shown(m.Group))
	c.add("RUN_OPEN", s.Status == control.RunOpen && !j.HistoryOpen, "%s", standing(j))
	c.epoch(m, s)
	c.add("FENCE", s.Fence >= m.Fence, "the run was written under token %d last, the manifest under %d", s.Fence, m.Fence)
	c.lease(m, j)
	c.partitions(m, s)
	c.checkpoint(m, j)
	if h := m.History; h != nil {
		records, known := j.Histories[h.ID]
		c.add("HISTORY", known && records == h.Records, "%s: %d records, the manifest says %d", h.ID, records, h.Records)
	}
	return c
}

func standing(j Journal) string {
	switch {
	case j.State.Status == control.RunFinished:
		return "FINISHED: it cannot be continued"
	case j.HistoryOpen:
		return "a batch still takes its history in: it cannot be continued yet"
	}
	return "OPEN: it can be continued"
}

func (c *checks) epoch(m Manifest, s control.RunState) {
	switch {
	case s.Epoch == m.Epoch:
		c.add("EPOCH", true, "%d, where the manifest left it", s.Epoch)
	case s.Epoch > m.Epoch:
		c.add("EPOCH", true, "%d: the run has gone on since epoch %d", s.Epoch, m.Epoch)
	default:
		c.add("EPOCH", false, "the journal stands at %d, before epoch %d of the manifest: it has gone back", s.Epoch, m.Epoch)
	}
	c.moved("WATERMARK", m.Watermark, closed(s.Watermark, s.Epoch > 0), s.Epoch == m.Epoch)
}

// closed is a watermark that something has set.
func closed(w record.EventTime, known bool) record.EventTime {
	if !known {
		return record.NoTime
	}
	return w
}

// moved checks a watermark, which stays in an epoch and never goes back.
func (c *checks) moved(name string, was, is record.EventTime, same bool) {
	c.add(name, is == was || is > was && !same, "%s, the manifest says %s", is, was)
}

func (c *checks) lease(m Manifest, j Journal) {
	l := j.Lease
	switch {
	case !j.Leased && m.Fence == 0:
		c.add("LEASE", true, "none yet")
	case !j.Leased:
		c.add("LEASE", false, "the store knows no lease of the run, which was written under token %d: the store has lost it", m.Fence)
	case l.Token < m.Fence:
		c.add("LEASE", false, "the store is at token %d, before %d of the manifest: the leases have gone back", l.Token, m.Fence)
	case l.Valid:
		c.add("LEASE", true, "held by %s under token %d until %s", l.Owner, l.Token, l.Until.UTC().Format("2006-01-02T15:04:05.000Z"))
	default:
		c.add("LEASE", true, "free: the next owner begins at once, under token %d", l.Token+1)
	}
}

func (c *checks) partitions(m Manifest, s control.RunState) {
	missing := slices.DeleteFunc(m.Numbers(), func(p int32) bool { return slices.Contains(s.Header.Partitions, p) })
	switch more := len(s.Header.Partitions) - len(m.Partitions); {
	case len(missing) > 0:
		c.add("PARTITIONS", false, "the journal lacks %s", numbers(missing))
	case more > 0:
		c.add("PARTITIONS", true, "%d, and %d that were added since", len(m.Partitions), more)
	default:
		c.add("PARTITIONS", true, "%d", len(m.Partitions))
	}
	same := s.Epoch == m.Epoch
	for _, p := range m.Partitions {
		cut, ok := s.Cuts[p.Partition]
		order := cut.Next.Cmp(p.Next)
		c.add(fmt.Sprintf("NEXT_%d", p.Partition), order == 0 || order > 0 && !same, "the journal reads on at %s, the manifest at %s", cut.Next, p.Next)
		c.moved(fmt.Sprintf("WATERMARK_%d", p.Partition), p.Watermark, closed(cut.Watermark, ok), same)
	}
}

func (c *checks) checkpoint(m Manifest, j Journal) {
	if m.Checkpoint == nil {
		return
	}
	for _, p := range j.Pointers {
		if p.RunID == m.Checkpoint.RunID && p.Epoch == m.Checkpoint.Epoch {
			c.equal("CHECKPOINT", m.Checkpoint.ManifestHash, p.Hash)
			return
		}
	}
	c.add("CHECKPOINT", false, "epoch %d is not kept any more", m.Checkpoint.Epoch)
}

// AgainstTopic holds a manifest against the live log: it is still the same one, and it holds everything from the next positions on.
func AgainstTopic(m Manifest, t Topic) []Check {
	var c checks
	c.equal("TOPIC", m.Source, t.Name)
	c.equal("TOPIC_ID", m.SourceID, t.ID)
	missing := slices.DeleteFunc(m.Numbers(), func(p int32) bool { _, ok := t.Bounds[p]; return ok })
	switch more := len(t.Bounds) - len(m.Partitions); {
	case len(missing) > 0:
		c.add("TOPIC_PARTITIONS", false, "the topic lacks %s", numbers(missing))
	case more > 0 && m.Kind == KindMark:
		c.add("TOPIC_PARTITIONS", false, "%d were added since: keys are dealt to %d partitions now, to %d then", more, len(t.Bounds), len(m.Partitions))
	default:
		c.add("TOPIC_PARTITIONS", true, "%d", len(t.Bounds))
	}
	for _, p := range m.Partitions {
		b, ok := t.Bounds[p.Partition]
		if !ok {
			continue
		}
		c.add(fmt.Sprintf("TOPIC_START_%d", p.Partition), p.Next.Cmp(b.Start) >= 0, "next %s, the log begins at %s", p.Next, b.Start)
		c.add(fmt.Sprintf("TOPIC_END_%d", p.Partition), p.Next.Cmp(b.End) <= 0, "next %s, the log ends at %s", p.Next, b.End)
		if p.HighWater != nil {
			c.add(fmt.Sprintf("HIGH_WATER_%d", p.Partition), p.HighWater.Cmp(b.End) <= 0, "the log ended at %s, and ends at %s now", p.HighWater, b.End)
		}
	}
	return c
}

// Failed are the checks that do not hold.
func Failed(all []Check) []Check {
	return slices.DeleteFunc(slices.Clone(all), func(c Check) bool { return c.OK })
}

// numbers writes at most ten partition numbers.
func numbers(ps []int32) string {
	const most = 10
	var parts []string
	for _, p := range ps[:min(len(ps), most)] {
		parts = append(parts, fmt.Sprint(p))
	}
	s := "partition " + strings.Join(parts, ", ")
	if more := len(ps) - most; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}
