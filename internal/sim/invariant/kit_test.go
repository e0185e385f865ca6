package invariant

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

const testFlow = `flow: weir/1
name: small
id: event_id
key: instrument
time: {field: t, unit: ms}
lateness: 2s
operators:
  - {name: s, type: sma, input: close, period: 2}
outputs: [s]
`

// smallTruth is a log of two partitions with a duplicate and a tombstone.
func smallTruth(t *testing.T) *Truth {
	t.Helper()
	plan, err := flow.Parse("flow.yaml", []byte(testFlow), nil)
	if err != nil {
		t.Fatal(err)
	}
	log := map[int32][]record.Record{}
	for p := range int32(2) {
		for i := range int64(12) {
			id := i
			if i == 7 {
				id = 6
			}
			value := []byte(fmt.Sprintf(`{"event_id":"e-%d-%d","instrument":"k%d","t":%d,"close":%d}`, p, id, p, 1_700_000_000_000+id*1000, id))
			if i == 9 {
				value = nil
			}
			log[p] = append(log[p], record.Record{Position: record.Offset(i), Key: []byte("k"), Value: value, Arrival: record.NoTime})
		}
	}
	truth, err := NewTruth(plan, log)
	if err != nil {
		t.Fatal(err)
	}
	return truth
}

// story is the history of a sound run, told by hand, which a test then spoils.
type story struct {
	t        *testing.T
	truth    *Truth
	h        *History
	now      time.Time
	machines map[int32]*partitions.Machine
	state    control.RunState
	blobs    map[int32]map[string][]byte
	rows     map[int32][]byte
	aside    []partitions.Quarantined
	decided  []partitions.Decision
	attempt  int64
	lease    control.LeaseRow
}

const testLease = "stream/run"

func newStory(t *testing.T) *story {
	s := &story{t: t, truth: smallTruth(t), machines: map[int32]*partitions.Machine{}, blobs: map[int32]map[string][]byte{}, rows: map[int32][]byte{}}
	s.now = time.Unix(1_700_000_000, 0)
	s.h = NewHistory(func() time.Time { return s.now })
	s.state = control.RunState{Header: control.RunHeader{RunID: "run", Partitions: s.truth.Partitions()}, Status: control.RunOpen, Watermark: record.NoTime, Cuts: map[int32]partitions.Cut{}}
	for _, p := range s.truth.Partitions() {
		s.machines[p], s.blobs[p] = partitions.New(s.truth.Plan, p), map[string][]byte{}
	}
	return s
}

// own makes a process the owner: lease, opening, restoring, opening the log.
func (s *story) own(process string, reader int) {
	s.lease = control.LeaseRow{Name: testLease, Owner: process, Token: s.lease.Token + 1, Until: s.now.Add(time.Minute)}
	s.h.Add(process, Granted{Row: s.lease, Now: s.now})
	s.h.Add(process, LeaseTold{Holds: true, What: "ACQUIRED"})
	s.write(process, "opening the run")
	state := s.state
	state.Cuts = map[int32]partitions.Cut{}
	from := map[int32]record.Position{}
	for p, cut := range s.state.Cuts {
		state.Cuts[p], from[p] = cut, cut.Next
	}
	s.h.Add(process, Opened{State: state})
	for _, p := range s.truth.Partitions() {
		if _, ok := s.state.Cuts[p]; !ok {
			from[p] = record.Position{}
			continue
		}
		s.h.Add(process, Loaded{Partition: p, Blobs: s.load(p)})
	}
	s.h.Add(process, Restored{Incarnation: 1})
	s.h.Add(process, SourceOpened{Reader: reader, From: from})
}

func (s *story) load(p int32) (blobs []partitions.StateBlob) {
	for name, data := range s.blobs[p] {
		blobs = append(blobs, partitions.StateBlob{Name: name, Data: data})
	}
	return blobs
}

func (s *story) hold() Hold {
	return Hold{Lease: s.lease.Name, Owner: s.lease.Owner, Token: s.lease.Token}
}

func (s *story) write(process, what string) {
	s.h.Add(process, Written{What: what, Hold: s.hold(), Now: s.now})
}

// epoch reads both partitions up to an offset and commits.
func (s *story) epoch(process string, reader int, to int64) {
	s.now = s.now.Add(time.Second)
	c := control.Commit{RunID: "run", Epoch: s.state.Epoch + 1, Status: control.RunOpen}
	end := to > 12
	s.h.Add(process, PollBegan{Reader: reader})
	for _, p := range s.truth.Partitions() {
		c.Partitions = append(c.Partitions, s.read(process, reader, p, min(to, 12), end))
	}
	if c.Watermark = s.merged(c); end {
		c.Status, c.Watermark = control.RunFinished, record.MaxTime
	}
	s.commit(process, c)
}

