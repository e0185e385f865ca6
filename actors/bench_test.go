//go:build unix

package actors

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// canned is a source whose batches are made beforehand: reading costs nothing, so that what is measured is what comes after.
type canned struct {
	batches []record.Batch
	parts   int32
}

func newCanned(in input, size int) *canned {
	c := &canned{parts: int32(len(in))}
	at := make([]int, len(in))
	for more := true; more; {
		more = false
		for p, recs := range in {
			n := min(size, len(recs)-at[p])
			if n == 0 {
				continue
			}
			more = true
			b := record.Batch{Partition: int32(p), Records: recs[at[p] : at[p]+n]}
			for i := range b.Records {
				b.Records[i].Position = record.Offset(int64(at[p] + i))
				b.Bytes += len(b.Records[i].Value) + len(b.Records[i].Key)
			}
			b.Next = record.Offset(int64(at[p] + n))
			at[p] += n
			c.batches = append(c.batches, b)
		}
	}
	return c
}

func (c *canned) Info(context.Context) (sources.Info, error) {
	info := sources.Info{Name: "canned", Bounded: true}
	for p := range c.parts {
		info.Partitions = append(info.Partitions, p)
	}
	return info, nil
}

func (c *canned) Open(context.Context, map[int32]record.Position) (sources.Reader, error) {
	return &cannedReader{c: c}, nil
}

// cannedReader answers with one batch of each partition, as a fetch does. It does not hold a partition: what comes beyond its credit
// waits aside.
type cannedReader struct {
	c  *canned
	at int
}

func (r *cannedReader) Poll(context.Context, int) ([]record.Batch, error) {
	n := min(int(r.c.parts), len(r.c.batches)-r.at)
	if n == 0 {
		return nil, io.EOF
	}
	r.at += n
	return r.c.batches[r.at-n : r.at], nil
}

func (r *cannedReader) Pause(...int32)  {}
func (r *cannedReader) Resume(...int32) {}
func (r *cannedReader) Close() error    { return nil }

// byHand does the same work in one loop: poll, step, and a commit for so many records.
func byHand(tb testing.TB, plan *flow.Plan, c *canned, every int) {
	ctx := context.Background()
	j := controltest.NewMemory()
	info, _ := c.Info(ctx)
	state, err := j.OpenRun(ctx, control.RunHeader{RunID: "run", Fingerprint: plan.Fingerprint, Source: "canned", Partitions: info.Partitions})
	if err != nil {
		tb.Fatal(err)
	}
	machines, effects := make([]*partitions.Machine, c.parts), make([]partitions.Effects, c.parts)
	for p := range machines {
		machines[p] = partitions.New(plan, int32(p))
	}
	commit := func(status control.RunStatus) {
		state.Epoch++
		out := control.Commit{RunID: "run", Epoch: state.Epoch, Status: status}
		for p, m := range machines {
			e := &effects[p]
			out.Partitions = append(out.Partitions, control.PartitionCommit{Cut: m.Cut(), Rows: e.Rows, Quarantine: e.Quarantine, Decisions: e.Decisions})
		}
		if err := j.Commit(ctx, out); err != nil {
			tb.Fatal(err)
		}
		for p := range effects {
			effects[p].Rows.Reset()
			effects[p].Quarantine, effects[p].Decisions = nil, nil
		}
	}
	reader, _ := c.Open(ctx, nil)
	through, n := record.NoTime, 0
	for {
		batches, err := reader.Poll(ctx, 0)
		if err == io.EOF {
			break
		}
		for i := range batches {
			b := &batches[i]
			step(tb, machines[b.Partition], partitions.Deliver{Batch: b}, &effects[b.Partition])
			if n += len(b.Records); n >= every {
				commit(control.RunOpen)
				n = 0
			}
		}
	}
	for _, m := range machines {
		through = max(through, m.MaxEventTime())
	}
	for p, m := range machines {
		step(tb, m, partitions.EndOfSource{Through: through}, &effects[p])
	}
	commit(control.RunFinished)
}

func byActors(tb testing.TB, plan *flow.Plan, c *canned, every int) {
	_, err := Run(context.Background(), Config{
		Plan: plan, Source: c, Journal: controltest.NewMemory(), RunID: "run", EpochRecords: int64(every), EpochEvery: time.Hour,
	})
	if err != nil {
		tb.Fatal(err)
	}
}

func cpu(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkOverhead compares a run by actors with the same machines in a loop, in pairs that take turns: ns/record is the CPU time of the
// run, ratio the median of run ÷ loop, wall-ratio the same in wall time (actors use several processors). Batches are of so many records.
func BenchmarkOverhead(b *testing.B) {
	for name, src := range map[string]string{"filter all": filterFlow, "ema": emaFlow} {
		plan := parse(b, src)
		for _, size := range []int{64, 1024} {
			b.Run(fmt.Sprintf("%s/batch %d", name, size), func(b *testing.B) {
				in := ticks(4, 400_000)
				c := newCanned(in, size)
				var ratios, walls, costs []float64
				for b.Loop() {
					measure := func(f func(testing.TB, *flow.Plan, *canned, int)) (c1, w1 time.Duration) {
						runtime.GC()
						c0, w0 := cpu(b), time.Now()
						f(b, plan, c, 200_000)
						return cpu(b) - c0, time.Since(w0)
					}
					loopCPU, loopWall := measure(byHand)
					runCPU, runWall := measure(byActors)
					ratios = append(ratios, float64(runCPU)/float64(loopCPU))
					walls = append(walls, float64(runWall)/float64(loopWall))
					costs = append(costs, float64(runCPU.Nanoseconds())/float64(in.total()))
				}
				b.ReportMetric(median(ratios), "ratio")
				b.ReportMetric(median(walls), "wall-ratio")
				b.ReportMetric(median(costs), "ns/record")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

const emaFlow = `flow: weir/1
name: ema
id: event_id
key: instrument
time: {field: t, unit: ms}
lateness: 5s
dedupe: {horizon: 1m}
operators:
  - {name: e, type: ema, input: close, period: 10}
outputs: [e]
`

// filterFlow selects nothing: the cheapest work there is.
const filterFlow = `flow: weir/1
name: filter
select: {field: instrument, equals: "none"}
id: event_id
key: instrument
time: {field: t, unit: ms}
operators:
  - {name: l, type: last, input: close}
outputs: [l]
`

// ticks are in order of time, 100 instruments.
func ticks(parts, n int) input {
	in := make(input, parts)
	for i := range n {
		key := fmt.Sprint("inst-", i%100)
		p := record.PartitionOf([]byte(key), int32(parts))
		v := fmt.Sprintf(`{"close":%d.25,"event_id":"tick-%09d","instrument":%q,"t":%d}`, i%1000, i, key, 1_700_000_000_000+i)
		in[p] = append(in[p], record.Record{Key: []byte(key), Value: []byte(v), Arrival: record.NoTime})
	}
	return in
}
