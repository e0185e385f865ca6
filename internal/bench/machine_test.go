package bench

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// Limits of the partition machine alone, against the same work by hand.
const (
	machineMaxRatio  = 1.7
	machineMaxAllocs = 0.1
)

const (
	machineRecords = 500_000
	// machineWarm records go before the measured ones: tables have grown, and the horizon begins to forget.
	machineWarm  = 200_000
	machineBatch = 1000
	// machineCut is how many records go between two cuts where cuts are taken: about three a second at full speed.
	machineCut = 250_000
)

// BenchmarkMachine feeds one log to the partition machine and to the loop written by hand, in turns.
//
//	machine-ns/record, hand-ns/record   CPU time a record costs, medians
//	x-hand                              median of the ratios of the pairs; at most 1.7
//	x-hand-with-cuts                    the same with a cut every 250,000 records
//	allocs/record                       of the machine, at most 0.1
func BenchmarkMachine(b *testing.B) {
	plan := tickPlan(b)
	log := ticks(machineRecords, 1)
	batches := batchesOf(log)
	costs := compare(b,
		contestant{"hand", func(start func()) int { return runHand(log, start) }},
		contestant{"machine", func(start func()) int { return runMachine(b, plan, batches, 0, start) }},
		contestant{"machine with cuts", func(start func()) int { return runMachine(b, plan, batches, machineCut, start) }},
	)
	hand, machine, cuts := costs[0], costs[1], costs[2]
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(machine, nsPerRecord), "machine-ns/record")
	b.ReportMetric(median(hand, nsPerRecord), "hand-ns/record")
	b.ReportMetric(ratio(machine, hand), "x-hand")
	b.ReportMetric(ratio(cuts, hand), "x-hand-with-cuts")
	b.ReportMetric(median(machine, allocsPerRecord), "allocs/record")
	if x := ratio(machine, hand); x > machineMaxRatio {
		b.Errorf("the machine costs %.2f times the work by hand, the limit is %.1f", x, machineMaxRatio)
	}
	if n := median(machine, allocsPerRecord); n > machineMaxAllocs {
		b.Errorf("the machine makes %.3f allocations a record, the limit is %.1f", n, machineMaxAllocs)
	}
}

// BenchmarkMachineAlone runs the machine only, for profiles: -cpuprofile shows where its time goes.
func BenchmarkMachineAlone(b *testing.B) {
	plan := tickPlan(b)
	batches := batchesOf(ticks(machineRecords, 1))
	for b.Loop() {
		runMachine(b, plan, batches, 0, func() {})
	}
}

// TestMachineEqualsHand: both do the same work, or comparing their costs would mean nothing.
func TestMachineEqualsHand(t *testing.T) {
	t.Parallel()
	log := ticks(30_000, 2)
	h := newHand()
	h.process(log)
	m := partitions.New(tickPlan(t), 0)
	var eff partitions.Effects
	for _, batch := range batchesOf(log) {
		if err := m.Step(partitions.Deliver{Batch: batch}, &eff); err != nil {
			t.Fatal(err)
		}
	}
	want := partitions.Counts{
		Records: int64(len(log)), Consumed: int64(h.consumed), Filtered: int64(h.filtered), Omitted: int64(h.omitted),
		Duplicates: int64(h.duplicates), Late: int64(h.late), Future: int64(h.future), Outputs: int64(h.outputs),
	}
	if m.Counts() != want {
		t.Fatalf("counts %+v, by hand %+v", m.Counts(), want)
	}
	if want.Outputs == 0 || want.Filtered == 0 || want.Duplicates == 0 {
		t.Fatalf("the log has nothing to filter, to skip or to put out: %+v", want)
	}
	if !bytes.Equal(eff.Rows.Data, h.rows) {
		t.Fatal("the rows differ")
	}
}

func runHand(log []message, start func()) int {
	h := newHand()
	for i := 0; i < len(log); i += machineBatch {
		if i == machineWarm {
			start()
		}
		h.process(log[i:min(i+machineBatch, len(log))])
		h.rows = h.rows[:0]
	}
	return len(log) - machineWarm
}

func runMachine(tb testing.TB, plan *flow.Plan, batches []*record.Batch, cutEvery int, start func()) int {
	m := partitions.New(plan, 0)
	var eff partitions.Effects
	n, counted := 0, 0
	for _, batch := range batches {
		if n == machineWarm {
			counted = n
			start()
		}
		if err := m.Step(partitions.Deliver{Batch: batch}, &eff); err != nil {
			tb.Fatal(err)
		}
		n += len(batch.Records)
		eff.Reset()
		if cutEvery > 0 && n%cutEvery == 0 {
			m.Cut()
		}
	}
	if m.Counts().Omitted != 0 || m.Counts().Late != 0 {
		tb.Fatalf("the log is not what it was meant to be: %+v", m.Counts())
	}
	return n - counted
}

func tickPlan(tb testing.TB) *flow.Plan {
	tb.Helper()
	plan, err := flow.Parse("ticks.yaml", []byte(strings.TrimSpace(tickFlow)), nil)
	if err != nil {
		tb.Fatal(err)
	}
	if plan.Lateness != tickLateness || plan.DedupeHorizon != tickHorizon || plan.MaxFutureSkew != tickSkew {
		tb.Fatalf("the flow says lateness %s, horizon %s, skew %s; the loop by hand another", plan.Lateness, plan.DedupeHorizon, plan.MaxFutureSkew)
	}
	return plan
}

func batchesOf(log []message) []*record.Batch {
	var batches []*record.Batch
	for i := 0; i < len(log); i += machineBatch {
		part := log[i:min(i+machineBatch, len(log))]
		b := &record.Batch{Records: make([]record.Record, len(part))}
		for k, m := range part {
			b.Records[k] = record.Record{Position: record.Offset(m.offset), Arrival: record.EventTime(m.timestamp), Key: m.key, Value: m.value}
			b.Bytes += len(m.value)
		}
		b.Next = record.Offset(part[len(part)-1].offset + 1)
		batches = append(batches, b)
	}
	return batches
}
