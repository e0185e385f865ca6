package controltest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

func TestMemoryConforms(t *testing.T) {
	t.Parallel()
	Journal(t, func(*testing.T) func() control.Journal {
		m := NewMemory()
		return func() control.Journal { return m }
	})
}

// wrong is a journal with one defect.
type wrong struct {
	*Memory
	open   func(m *Memory, ctx context.Context, h control.RunHeader) (control.RunState, error)
	commit func(m *Memory, ctx context.Context, c control.Commit) error
	blobs  func(b partitions.StateBlob) (partitions.StateBlob, bool)
	rows   func(all []partitions.Rows) []partitions.Rows
	aside  func(all []partitions.Quarantined) []partitions.Quarantined
	decide func(all []partitions.Decision) []partitions.Decision
	own    func(error) error
	begin  func(m *Memory, ctx context.Context, h control.RunHeader, c control.Commit) error
}

func (w wrong) BeginRun(ctx context.Context, h control.RunHeader, c control.Commit) error {
	if w.begin != nil {
		return w.begin(w.Memory, ctx, h, c)
	}
	return w.Memory.BeginRun(ctx, h, c)
}

func (w wrong) OpenRun(ctx context.Context, h control.RunHeader) (control.RunState, error) {
	if w.open != nil {
		return w.open(w.Memory, ctx, h)
	}
	return w.Memory.OpenRun(ctx, h)
}

func (w wrong) Commit(ctx context.Context, c control.Commit) error {
	if w.commit != nil {
		return w.commit(w.Memory, ctx, c)
	}
	return w.Memory.Commit(ctx, c)
}

func (w wrong) LoadBlobs(ctx context.Context, runID string, p int32, fn func(partitions.StateBlob) error) error {
	err := w.Memory.LoadBlobs(ctx, runID, p, func(b partitions.StateBlob) error {
		if w.blobs != nil {
			var keep bool
			if b, keep = w.blobs(b); !keep {
				return nil
			}
		}
		return fn(b)
	})
	if err != nil && w.own != nil {
		return w.own(err)
	}
	return err
}

func (w wrong) Outputs(ctx context.Context, runID string, p int32, fn func(partitions.Rows) error) error {
	if w.rows == nil {
		return w.Memory.Outputs(ctx, runID, p, fn)
	}
	all, err := ReadOutputs(ctx, w.Memory, runID, p)
	if err != nil {
		return err
	}
	return each(ctx, w.rows(all), fn)
}

func (w wrong) Quarantine(ctx context.Context, runID string, fn func(partitions.Quarantined) error) error {
	var all []partitions.Quarantined
	err := w.Memory.Quarantine(ctx, runID, func(q partitions.Quarantined) error { all = append(all, q); return nil })
	if err != nil {
		return err
	}
	if w.aside != nil {
		all = w.aside(all)
	}
	return each(ctx, all, fn)
}

func (w wrong) Decisions(ctx context.Context, runID string, fn func(partitions.Decision) error) error {
	var all []partitions.Decision
	err := w.Memory.Decisions(ctx, runID, func(d partitions.Decision) error { all = append(all, d); return nil })
	if err != nil {
		return err
	}
	if w.decide != nil {
		all = w.decide(all)
	}
	return each(ctx, all, fn)
}

