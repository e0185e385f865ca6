package controltest

import (
	"bytes"
	"context"
	"fmt"
	"reflect"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// Contents is everything that a journal holds of one run.
type Contents struct {
	State      control.RunState
	Blobs      map[int32][]partitions.StateBlob
	Outputs    map[int32][]partitions.Rows
	Quarantine []partitions.Quarantined
	Decisions  []partitions.Decision
}

// Read collects a run's contents. It opens the run under the header, so a run that is not there is created; an ended run is read like
// any other.
func Read(ctx context.Context, j control.Journal, h control.RunHeader) (Contents, error) {
	var c Contents
	var err error
	if c.State, err = j.OpenRun(ctx, h); err != nil && !codes.Has(err, codes.RunFinished) {
		return c, fmt.Errorf("open: %w", err)
	}
	err = c.results(ctx, j, h.RunID)
	return c, err
}

// ReadStored collects a run's contents without opening it, so whoever holds its lease. The run has to be there. What is committed meanwhile may
// be in some of it.
func ReadStored(ctx context.Context, s control.ControlStore, runID string) (c Contents, err error) {
	err = s.Snapshot(ctx, runID, func(v control.JournalView) error { c.State = v.State(); return nil })
	if err != nil {
		return c, fmt.Errorf("snapshot: %w", err)
	}
	err = c.results(ctx, s, runID)
	return c, err
}

// results collects what belongs to the partitions of the state.
func (c *Contents) results(ctx context.Context, j control.Journal, runID string) (err error) {
	c.Blobs, c.Outputs = map[int32][]partitions.StateBlob{}, map[int32][]partitions.Rows{}
	for _, p := range c.State.Header.Partitions {
		if c.Blobs[p], err = ReadBlobs(ctx, j, runID, p); err != nil {
			return fmt.Errorf("blobs of partition %d: %w", p, err)
		}
		if c.Outputs[p], err = ReadOutputs(ctx, j, runID, p); err != nil {
			return fmt.Errorf("outputs of partition %d: %w", p, err)
		}
	}
	err = j.Quarantine(ctx, runID, func(q partitions.Quarantined) error {
		c.Quarantine = append(c.Quarantine, q)
		return nil
	})
	if err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	err = j.Decisions(ctx, runID, func(d partitions.Decision) error {
		c.Decisions = append(c.Decisions, d)
		return nil
	})
	if err != nil {
		return fmt.Errorf("decisions: %w", err)
	}
	return nil
}

// ReadBlobs collects copies of the blobs of a partition that stand.
func ReadBlobs(ctx context.Context, j control.Journal, runID string, p int32) ([]partitions.StateBlob, error) {
	var out []partitions.StateBlob
	err := j.LoadBlobs(ctx, runID, p, func(b partitions.StateBlob) error {
		out = append(out, partitions.StateBlob{Name: b.Name, Data: append([]byte{}, b.Data...)})
		return nil
	})
	return out, err
}

// ReadOutputs collects copies of a partition's rows, one element an epoch.
func ReadOutputs(ctx context.Context, j control.Journal, runID string, p int32) ([]partitions.Rows, error) {
	var out []partitions.Rows
	err := j.Outputs(ctx, runID, p, func(r partitions.Rows) error {
		r.Data = bytes.Clone(r.Data)
		out = append(out, r)
		return nil
	})
	return out, err
}

// Diff names the first difference between two contents in a short sentence, or is "".
func Diff(want, got Contents) string {
	if d := diffState(want.State, got.State); d != "" {
		return d
	}
	for _, p := range want.State.Header.Partitions {
		if d := diffList(fmt.Sprintf("partition %d: blob", p), want.Blobs[p], got.Blobs[p]); d != "" {
			return d
		}
		if d := diffList(fmt.Sprintf("partition %d: rows of run", p), want.Outputs[p], got.Outputs[p]); d != "" {
			return d
		}
	}
	if d := diffList("quarantined record", want.Quarantine, got.Quarantine); d != "" {
		return d
	}
	return diffList("decision", want.Decisions, got.Decisions)
}

func diffState(want, got control.RunState) string {
	if want.Fence != got.Fence {
		return fmt.Sprintf("the fence is %d, want %d", got.Fence, want.Fence)
	}
	if want.Epoch != got.Epoch || want.Status != got.Status || want.Watermark != got.Watermark {
		return fmt.Sprintf("epoch %d %s watermark %s, want %d %s %s", got.Epoch, got.Status, got.Watermark, want.Epoch, want.Status, want.Watermark)
	}
	if !reflect.DeepEqual(want.Header, got.Header) {
		return fmt.Sprintf("header %+v, want %+v", got.Header, want.Header)
	}
	if len(want.Cuts) != len(got.Cuts) {
		return fmt.Sprintf("%d cuts, want %d", len(got.Cuts), len(want.Cuts))
	}
	for p, w := range want.Cuts {
		if g, ok := got.Cuts[p]; !ok || !reflect.DeepEqual(w, g) {
			return fmt.Sprintf("cut of partition %d: %+v, want %+v", p, g, w)
		}
	}
	return ""
}

func diffList[T any](what string, want, got []T) string {
	for i := range min(len(want), len(got)) {
		if !reflect.DeepEqual(want[i], got[i]) {
			return fmt.Sprintf("%s %d: %s, want %s", what, i, brief(got[i]), brief(want[i]))
		}
	}
	if len(want) != len(got) {
		return fmt.Sprintf("%s: %d of them, want %d", what, len(got), len(want))
	}
	return ""
}

// brief prints a value; of bytes only their beginning and length.
func brief(x any) string {
	switch v := x.(type) {
	case partitions.StateBlob:
		return fmt.Sprintf("%q = %s", v.Name, some(v.Data))
	case partitions.Rows:
		return fmt.Sprintf("%d rows from %s to %s in %s", v.Count, v.First, v.Last, some(v.Data))
	case partitions.Quarantined:
		return fmt.Sprintf("partition %d number %d position %s.%d %q %q id %q time %s arrived %s key %s value %s headers %q", v.Partition, v.Number, v.Position, v.Sub, v.Reason, v.Detail, v.EventID, v.EventTime,
			v.Arrival, some(v.Key), some(v.Value), v.Headers)
	}
	return fmt.Sprintf("%+v", x)
}

func some(b []byte) string {
	if b == nil {
		return "none"
	}
	return fmt.Sprintf("%q (%d bytes)", b[:min(len(b), 40)], len(b))
}
