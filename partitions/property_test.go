package partitions

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

// runWhole is the run that the others are compared with: one record at a time, no cut.
func runWhole(t *testing.T, plan *flow.Plan, log []made, end bool) *harness {
	t.Helper()
	h := newHarness(plan, 0)
	for i := range log {
		h.deliver(t, recordsOf(log[i:i+1]))
	}
	if end {
		h.finish(t, record.NoTime)
	}
	return h
}

// Fetch sizes do not matter: the same rows, verdicts, counts and state come out of batches of 1 to 10,000 records.
func TestFetchSizesDoNotMatter(t *testing.T) {
	t.Parallel()
	eachCase(t, 1500, func(t *testing.T, text string, log []made, rng *rand.Rand) {
		plan := planOf(t, text)
		want := runWhole(t, plan, log, true)
		for _, size := range []int{2, 7, 511, 513, 10_000, 0} {
			h := newHarness(plan, 0)
			for from := 0; from < len(log); {
				n := size
				if size == 0 {
					n = rng.IntN(rng.IntN(300) + 1) // empty batches among them
				}
				to := min(len(log), from+n)
				h.deliver(t, recordsOf(log[from:to]))
				from = to
			}
			h.finish(t, record.NoTime)
			sameRun(t, fmt.Sprintf("batches of %d", size), h, want)
		}
	})
}

// A machine that was cut and restored at any point is the one that was not, and its later cuts are the same to the byte.
func TestRestoreAnywhere(t *testing.T) {
	t.Parallel()
	eachCase(t, 600, func(t *testing.T, text string, log []made, rng *rand.Rand) {
		plan := planOf(t, text)
		want := runWhole(t, plan, log, true)
		h, twin := newHarness(plan, 0), newHarness(plan, 0)
		for from := 0; from < len(log); {
			to := min(len(log), from+1+rng.IntN(20))
			records := recordsOf(log[from:to])
			h.deliver(t, records)
			twin.deliver(t, records)
			from = to
			if rng.IntN(3) == 0 {
				continue
			}
			sameCut(t, fmt.Sprintf("after %d records", to), h.cut(t), twin.cut(t))
			if rng.IntN(2) == 0 {
				h.crash(t)
			}
			if rng.IntN(5) == 0 {
				twin.crash(t)
			}
		}
		h.finish(t, record.NoTime)
		h.cutAndCrash(t)
		sameRun(t, "restored", h, want)
	})
}

func sameCut(t *testing.T, where string, a, b Cut) {
	t.Helper()
	sameState(t, where, a.Put, b.Put)
	same(t, where+": deletes", a.Delete, b.Delete)
	if a.Next != b.Next || a.Watermark != b.Watermark || a.Finished != b.Finished || a.Counts != b.Counts {
		t.Fatalf("%s: cuts differ: %+v, %+v", where, a.Counts, b.Counts)
	}
}

// What was not committed is done again with the same result: a crash at any point loses nothing and doubles nothing.
func TestCrashBetweenCuts(t *testing.T) {
	t.Parallel()
	eachCase(t, 800, func(t *testing.T, text string, log []made, rng *rand.Rand) {
		plan := planOf(t, text)
		want := runWhole(t, plan, log, true)
		h := newHarness(plan, 0)
		h.cut(t)
		at, rows, aside, decided := 0, 0, 0, 0
		for reached := 0; reached < len(log); {
			to := min(len(log), reached+1+rng.IntN(60))
			h.deliver(t, recordsOf(log[reached:to]))
			reached = to
			switch rng.IntN(3) {
			case 0:
				h.cut(t)
				at, rows, aside, decided = reached, len(h.rows), len(h.quarantine), len(h.decisions)
			case 1:
				h.crash(t)
				reached = at
				h.rows, h.quarantine, h.decisions = h.rows[:rows], h.quarantine[:aside], h.decisions[:decided]
				if reached > 0 && h.m.Next() != log[reached-1].Position.Next() {
					t.Fatalf("resumes at %s, should after %s", h.m.Next(), log[reached-1].Position)
				}
			}
		}
		h.finish(t, record.NoTime)
		sameRun(t, "after crashes", h, want)
	})
}

