package controltest

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// Workload makes the epochs of a run out of a seed: the same epoch of the same workload is always the same, so what a journal must hold
// at an epoch is known without having seen how it came there.
type Workload struct {
	Seed       uint64
	RunID      string
	Partitions int32
	// Rows and Blob are upper bounds, for a partition and epoch: rows made, and bytes in a state blob.
	Rows, Blob int
	// Earlier leaves out what stores of earlier versions did not keep of a record that was set aside.
	Earlier bool
}

// Header of the run.
func (w Workload) Header() control.RunHeader {
	h := control.RunHeader{RunID: w.RunID, Fingerprint: "sha256:0123", Source: "ticks", SourceID: "topic-1", Group: "group"}
	for p := range w.Partitions {
		h.Partitions = append(h.Partitions, p)
	}
	return h
}

// names of state blobs: ordinary ones and those that a store might mistake.
var names = []string{"clock", "ids/0001", "ids/0002", "ops/ema/17", "", "nul\x00inside", "nul\x00", "not UTF-8 \xff\xfe", "ü", "Clock", "'; --"}

// Commit is one epoch; epochs start at 1.
func (w Workload) Commit(epoch uint64) control.Commit {
	rng := rand.New(rand.NewPCG(w.Seed, epoch))
	c := control.Commit{RunID: w.RunID, Epoch: epoch, Status: control.RunOpen, Watermark: record.EventTime(epoch) * 1e9}
	if epoch == 1 {
		c.Watermark = record.NoTime
	}
	for _, p := range rng.Perm(int(w.Partitions)) {
		if rng.IntN(5) == 0 {
			continue // nothing to say in this epoch
		}
		c.Partitions = append(c.Partitions, w.partition(rng, int32(p), epoch))
	}
	return c
}

func (w Workload) partition(rng *rand.Rand, p int32, epoch uint64) control.PartitionCommit {
	n := int64(epoch)
	pc := control.PartitionCommit{Cut: partitions.Cut{
		Partition: p, Next: position(p, epoch, 999), Watermark: record.EventTime(epoch)*1e9 + record.EventTime(p), Finished: rng.IntN(4) == 0,
		Counts: partitions.Counts{Records: 33 * n, Consumed: 8 * n, Filtered: 7 * n, Omitted: 6 * n, Duplicates: 5 * n, Late: 4 * n, Future: 3 * n, Outputs: 2 * n},
	}}
	for range rng.IntN(4) {
		pc.Cut.Put = append(pc.Cut.Put, partitions.StateBlob{Name: names[rng.IntN(len(names))], Data: randomBytes(rng, rng.IntN(w.Blob+1))})
	}
	for range rng.IntN(3) {
		pc.Cut.Delete = append(pc.Cut.Delete, names[rng.IntN(len(names))])
	}
	for i := range rng.IntN(w.Rows + 1) {
		t := record.EventTime(epoch)*1e9 + record.EventTime(i)
		pc.Rows.Append(t, fmt.Appendf(nil, "epoch %d row %d", epoch, i), []byte{'k', 0, byte(p)}, []operators.Value{operators.Number(rng.Float64()), operators.Gap})
	}
	for i := range rng.IntN(4) {
		q := partitions.Quarantined{Partition: p, Position: position(p, epoch, rng.IntN(900)), Reason: partitions.ReasonLate, Detail: fmt.Sprintf("detail \x00 %d", i),
			EventID: fmt.Sprintf("id %d", rng.Uint64()), EventTime: record.EventTime(rng.Int64())}
		if rng.IntN(2) == 0 {
			q.Key = randomBytes(rng, rng.IntN(10))
		}
		if rng.IntN(2) == 0 {
			q.Value = randomBytes(rng, rng.IntN(100))
		}
		if q.Arrival = record.NoTime; !w.Earlier {
			origin(&q, rand.New(rand.NewPCG(w.Seed^1, rng.Uint64())))
		}
		pc.Quarantine = append(pc.Quarantine, q)
	}
	for range rng.IntN(3) {
		pc.Decisions = append(pc.Decisions, partitions.Decision{Partition: p, Position: position(p, epoch, rng.IntN(900)), Kind: "GAP_CLOSED", Detail: fmt.Sprint(rng.Uint32())})
	}
	return pc
}

