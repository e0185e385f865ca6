package parity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// held are the rows of a flow whose keys may be held, in the order of a document. What waited for its key goes on in the order in which the stream released
// it; a batch knows no other order than that of event time. So both have to have the same events with the same times, and the values of
// the stream are those that the operators of the flow, started anew, give in the order that the stream has recorded. Where that order is the one of
// event time, they have to be those of batch too. It holds the rows in memory.
type held struct {
	keys map[string][]heldRow
	// behind are the ids of the rows that stand behind rows of later events.
	behind map[string]bool
	last   heldRow
}

type heldRow struct {
	at     record.EventTime
	id     string
	values []operators.Value
}

func (r heldRow) compare(o heldRow) int {
	return cmp.Or(cmp.Compare(r.at, o.at), cmp.Compare(r.id, o.id))
}

// of collects the rows of a run, where its flow asks for it.
func (h *held) of(cfg *batch.Config) {
	if cfg.Plan.HoldKey == 0 {
		return
	}
	h.keys, h.behind, h.last = map[string][]heldRow{}, map[string]bool{}, heldRow{at: record.NoTime}
	cfg.Row = func(row *partitions.Row) error {
		r := heldRow{row.Time, string(row.ID), slices.Clone(row.Values)}
		if h.keys[string(row.Key)] = append(h.keys[string(row.Key)], r); r.compare(h.last) < 0 {
			h.behind[r.id] = true
		} else {
			h.last = r
		}
		return nil
	}
}

// difference says where the stream differs first from batch over the same events, or "". corrected is what that batch has read.
func (h *held) difference(ctx context.Context, plan *flow.Plan, corrected sources.Source, stream *held) (string, error) {
	inputs, err := stream.inputs(ctx, plan, corrected)
	if err != nil {
		return "", err
	}
	keys := slices.Collect(maps.Keys(h.keys))
	keys = slices.AppendSeq(keys, maps.Keys(stream.keys))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if d := h.keyDifference(plan, key, stream.keys[key], inputs[key]); d != "" {
			return d, nil
		}
	}
	return "", nil
}

func (h *held) keyDifference(plan *flow.Plan, key string, stream []heldRow, inputs map[string][]float64) string {
	rows, inOrder := h.keys[key], slices.SortedFunc(slices.Values(stream), heldRow.compare)
	for i := range max(len(rows), len(inOrder)) {
		if i >= len(rows) || i >= len(inOrder) || rows[i].compare(inOrder[i]) != 0 {
			return fmt.Sprintf("key %q has other events in the stream than in batch: %d rows, and %d", key, len(inOrder), len(rows))
		}
	}
	if inputs != nil {
		rows = given(plan, stream, inputs)
	}
	for i := range stream {
		if !sameValues(rows[i].values, stream[i].values) {
			return fmt.Sprintf("the result of event %q of key %q at %s is %s in batch and %s in the stream", stream[i].id, key, stream[i].at, showValues(rows[i].values), showValues(stream[i].values))
		}
	}
	return ""
}

// given are the values that operators give in the order of rows.
func given(plan *flow.Plan, order []heldRow, inputs map[string][]float64) []heldRow {
	ops := make([]operators.Operator, len(plan.Nodes))
	for i := range ops {
		ops[i] = plan.Nodes[i].New()
	}
	rows, values := make([]heldRow, len(order)), make([]operators.Value, len(ops))
	for n, r := range order {
		for i := range plan.Nodes {
			node := &plan.Nodes[i]
			x := operators.Gap
			switch in := inputs[r.id]; {
			case node.Field < 0:
				x = values[node.From]
			case in != nil && !math.IsNaN(in[node.Field]):
				x = operators.Number(in[node.Field])
			}
			values[i] = ops[i].Step(r.at, x)
		}
		rows[n] = heldRow{at: r.at, id: r.id}
		for _, out := range plan.Outputs {
			rows[n].values = append(rows[n].values, values[out.Node])
		}
	}
	return rows
}

// inputs are those of the events of the keys whose rows are not in the order of event time, by key and event.
func (h *held) inputs(ctx context.Context, plan *flow.Plan, source sources.Source) (map[string]map[string][]float64, error) {
	of := map[string]map[string][]float64{}
	for key, rows := range h.keys {
		if !slices.IsSortedFunc(rows, heldRow.compare) {
			of[key] = map[string][]float64{}
		}
	}
	if len(of) == 0 {
		return of, nil
	}
	r, err := source.Open(ctx, map[int32]record.Position{0: {}})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	scanner, fields := record.NewScanner(plan.Inputs), make([]record.Field, len(plan.Inputs))
	for {
		batches, err := r.Poll(ctx, 0)
		if errors.Is(err, io.EOF) {
			return of, nil
		}
		if err != nil {
			return nil, err
		}
		for i := range batches {
			for _, rec := range batches[i].Records {
				events := of[string(rec.Key)]
				if events == nil {
					continue
				}
				if err := scanner.Scan(rec.Value, fields); err != nil {
					return nil, codes.New(codes.SnapshotInvalid, "event %.80q: %w", idOf(rec), err)
				}
				events[idOf(rec)] = numbers(fields)
			}
			batches[i].Done()
		}
	}
}

// idOf is the event id that a row of a snapshot has beside its value.
func idOf(r record.Record) string {
	for _, h := range r.Headers {
		if h.Key == record.HeaderEventID {
			return string(h.Value)
		}
	}
	return ""
}

// numbers are the numeric inputs, NaN for a gap.
func numbers(fields []record.Field) []float64 {
	out := make([]float64, len(fields))
	for i, f := range fields {
		out[i] = math.NaN()
		if f.Kind == record.Number {
			if n := record.ParseFloat(f.Raw); !math.IsInf(n, 0) {
				out[i] = n
			}
		}
	}
	return out
}
