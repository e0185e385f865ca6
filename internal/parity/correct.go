package parity

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"slices"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
	"github.com/weirstream/weir/sources/snapshot"
)

// judging finds out what became of every event that has an exception, or a revision in the log.
//
// The first delivery of an event that could be taken part in decides: late, an accepted revision, or accepted as it is. Later
// deliveries change nothing; they are duplicates, or late too once the id is forgotten, so that a late delivery alone does not say
// that the event was lost. An event without such a delivery was lost.
//
// A revision that the stream recorded as taken in replaces the event's value then, whatever there was before it.
//
// An entry of the quarantine that an operator has replayed, so that it came in, is such a delivery too: of the record that was set aside, at the
// position where that was decided, before the delivery that stands there.
//
// The stream records an accepted revision only when its flow names the field of the revision number. Without one it cannot tell a
// revision from its event, and the log's own marks do.
type judging struct {
	changes snapshot.Corrections
	// noted are the accepted revisions that the stream did not record, and what went on behind the watermark.
	noted []Exception
	at    map[place]Exception
	// replayed are the entries that came in by decisions, in their order in each partition.
	replayed map[int32][]*replayed
	// behind are the events that went on when the watermark had passed them.
	behind map[string]bool
	// open are the events that wait for the delivery that decides.
	open    map[string]bool
	marked  bool // the log's marks count
	selects *selection
}

type place struct {
	partition int32
	position  record.Position
}

func (j *judgement) judging(streamed Exceptions, behind map[string]bool) *judging {
	g := &judging{
		changes: snapshot.Corrections{Drop: map[string]bool{}, Replace: map[string][]byte{}},
		at:      map[place]Exception{}, open: map[string]bool{}, marked: j.Plan.RevisionField == "", selects: newSelection(j.Plan),
		replayed: streamed.replayed(j.decided), behind: behind,
	}
	for id := range behind {
		g.open[id] = true
	}
	for _, x := range streamed.list {
		if x.EventID == "" || !x.explains() || g.noteOf(x) {
			continue
		}
		g.at[place{x.Partition, x.Position}] = x
		g.open[x.EventID], g.changes.Drop[x.EventID] = true, true
	}
	if g.marked && j.Schedule != nil {
		for i := range j.Schedule.Faults {
			if f := &j.Schedule.Faults[i]; f.Kind == logfile.Revision {
				g.open[f.EventID] = true
			}
		}
	}
	return g
}

// delivery takes the next arrival of the log, which stands at a place.
func (j *judging) delivery(a *logfile.Arrival, at place) {
	j.decide(at)
	for _, r := range j.replayed[at.partition] {
		if r.entry.Position == at.position {
			r.value, r.marked = bytes.Clone(a.Value), a.Faults.Has(logfile.Revision)
		}
	}
	id := string(a.EventID)
	x, excepted := j.at[at]
	revised := x.Reason == partitions.ReasonRevised
	if revised {
		j.changes.Replace[id] = bytes.Clone(a.Value)
	}
	if !j.open[id] {
		return
	}
	if excepted && !revised && x.Reason != partitions.ReasonLate || !excepted && !j.selects.has(a.Value) {
		return // no delivery that could be taken part in
	}
	if x.Reason == partitions.ReasonLate {
		delete(j.open, id)
		return
	}
	j.accepted(id, at, a.Value, revised, !excepted && a.Faults.Has(logfile.Revision))
}

// accepted notes that an event came in, with the value of a delivery at a place. It is a revision if the stream has said so, or the log's mark does.
func (j *judging) accepted(id string, at place, value []byte, revised, mark bool) {
	if j.marked && mark {
		revised = true
		j.noted = append(j.noted, Exception{
			Partition: at.partition, Position: at.position, Reason: partitions.ReasonRevised, EventID: id,
			Detail: "the event came first as a revision, as the log says; the flow names no field of a revision number",
		})
	}
	if j.behind[id] {
		j.noted = append(j.noted, Exception{
			Partition: at.partition, Position: at.position, Reason: partitions.DecisionKeyHeld, EventID: id,
			Detail: "its key was held, and it went on when the watermark had passed it",
		})
	}
	delete(j.open, id)
	if revised {
		j.changes.Replace[id] = bytes.Clone(value)
	}
	delete(j.changes.Drop, id)
}

// selection tells whether a flow selects a value. It is asked about values only that the stream could read.
type selection struct {
	scanner *record.Scanner
	field   []record.Field
	values  []string
}

func newSelection(p *flow.Plan) *selection {
	if p.SelectField == "" {
		return nil
	}
	return &selection{scanner: record.NewScanner([]string{p.SelectField}), field: make([]record.Field, 1), values: p.SelectValues}
}

func (s *selection) has(value []byte) bool {
	if s == nil {
		return true
	}
	if err := s.scanner.Scan(value, s.field); err != nil {
		return false
	}
	return slices.Contains(s.values, string(s.field[0].Raw)) // the log is canonical: an integer has one form
}

// correct makes what the stream's exceptions change in the snapshot, and returns more of them: the accepted revisions that the stream could not
// tell from their events, and the events that went on behind the watermark.
func (j *judgement) correct(ctx context.Context, streamed Exceptions, behind map[string]bool) (snapshot.Corrections, []Exception, error) {
	g := j.judging(streamed, behind)
	log, err := logfile.Open(filepath.Join(j.Dir, logName))
	if err != nil {
		return g.changes, nil, err
	}
	defer log.Close()
	counts := make([]int64, max(j.Partitions, 1))
	var a logfile.Arrival
	for {
		if err := log.Next(&a); err == io.EOF {
			g.decideAll()
			return g.changes, g.noted, nil
		} else if err != nil {
			return g.changes, nil, err
		}
		if a.N%1024 == 0 && ctx.Err() != nil {
			return g.changes, nil, ctx.Err()
		}
		p := record.PartitionOf(a.Key, int32(len(counts)))
		g.delivery(&a, place{p, record.Offset(counts[p])})
		counts[p]++
	}
}