// origin gives a record that was set aside its place in its position, the time of its log, and headers.
func origin(q *partitions.Quarantined, rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		q.Sub, q.Arrival = rng.Uint32(), record.EventTime(rng.Int64())
	}
	for range rng.IntN(4) {
		q.Headers = append(q.Headers, record.Header{Key: fmt.Sprint("h", rng.IntN(2)), Value: randomBytes(rng, rng.IntN(9))})
	}
	if rng.IntN(2) == 0 {
		q.Headers = append([]record.Header{}, q.Headers...)
	}
}

// position is a sequence number of 56 digits that grows with the epoch and i < 1000.
func position(p int32, epoch uint64, i int) record.Position {
	pos, err := record.ParsePosition(fmt.Sprintf("49%034d%017d%03d", p, epoch, i))
	if err != nil {
		panic(err)
	}
	return pos
}

func randomBytes(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// Model is a journal in memory that has committed the workload's epochs up to one.
func (w Workload) Model(ctx context.Context, epoch uint64) (*Memory, error) {
	m := NewMemory()
	if _, err := m.OpenRun(ctx, w.Header()); err != nil {
		return nil, err
	}
	for e := uint64(1); e <= epoch; e++ {
		if err := m.Commit(ctx, w.Commit(e)); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Expected is what a journal must hold after an epoch.
func (w Workload) Expected(ctx context.Context, epoch uint64) (Contents, error) {
	m, err := w.Model(ctx, epoch)
	if err != nil {
		return Contents{}, fmt.Errorf("the model: %w", err)
	}
	c, err := Read(ctx, m, w.Header())
	if err != nil {
		return c, fmt.Errorf("the model: %w", err)
	}
	return c, nil
}

// Fork makes a new run of what the workload's run holds at an epoch, as a checkpoint would have it.
func (w Workload) Fork(ctx context.Context, epoch uint64, runID string) (control.Fork, error) {
	m, err := w.Model(ctx, epoch)
	if err != nil {
		return control.Fork{}, fmt.Errorf("the model: %w", err)
	}
	c, err := Read(ctx, m, w.Header())
	if err != nil {
		return control.Fork{}, fmt.Errorf("the model: %w", err)
	}
	return saved{c.State, c.Blobs}.fork(runID), nil
}

// CheckStored is Check for a run that is written under a lease: it reads it without opening it, and compares the fence.
func (w Workload) CheckStored(ctx context.Context, s control.ControlStore, fence control.FenceToken) (epoch uint64, err error) {
	got, err := ReadStored(ctx, s, w.RunID)
	if err != nil {
		return 0, err
	}
	epoch = got.State.Epoch
	want, err := w.Expected(ctx, epoch)
	if err != nil {
		return epoch, err
	}
	want.State.Fence = fence
	if d := Diff(want, got); d != "" {
		return epoch, fmt.Errorf("at epoch %d (workload seed %d): %s", epoch, w.Seed, d)
	}
	return epoch, nil
}

// Check says whether a journal holds exactly what it must at the epoch where it stands, whichever that is, and returns that epoch.
func (w Workload) Check(ctx context.Context, j control.Journal) (epoch uint64, err error) {
	return w.CheckWith(ctx, j, w.Expected)
}

// CheckWith is Check with what is expected from the caller, who may keep it from one check to the next.
func (w Workload) CheckWith(ctx context.Context, j control.Journal, expected func(ctx context.Context, epoch uint64) (Contents, error)) (epoch uint64, err error) {
	got, err := Read(ctx, j, w.Header())
	if err != nil {
		return 0, err
	}
	epoch = got.State.Epoch
	want, err := expected(ctx, epoch)
	if err != nil {
		return epoch, err
	}
	if d := Diff(want, got); d != "" {
		return epoch, fmt.Errorf("at epoch %d (workload seed %d): %s", epoch, w.Seed, d)
	}
	return epoch, nil
}