func (s *story) read(process string, reader int, p int32, to int64, end bool) control.PartitionCommit {
	m := s.machines[p]
	var eff partitions.Effects
	span := Span{Partition: p, First: m.Next(), Next: record.Offset(to)}
	b := record.Batch{Partition: p, Next: record.Offset(to)}
	for _, r := range s.truth.Log[p] {
		if r.Position.Cmp(span.First) >= 0 && r.Position.Cmp(span.Next) < 0 {
			b.Records = append(b.Records, r)
		}
	}
	if span.Records = int64(len(b.Records)); span.Records > 0 {
		s.h.Add(process, Polled{Reader: reader, Batches: []Span{span}})
		s.h.Add(process, Stepped{Incarnation: 1, Partition: p, Position: span.First})
		s.step(m, partitions.Deliver{Batch: &b}, &eff)
		s.h.Add(process, Given{Reader: reader, Span: span})
	}
	if end {
		s.step(m, partitions.EndOfSource{Through: s.truth.Through}, &eff)
	}
	return control.PartitionCommit{Cut: m.Cut(), Rows: eff.Rows, Quarantine: eff.Quarantine, Decisions: eff.Decisions}
}

func (s *story) step(m *partitions.Machine, ev partitions.Event, eff *partitions.Effects) {
	if err := m.Step(ev, eff); err != nil {
		s.t.Fatal(err)
	}
}

func (s *story) merged(c control.Commit) record.EventTime {
	w := record.MaxTime
	for _, p := range c.Partitions {
		w = min(w, p.Cut.Watermark)
	}
	return w
}

// commit applies an epoch.
func (s *story) commit(process string, c control.Commit) {
	s.attempt++
	s.h.Add(process, Sent{ID: s.attempt, Epoch: c.Epoch})
	s.write(process, "a commit")
	s.h.Add(process, Committed{ID: s.attempt, Commit: c, Token: s.lease.Token})
	s.h.Add(process, Answered{ID: s.attempt, Epoch: c.Epoch, Outcome: Stands})
	s.state.Epoch, s.state.Status, s.state.Watermark = c.Epoch, c.Status, c.Watermark
	for _, p := range c.Partitions {
		n := p.Cut.Partition
		for _, name := range p.Cut.Delete {
			delete(s.blobs[n], name)
		}
		for _, b := range p.Cut.Put {
			s.blobs[n][b.Name] = b.Data
		}
		cut := p.Cut
		cut.Put, cut.Delete = nil, nil
		s.state.Cuts[n] = cut
		s.rows[n] = append(s.rows[n], p.Rows.Data...)
		s.aside = append(s.aside, p.Quarantine...)
		s.decided = append(s.decided, p.Decisions...)
	}
	s.h.Add(process, OffsetsTold{Next: map[int32]record.Position{0: s.state.Cuts[0].Next, 1: s.state.Cuts[1].Next}})
}

// end publishes.
func (s *story) end() {
	s.h.Add("reader", Published{State: s.state, Rows: s.rows, Quarantine: s.aside, Decisions: s.decided})
}

// told is a sound story of two owners and four epochs, with a checkpoint.
func told(t *testing.T) *story {
	s := newStory(t)
	s.own("a", 1)
	s.epoch("a", 1, 3)
	s.epoch("a", 1, 8)
	for _, name := range []string{"b1", "m1"} {
		s.h.Add("a", BlobKept{Name: name})
	}
	s.write("a", "a pointer")
	s.h.Add("a", PointerKept{Pointer: control.Pointer{RunID: "run", Epoch: 2, Manifest: "m1"}, Needs: []string{"m1", "b1"}})
	for _, p := range s.truth.Partitions() {
		s.h.Add("reader", CheckpointRead{Epoch: 2, Partition: p, Blobs: s.load(p)})
	}
	s.now = s.now.Add(2 * time.Minute)
	s.h.Add("a", LeaseTold{What: "LOST"})
	s.own("b", 2)
	s.epoch("b", 2, 11)
	s.epoch("b", 2, 13)
	s.end()
	return s
}

var testLimits = Limits{Window: 6, Results: 2000}

// names are the checkers that found something.
func names(found []Violation) (all []string) {
	for _, v := range found {
		if !slices.Contains(all, v.Checker) {
			all = append(all, v.Checker)
		}
	}
	return all
}
