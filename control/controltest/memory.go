package controltest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// Memory is a control plane in memory. It follows the same rules as a store and is stricter with its callers: bytes that are valid during a
// call only are overwritten after it. It outlives Close, so that a test can stop and start what uses it.
type Memory struct {
	// Now is the store's clock; nil is time.Now, which is virtual in a synctest bubble. Set it before use.
	Now func() time.Time
	// ID is the answer of StoreID, 32 hex digits. NewMemory draws one.
	ID string

	plane memoryPlane
	mu    sync.Mutex
	runs  map[string]*memoryRun
	// pointers of retained checkpoints; holds are the effects under way by lease.
	pointers map[pointerKey]control.Pointer
	holds    map[string]*hold
	hook     func(step string) error
	calls    map[Op]int
	armed    []*armedFault
	fired    int
	closed   int
}

type memoryRun struct {
	header             control.RunHeader
	status             control.RunStatus
	epoch              uint64
	watermark          record.EventTime
	fence              control.FenceToken
	created, committed time.Time
	partitions         map[int32]*memoryPartition
	// forkedFrom and forkedAt say of which run and epoch it is a fork.
	forkedFrom string
	forkedAt   uint64
}

// dated is something with the epoch that brought it.
type dated[T any] struct {
	epoch uint64
	v     T
}

type memoryPartition struct {
	// cut is nil until the first commit.
	cut        *partitions.Cut
	blobs      map[string][]byte
	outputs    []dated[partitions.Rows]
	quarantine []dated[partitions.Quarantined]
	decisions  []dated[partitions.Decision]
}

var _ control.ControlStore = (*Memory)(nil)

// NewMemory makes an empty store.
func NewMemory() *Memory {
	return &Memory{ID: newStoreID(), runs: map[string]*memoryRun{}, calls: map[Op]int{}, plane: newMemoryPlane(),
		pointers: map[pointerKey]control.Pointer{}, holds: map[string]*hold{}}
}

// OpenRun is control.Journal's.
func (m *Memory) OpenRun(ctx context.Context, h control.RunHeader) (control.RunState, error) {
	return m.openRun(ctx, nil, h)
}

func (m *Memory) openRun(ctx context.Context, l *control.Lease, h control.RunHeader) (state control.RunState, err error) {
	err = m.writeRun(ctx, OpOpen, l, h.RunID, h.Validate, func(token control.FenceToken) error {
		r := m.runs[h.RunID]
		if r == nil {
			if err := control.CheckScope(h.RunID, slices.Collect(maps.Keys(m.runs))); err != nil {
				return err
			}
			r = newMemoryRun(h, m.now())
			m.runs[h.RunID] = r
		}
		if err := control.CheckFence(h.RunID, r.fence, token); err != nil {
			return err
		}
		stands, added, err := control.CheckOpen(r.status, r.header, h)
		r.header = stands
		r.add(added)
		if err == nil {
			r.fence = max(r.fence, token)
		}
		if err == nil || codes.Has(err, codes.RunFinished) {
			state = r.state()
		}
		return err
	})
	if err != nil && !codes.Has(err, codes.RunFinished) {
		return control.RunState{}, err
	}
	return state, err
}

func newMemoryRun(h control.RunHeader, now time.Time) *memoryRun {
	r := &memoryRun{header: h, status: control.RunOpen, watermark: record.NoTime, created: now, partitions: map[int32]*memoryPartition{}}
	r.header.Partitions = slices.Sorted(slices.Values(h.Partitions))
	r.add(r.header.Partitions)
	return r
}

func (r *memoryRun) add(ps []int32) {
	for _, p := range ps {
		r.partitions[p] = &memoryPartition{blobs: map[string][]byte{}}
	}
}

func (r *memoryRun) state() control.RunState {
	s := control.RunState{Header: r.header, Status: r.status, Epoch: r.epoch, Watermark: r.watermark, Fence: r.fence, Cuts: map[int32]partitions.Cut{}}
	s.Header.Partitions = slices.Clone(r.header.Partitions)
	for p, mp := range r.partitions {
		if mp.cut != nil {
			s.Cuts[p] = *mp.cut
		}
	}
	return s
}

// Commit is control.Journal's.
func (m *Memory) Commit(ctx context.Context, c control.Commit) error { return m.commit(ctx, nil, c) }

