package main

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/server"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/status/board"
)

// tapping shows a tap what a run reads, and what its commits hold.
type tapping struct {
	tap   *server.Tap
	run   string
	width int
}

// source is a source whose records the tap sees. It observes its log if the other does.
func (t tapping) source(s sources.Source) sources.Source {
	tapped := tappedSource{s, t}
	if by, ok := s.(sources.Observer); ok {
		return struct {
			tappedSource
			sources.Observer
		}{tapped, by}
	}
	return tapped
}

type tappedSource struct {
	sources.Source
	t tapping
}

// Open is sources.Source's.
func (s tappedSource) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	r, err := s.Source.Open(ctx, from)
	if err != nil {
		return nil, err
	}
	tapped := tappedReader{r, s.t}
	if by, ok := r.(sources.Observer); ok {
		return struct {
			tappedReader
			sources.Observer
		}{tapped, by}, nil
	}
	return tapped, nil
}

type tappedReader struct {
	sources.Reader
	t tapping
}

// Poll is sources.Reader's.
func (r tappedReader) Poll(ctx context.Context, most int) ([]record.Batch, error) {
	batches, err := r.Reader.Poll(ctx, most)
	if len(batches) == 0 || !r.t.tap.Wants(server.TapRecord) {
		return batches, err
	}
	now := time.Now()
	for i := range batches {
		for k := range batches[i].Records {
			rec := &batches[i].Records[k]
			r.t.tap.Publish(now, server.TapRecord, batches[i].Partition, func() server.TapEvent {
				return server.TapEvent{Run: r.t.run, Position: rec.Position.String(), Key: server.NewTapText(rec.Key), Value: server.NewTapText(rec.Value)}
			})
		}
	}
	return batches, err
}

// committed shows the results and what was set aside in a commit that stands.
func (t tapping) committed(c control.Commit) {
	now := time.Now()
	for i := range c.Partitions {
		p := &c.Partitions[i]
		if p.Rows.Count > 0 && t.tap.Wants(server.TapOutput) {
			t.rows(now, p)
		}
		for k := range p.Quarantine {
			q := &p.Quarantine[k]
			kind := server.TapQuarantined
			if q.Reason == partitions.ReasonLate {
				kind = server.TapLate
			}
			t.tap.Publish(now, kind, p.Cut.Partition, func() server.TapEvent { return t.setAside(q) })
		}
	}
}

func (t tapping) setAside(q *partitions.Quarantined) server.TapEvent {
	e := server.TapEvent{
		Run: t.run, Position: q.Position.String(), Key: server.NewTapText(q.Key), Value: server.NewTapText(q.Value), EventID: q.EventID, Reason: q.Reason, Detail: q.Detail,
	}
	if q.EventTime != record.NoTime {
		e.EventTime = q.EventTime.String()
	}
	return e
}

func (t tapping) rows(now time.Time, p *control.PartitionCommit) {
	var row partitions.Row
	for data := p.Rows.Data; len(data) > 0; {
		var err error
		if data, err = partitions.DecodeRow(data, t.width, &row); err != nil {
			return // the journal has them, and says so itself
		}
		t.tap.Publish(now, server.TapOutput, p.Cut.Partition, func() server.TapEvent {
			e := server.TapEvent{Run: t.run, Key: server.NewTapText(row.Key), EventTime: row.Time.String(), EventID: string(row.ID), Outputs: make([]*float64, len(row.Values))}
			for i, v := range row.Values {
				if v.OK && !math.IsNaN(v.F) && !math.IsInf(v.F, 0) {
					e.Outputs[i] = &v.F
				}
			}
			return e
		})
	}
}

// boards are those of the partitions that run apart in this process.
type boards struct {
	mu sync.Mutex
	m  map[int32]*board.Board
}

func (s *boards) put(p int32, b *board.Board) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[int32]*board.Board{}
	}
	s.m[p] = b
}

func (s *boards) of(p int32) *board.Board {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[p]
}