// While disorder stays within the lateness, the number of partitions does not matter, nor the interleaving of their batches: the
// merged rows are those of one partition.
func TestPartitionsDoNotMatter(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{"event clock": flows["event clock"], "grid": flows["grid"], "select": strings.Replace(flows["select"], "horizon: 0s", "horizon: 2s", 1)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 4; seed++ {
				rng := rand.New(rand.NewPCG(seed, 5))
				plan := planOf(t, text)
				lag := int64(plan.Lateness)/1_000_000 - 3
				log := generate(rng, logShape{records: 1500, keys: 20, step: 1, lag: lag, duplicates: 9, bad: 40, gaps: 9, revisions: 30, future: 40})
				one := runWhole(t, plan, log, true)
				if one.m.Counts().Late != 0 {
					t.Fatalf("seed %d: %d late: the log is to stay within the lateness", seed, one.m.Counts().Late)
				}
				for _, n := range []int32{1, 2, 3, 8} {
					rows, counts := runPartitioned(t, plan, log, n, rng)
					same(t, fmt.Sprintf("seed %d, %d partitions", seed, n), rows, one.rows)
					if counts != one.m.Counts() {
						t.Fatalf("seed %d, %d partitions: counts %+v, want %+v", seed, n, counts, one.m.Counts())
					}
				}
			}
		})
	}
}

// runPartitioned spreads a log by key and delivers random runs of random partitions.
func runPartitioned(t *testing.T, plan *flow.Plan, log []made, n int32, rng *rand.Rand) (rows []string, counts Counts) {
	t.Helper()
	queues := make([][]record.Record, n)
	for _, r := range log {
		p := record.PartitionOf([]byte(r.key), n)
		queues[p] = append(queues[p], r.Record)
	}
	machines := make([]*harness, n)
	for p := range machines {
		machines[p] = newHarness(plan, int32(p))
	}
	for left := len(log); left > 0; {
		p := rng.IntN(int(n))
		k := min(len(queues[p]), 1+rng.IntN(50))
		machines[p].deliver(t, queues[p][:k])
		queues[p] = queues[p][k:]
		left -= k
		if rng.IntN(9) == 0 {
			machines[p].cutAndCrash(t)
		}
	}
	through := record.NoTime
	for _, h := range machines {
		through = max(through, h.m.MaxEventTime())
	}
	var all []Row
	for _, h := range machines {
		h.finish(t, through)
		for i, n := range h.m.Counts().counted() {
			*counts.fields()[i] += n
		}
		for _, line := range h.rows {
			f := strings.SplitN(line, " ", 3)
			at, err := record.ParseTime([]byte(f[0]))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, Row{Time: at, ID: []byte(f[1]), Key: []byte(line)})
		}
	}
	slices.SortFunc(all, func(a, b Row) int {
		if a.Time != b.Time {
			return int(max(-1, min(1, a.Time-b.Time)))
		}
		return bytes.Compare(a.ID, b.ID)
	})
	for _, r := range all {
		rows = append(rows, string(r.Key))
	}
	return rows, counts
}

func (c Counts) counted() [8]int64 {
	var out [8]int64
	for i, n := range c.fields() {
		out[i] = *n
	}
	return out
}

// The rows of one machine are in (time, id) order over its whole life, and the watermark never moves back.
func TestRowsAreInOrder(t *testing.T) {
	t.Parallel()
	eachCase(t, 1500, func(t *testing.T, text string, log []made, rng *rand.Rand) {
		plan := planOf(t, text)
		h := newHarness(plan, 0)
		w := record.NoTime
		for from := 0; from < len(log); from += 10 {
			h.deliver(t, recordsOf(log[from:min(len(log), from+10)]))
			if h.m.Watermark() < w {
				t.Fatalf("the watermark went back from %s to %s", w, h.m.Watermark())
			}
			w = h.m.Watermark()
		}
		h.finish(t, record.NoTime)
		var last Row
		for i, line := range h.rows {
			f := strings.SplitN(line, " ", 3)
			at, err := record.ParseTime([]byte(f[0]))
			if err != nil {
				t.Fatal(err)
			}
			if !plan.Revised && i > 0 && (at < last.Time || at == last.Time && f[1] <= string(last.ID)) {
				t.Fatalf("row %d, %s %s, stands after %s %s", i, at, f[1], last.Time, last.ID)
			}
			last = Row{Time: at, ID: []byte(f[1])}
		}
		c := h.m.Counts()
		if c.Records != c.Consumed+c.Filtered+c.Omitted+c.Duplicates+c.Late+c.Future || c.Records != int64(len(log)) || c.Outputs != int64(len(h.rows)) {
			t.Fatalf("the counts do not add up: %+v", c)
		}
		if h.m.Waiting() != 0 {
			t.Fatalf("%d records wait after the end", h.m.Waiting())
		}
	})
}