func (m *Memory) commit(ctx context.Context, l *control.Lease, c control.Commit) error {
	return m.writeRun(ctx, OpCommit, l, c.RunID, c.Validate, func(token control.FenceToken) error {
		r, err := m.run(c.RunID)
		if err != nil {
			return err
		}
		if err := control.CheckFence(c.RunID, r.fence, token); err != nil {
			return err
		}
		if err := r.check(c); err != nil {
			return err
		}
		r.take(c, token, m.now())
		return nil
	})
}

// take makes an epoch stand that was checked.
func (r *memoryRun) take(c control.Commit, token control.FenceToken, now time.Time) {
	for _, p := range c.Partitions {
		r.partitions[p.Cut.Partition].apply(c.Epoch, p)
	}
	r.epoch, r.status, r.watermark, r.committed, r.fence = c.Epoch, c.Status, c.Watermark, now, max(r.fence, token)
}

// check applies every rule before anything is changed.
func (r *memoryRun) check(c control.Commit) error {
	if err := control.CheckCommit(r.status, r.epoch, c); err != nil {
		return err
	}
	if c.Watermark < r.watermark {
		return codes.New(codes.Internal, "run %q: the merged watermark would go back from %s to %s", c.RunID, r.watermark, c.Watermark)
	}
	for _, p := range c.Partitions {
		mp := r.partitions[p.Cut.Partition]
		if mp == nil {
			return unknownPartition(c.RunID, p.Cut.Partition)
		}
		stored := partitions.Cut{Watermark: record.NoTime}
		if mp.cut != nil {
			stored = *mp.cut
		}
		if err := control.CheckCut(c.RunID, stored, p.Cut); err != nil {
			return err
		}
	}
	return nil
}

func (mp *memoryPartition) apply(epoch uint64, p control.PartitionCommit) {
	cut := p.Cut
	cut.Put, cut.Delete = nil, nil
	mp.cut = &cut
	for _, name := range p.Cut.Delete {
		delete(mp.blobs, name)
	}
	for _, b := range p.Cut.Put {
		mp.blobs[strings.Clone(b.Name)] = bytes.Clone(b.Data)
	}
	if p.Rows.Count > 0 {
		rows := p.Rows
		rows.Data = bytes.Clone(rows.Data)
		mp.outputs = append(mp.outputs, dated[partitions.Rows]{epoch, rows})
	}
	for _, q := range p.Quarantine {
		q = q.Clone()
		q.Partition, q.Number = cut.Partition, int64(len(mp.quarantine))
		mp.quarantine = append(mp.quarantine, dated[partitions.Quarantined]{epoch, q})
	}
	for _, d := range p.Decisions {
		d.Partition = cut.Partition
		mp.decisions = append(mp.decisions, dated[partitions.Decision]{epoch, d})
	}
}

// LoadBlobs is control.Journal's.
func (m *Memory) LoadBlobs(ctx context.Context, runID string, partition int32, fn func(partitions.StateBlob) error) error {
	return m.do(ctx, OpLoadBlobs, func() error {
		var blobs []partitions.StateBlob
		err := m.partition(runID, partition, func(mp *memoryPartition) {
			for _, name := range slices.Sorted(maps.Keys(mp.blobs)) {
				blobs = append(blobs, partitions.StateBlob{Name: name, Data: append([]byte{}, mp.blobs[name]...)})
			}
		})
		if err != nil {
			return err
		}
		for _, b := range blobs {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := fn(b); err != nil {
				return err
			}
			spoil(b.Data)
		}
		return nil
	})
}

// Outputs is control.Journal's.
func (m *Memory) Outputs(ctx context.Context, runID string, partition int32, fn func(partitions.Rows) error) error {
	return m.do(ctx, OpOutputs, func() error {
		var outputs []dated[partitions.Rows]
		err := m.partition(runID, partition, func(mp *memoryPartition) {
			// Stored rows are never changed, so the copies for fn can be made one at a time.
			outputs = slices.Clone(mp.outputs)
		})
		if err != nil {
			return err
		}
		for _, out := range outputs {
			if err := ctx.Err(); err != nil {
				return err
			}
			rows := out.v
			rows.Data = bytes.Clone(rows.Data)
			if err := fn(rows); err != nil {
				return err
			}
			spoil(rows.Data)
		}
		return nil
	})
}

