package emit

import (
	"strconv"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// Format is the version of the document.
const Format = "weir-emit/1"

// Closed is the watermark of a finished input: all of event time is closed.
const Closed = "END_OF_INPUT"

// The modes.
const (
	ModeBatch  = "batch"
	ModeReplay = "replay"
	ModeStream = "stream"
)

// Doc is an emit document. Values and Events hold the rows only when they were few enough to be kept (Complete).
type Doc struct {
	Flow, Fingerprint, Mode string
	Counts                  partitions.Counts
	Positions               map[int32]record.Position
	// Watermark is record.NoTime when nothing was seen and record.MaxTime when the input has ended.
	Watermark  record.EventTime
	FenceToken uint64
	ValuesHash string
	// Replayed is how many records came in that were set aside before, and are counted so: see partitions.Reinstate. It is left out when it is 0.
	Replayed int64
	// EventsHash is the hash of the canonical bytes of events. It is not part of the document.
	EventsHash string
	// Rows is the number of values.
	Rows int64
	// Nulls counts the null values of each output, in the order of the flow. It is not part of the document.
	Nulls    []int64
	Complete bool
	Values   []any
	Events   []string
	// Allow, unless nil, is asked just before the document takes its place; its error keeps it away. It is not part of the document.
	Allow func() error
}

// New starts a document of a plan.
func New(plan *flow.Plan, mode string) Doc {
	return Doc{Flow: plan.Name, Fingerprint: plan.Fingerprint, Mode: mode, Watermark: record.NoTime}
}

// Document is the canonical form, for record.AppendJSON. Without rows, or when they were not kept, values and events are left out
// and a count named rows stands for them.
func (d Doc) Document(rows bool) map[string]any {
	m := d.head()
	if rows && d.Complete {
		m["values"], m["events"] = d.values(), d.Events
		return m
	}
	m["rows"] = d.Rows
	return m
}

func (d Doc) values() []any {
	if d.Values == nil {
		return []any{}
	}
	return d.Values
}

func (d Doc) head() map[string]any {
	positions := make(map[string]any, len(d.Positions))
	for p, at := range d.Positions {
		if at == (record.Position{}) {
			continue
		}
		positions[strconv.Itoa(int(p))] = position(at)
	}
	var watermark any
	switch d.Watermark {
	case record.NoTime:
	case record.MaxTime:
		watermark = Closed
	default:
		watermark = d.Watermark.String()
	}
	m := map[string]any{
		"format": Format, "flow": map[string]any{"name": d.Flow, "fingerprint": d.Fingerprint}, "mode": d.Mode,
		"values_hash": d.ValuesHash, "positions": positions, "watermark": watermark, "fence_token": d.FenceToken,
		"consumed": d.Counts.Consumed, "filtered": d.Counts.Filtered, "omitted": d.Counts.Omitted,
		"duplicates_skipped": d.Counts.Duplicates, "late": d.Counts.Late, "future": d.Counts.Future,
	}
	if d.Replayed > 0 {
		m["replayed"] = d.Replayed
	}
	return m
}

// position is a JSON integer while every reader can hold it, and a decimal string beyond.
func position(p record.Position) any {
	if n, ok := p.Int64(); ok && n < 1<<53 {
		return n
	}
	return p.String()
}