// Negative control: the suite finds every one of these defects, in the check that is named.
func TestSuiteFindsDefects(t *testing.T) {
	t.Parallel()
	for _, d := range []struct {
		defect, check string
		with          wrong
	}{
		{"no compare-and-set", "one winner of eight", wrong{commit: func(m *Memory, ctx context.Context, c control.Commit) error {
			for {
				c.Epoch = m.Epoch(c.RunID) + 1
				if err := m.Commit(ctx, c); !codes.Has(err, codes.JournalConflict) {
					return err
				}
			}
		}}},
		{"the same epoch is accepted again", "compare and set", wrong{commit: func(m *Memory, ctx context.Context, c control.Commit) error {
			if c.Epoch == m.Epoch(c.RunID) && c.Epoch > 0 {
				return nil
			}
			return m.Commit(ctx, c)
		}}},
		{"a refused commit leaves its first partition", "refusals leave nothing", wrong{commit: func(m *Memory, ctx context.Context, c control.Commit) error {
			err := m.Commit(ctx, c)
			if err != nil && len(c.Partitions) > 0 {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.runs[c.RunID].partitions[c.Partitions[0].Cut.Partition].apply(c.Epoch, c.Partitions[0])
			}
			return err
		}}},
		{"the last partition is lost", "history of random epochs", wrong{commit: func(m *Memory, ctx context.Context, c control.Commit) error {
			if n := len(c.Partitions); n > 1 {
				c.Partitions = c.Partitions[:n-1]
			}
			return m.Commit(ctx, c)
		}}},
		{"deletes come after puts", "blobs are put, replaced and deleted", wrong{commit: func(m *Memory, ctx context.Context, c control.Commit) error {
			cut := &c.Partitions[0].Cut
			cut.Put = slices.DeleteFunc(slices.Clone(cut.Put), func(b partitions.StateBlob) bool { return slices.Contains(cut.Delete, b.Name) })
			return m.Commit(ctx, c)
		}}},
		{"blobs are never deleted", "blobs are put, replaced and deleted", wrong{commit: func(m *Memory, ctx context.Context, c control.Commit) error {
			c.Partitions[0].Cut.Delete = nil
			return m.Commit(ctx, c)
		}}},
		{"buffers are kept", "nothing of a commit is kept", wrong{commit: func(m *Memory, ctx context.Context, c control.Commit) error {
			err := m.Commit(ctx, c)
			m.runs[c.RunID].partitions[0].outputs[0].v.Data = c.Partitions[0].Rows.Data
			return err
		}}},
		{"a blob's name ends at a NUL", "round trip of every field", wrong{blobs: func(b partitions.StateBlob) (partitions.StateBlob, bool) {
			b.Name, _, _ = strings.Cut(b.Name, "\x00")
			return b, true
		}}},
		{"a blob without a name is lost", "round trip of every field", wrong{blobs: func(b partitions.StateBlob) (partitions.StateBlob, bool) { return b, b.Name != "" }}},
		{"an empty value comes back as none", "round trip of every field", wrong{aside: func(all []partitions.Quarantined) []partitions.Quarantined {
			for i := range all {
				if len(all[i].Value) == 0 {
					all[i].Value = nil
				}
			}
			return all
		}}},
		{"no value comes back as an empty one", "history of random epochs", wrong{aside: func(all []partitions.Quarantined) []partitions.Quarantined {
			for i := range all {
				all[i].Value = append([]byte{}, all[i].Value...)
			}
			return all
		}}},
		{"positions are ordered as text", "round trip of every field", wrong{aside: func(all []partitions.Quarantined) []partitions.Quarantined {
			slices.SortStableFunc(all, func(a, b partitions.Quarantined) int {
				return strings.Compare(a.Position.String(), b.Position.String())
			})
			return all
		}}},
		{"decisions in the order of commits", "round trip of every field", wrong{decide: func(all []partitions.Decision) []partitions.Decision {
			slices.Reverse(all)
			return all
		}}},
		{"positions are cut to 64 bits", "round trip of every field", wrong{commit: func(m *Memory, ctx context.Context, c control.Commit) error {
			for i := range c.Partitions {
				b, err := c.Partitions[i].Cut.Next.AppendBinary(nil)
				if err != nil {
					return err
				}
				clear(b[:16])
				if c.Partitions[i].Cut.Next, _, err = record.DecodePosition(b); err != nil {
					return err
				}
			}
			return m.Commit(ctx, c)
		}}},
		{"epochs are ordered as text", "outputs in the order of epochs", wrong{rows: func(all []partitions.Rows) []partitions.Rows {
			slices.SortStableFunc(all, func(a, b partitions.Rows) int { return bytes.Compare(a.Data, b.Data) })
			return all
		}}},
		{"a part of 4 MiB is lost", "large rows and blobs", wrong{rows: func(all []partitions.Rows) []partitions.Rows {
			for i := range all {
				if n := len(all[i].Data); n > 4<<20 {
					all[i].Data = all[i].Data[:n-n%(4<<20)]
				}
			}
			return all
		}}},
		{"an epoch is handed over twice", "outputs in the order of epochs", wrong{rows: func(all []partitions.Rows) []partitions.Rows {
			if len(all) > 0 {
				all = append(all, all[len(all)-1])
			}
			return all
		}}},
		{"every header fits", "headers that differ", wrong{open: func(m *Memory, ctx context.Context, h control.RunHeader) (control.RunState, error) {
			m.mu.Lock()
			r := m.runs[h.RunID]
			m.mu.Unlock()
			if r != nil {
				h = r.header
			}
			return m.OpenRun(ctx, h)
		}}},
		{"a finished run is resumed", "a finished run", wrong{open: func(m *Memory, ctx context.Context, h control.RunHeader) (control.RunState, error) {
			s, err := m.OpenRun(ctx, h)
			if codes.Has(err, codes.RunFinished) {
				err = nil
			}
			return s, err
		}}},
		{"a run is made again", "a run is made once", wrong{open: func(m *Memory, ctx context.Context, h control.RunHeader) (control.RunState, error) {
			s, err := m.OpenRun(ctx, h)
			s.Created = time.Unix(int64(len(s.Header.Partitions)), 0)
			return s, err
		}}},
		{"added partitions have a cut", "partitions are added", wrong{open: func(m *Memory, ctx context.Context, h control.RunHeader) (control.RunState, error) {
			s, err := m.OpenRun(ctx, h)
			for _, p := range s.Header.Partitions {
				if _, ok := s.Cuts[p]; !ok && s.Epoch > 0 {
					s.Cuts[p] = partitions.Cut{Partition: p, Next: record.Offset(1)}
				}
			}
			return s, err
		}}},
		{"a reader's error is wrapped", "readers' errors come back", wrong{own: func(err error) error { return fmt.Errorf("reading: %w", err) }}},
		{"a cancellation is not seen", "cancelled at every point", wrong{commit: func(m *Memory, ctx context.Context, c control.Commit) error {
			return m.Commit(context.WithoutCancel(ctx), c)
		}}},
		{"a run begins in two", "a run begins with its first epoch", wrong{begin: func(m *Memory, ctx context.Context, h control.RunHeader, c control.Commit) error {
			if _, err := m.OpenRun(ctx, h); err != nil {
				return err
			}
			return m.Commit(ctx, c)
		}}},
		{"the partitions of a run stand beside it", "a run is whole or by partitions", wrong{open: func(m *Memory, ctx context.Context, h control.RunHeader) (control.RunState, error) {
			s, err := m.OpenRun(ctx, h)
			if codes.Has(err, codes.RunMismatch) {
				err = nil
			}
			return s, err
		}}},
		{"half an epoch stands when it is cancelled", "cancelled at every point", wrong{commit: func(m *Memory, ctx context.Context, c control.Commit) error {
			err := m.Commit(ctx, c)
			if err != nil && m.Epoch(c.RunID)+1 == c.Epoch {
				c.Partitions = nil
				_ = m.Commit(context.WithoutCancel(ctx), c)
			}
			return err
		}}},
	} {
		t.Run(d.defect, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(checks, func(c check) bool { return c.name == d.check })
			if i < 0 {
				t.Fatalf("there is no check %q", d.check)
			}
			d.with.Memory = NewMemory()
			s := &session{ctx: t.Context(), opener: func() control.Journal { return d.with }}
			if err := checks[i].run(s); err == nil {
				t.Errorf("the check %q does not find it", d.check)
			} else {
				t.Log(err)
			}
		})
	}
}

// A store that tears a reading apart, with the epochs of two moments, is found by the reader's own check.
func TestConsistentReading(t *testing.T) {
	t.Parallel()
	torn := wrong{Memory: NewMemory()}
	n := byte(0)
	torn.blobs = func(b partitions.StateBlob) (partitions.StateBlob, bool) {
		n++
		b.Data[0] += n
		return b, true
	}
	s := &session{ctx: t.Context(), opener: func() control.Journal { return torn }}
	j := s.open()
	if _, err := j.OpenRun(t.Context(), header(1)); err != nil {
		t.Fatal(err)
	}
	pc := control.PartitionCommit{Cut: cut(0, 1), Rows: partitions.Rows{Data: []byte{1}, Count: 1}}
	pc.Cut.Put = []partitions.StateBlob{{Name: "a", Data: []byte{1}}, {Name: "b", Data: []byte{1}}, {Name: "c", Data: []byte{1}}}
	if err := j.Commit(t.Context(), commit(1, pc)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.consistent(j, 0); err == nil || !strings.Contains(err.Error(), "different epochs") {
		t.Errorf("got %v", err)
	}
}