// spoil shows a receiver that kept what was valid during its call only.
func spoil(b []byte) {
	if len(b) == 0 {
		return
	}
	b[0] = 0xDB
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// Quarantine is control.Journal's.
func (m *Memory) Quarantine(ctx context.Context, runID string, fn func(partitions.Quarantined) error) error {
	return m.do(ctx, OpQuarantine, func() error {
		var all []partitions.Quarantined
		err := m.everyPartition(runID, func(mp *memoryPartition) {
			for _, d := range mp.quarantine {
				all = append(all, d.v.Clone())
			}
		})
		if err != nil {
			return err
		}
		slices.SortStableFunc(all, func(a, b partitions.Quarantined) int {
			return byPosition(a.Partition, b.Partition, a.Position, b.Position)
		})
		return each(ctx, all, fn)
	})
}

// Decisions is control.Journal's.
func (m *Memory) Decisions(ctx context.Context, runID string, fn func(partitions.Decision) error) error {
	return m.do(ctx, OpDecisions, func() error {
		var all []partitions.Decision
		err := m.everyPartition(runID, func(mp *memoryPartition) {
			for _, d := range mp.decisions {
				all = append(all, d.v)
			}
		})
		if err != nil {
			return err
		}
		slices.SortStableFunc(all, func(a, b partitions.Decision) int {
			return byPosition(a.Partition, b.Partition, a.Position, b.Position)
		})
		return each(ctx, all, fn)
	})
}

func byPosition(p, q int32, a, b record.Position) int {
	if p != q {
		return int(p) - int(q)
	}
	return a.Cmp(b)
}

func each[T any](ctx context.Context, all []T, fn func(T) error) error {
	for _, x := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(x); err != nil {
			return err
		}
	}
	return nil
}

// Runs is control.RunLister's.
func (m *Memory) Runs(context.Context) ([]control.RunInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []control.RunInfo
	for _, id := range slices.Sorted(maps.Keys(m.runs)) {
		r := m.runs[id]
		s := r.state()
		info := control.RunInfo{Header: s.Header, Status: s.Status, Epoch: s.Epoch, Watermark: s.Watermark, Created: r.created, Committed: r.committed}
		for _, cut := range s.Cuts {
			info.Counts = sum(info.Counts, cut.Counts)
		}
		out = append(out, info)
	}
	return out, nil
}

func sum(a, b partitions.Counts) partitions.Counts {
	return partitions.Counts{
		Records: a.Records + b.Records, Consumed: a.Consumed + b.Consumed, Filtered: a.Filtered + b.Filtered, Omitted: a.Omitted + b.Omitted,
		Duplicates: a.Duplicates + b.Duplicates, Late: a.Late + b.Late, Future: a.Future + b.Future, Outputs: a.Outputs + b.Outputs,
	}
}

// Close counts; what the journal holds stays, and it can be used on.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed++
	return nil
}

// Closed says how often Close was called.
func (m *Memory) Closed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// Epoch is the epoch that a run stands at; 0 when there is no such run.
func (m *Memory) Epoch(runID string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.runs[runID]; r != nil {
		return r.epoch
	}
	return 0
}

func (m *Memory) run(runID string) (*memoryRun, error) {
	r := m.runs[runID]
	if r == nil {
		return nil, codes.New(codes.RunUnknown, "the journal holds no run %q", runID)
	}
	return r, nil
}

func (m *Memory) partition(runID string, partition int32, read func(*memoryPartition)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.run(runID)
	if err != nil {
		return err
	}
	mp := r.partitions[partition]
	if mp == nil {
		return unknownPartition(runID, partition)
	}
	read(mp)
	return nil
}

func (m *Memory) everyPartition(runID string, read func(*memoryPartition)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, err := m.run(runID)
	if err != nil {
		return err
	}
	for _, p := range r.header.Partitions {
		read(r.partitions[p])
	}
	return nil
}

func unknownPartition(runID string, partition int32) error {
	return codes.New(codes.Internal, "run %q has no partition %d", runID, partition)
}

// do runs one operation between the faults before and after it.
func (m *Memory) do(ctx context.Context, op Op, act func() error) error {
	return m.call(ctx, op, func(int) error { return act() })
}

// call is do for an operation that wants to know the number of its call.
func (m *Memory) call(ctx context.Context, op Op, act func(call int) error) error {
	call := m.begin(op)
	if err := m.fault(op, call, before); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("control/controltest: %s: %w", op, err)
	}
	if err := act(call); err != nil {
		return err
	}
	return m.fault(op, call, after)
}
