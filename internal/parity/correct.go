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
// The stream records an accepted revision only when its flow names the field of the revision number. Without one it cannot tell a
// revision from its event, and the log's own marks do.
type judging struct {
	changes snapshot.Corrections
	// revised are the accepted revisions that the stream did not record.
	revised []Exception
	at      map[place]Exception
	// open are the events that wait for the delivery that decides.
	open    map[string]bool
	marked  bool // the log's marks count
	selects *selection
}

type place struct {
	partition int32
	position  record.Position
}

func (c Config) judging(streamed Exceptions) *judging {
	j := &judging{
		changes: snapshot.Corrections{Drop: map[string]bool{}, Replace: map[string][]byte{}},
		at:      map[place]Exception{}, open: map[string]bool{}, marked: c.Plan.RevisionField == "", selects: newSelection(c.Plan),
	}
	for _, x := range streamed.explaining() {
		if x.EventID != "" {
			j.at[place{x.Partition, x.Position}] = x
			j.open[x.EventID], j.changes.Drop[x.EventID] = true, true
		}
	}
	if j.marked && c.Schedule != nil {
		for i := range c.Schedule.Faults {
			if f := &c.Schedule.Faults[i]; f.Kind == logfile.Revision {
				j.open[f.EventID] = true
			}
		}
	}
	return j
}

// delivery takes the next arrival of the log, which stands at a place.
func (j *judging) delivery(a *logfile.Arrival, at place) {
	id := string(a.EventID)
	x, excepted := j.at[at]
	revised := x.Reason == partitions.ReasonRevised
	if revised {
		j.changes.Replace[id] = bytes.Clone(a.Value)
	}
	if !j.open[id] {
		return
	}
	switch {
	case excepted && !revised && x.Reason != partitions.ReasonLate, !excepted && !j.selects.has(a.Value):
		return // no delivery that could be taken part in
	case !excepted && j.marked && a.Faults.Has(logfile.Revision):
		revised = true
		j.revised = append(j.revised, Exception{
			Partition: at.partition, Position: at.position, Reason: partitions.ReasonRevised, EventID: id,
			Detail: "the event came first as a revision, as the log says; the flow names no field of a revision number",
		})
	}
	delete(j.open, id)
	if revised {
		j.changes.Replace[id] = bytes.Clone(a.Value)
	}
	if x.Reason != partitions.ReasonLate {
		delete(j.changes.Drop, id)
	}
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

// correct makes what the stream's exceptions change in the snapshot, and returns the accepted revisions that the stream could not
// tell from their events.
func (c Config) correct(ctx context.Context, streamed Exceptions) (snapshot.Corrections, []Exception, error) {
	j := c.judging(streamed)
	log, err := logfile.Open(filepath.Join(c.Dir, logName))
	if err != nil {
		return j.changes, nil, err
	}
	defer log.Close()
	counts := make([]int64, max(c.Partitions, 1))
	var a logfile.Arrival
	for {
		if err := log.Next(&a); err == io.EOF {
			return j.changes, j.revised, nil
		} else if err != nil {
			return j.changes, nil, err
		}
		if a.N%1024 == 0 && ctx.Err() != nil {
			return j.changes, nil, ctx.Err()
		}
		p := record.PartitionOf(a.Key, int32(len(counts)))
		j.delivery(&a, place{p, record.Offset(counts[p])})
		counts[p]++
	}
}
