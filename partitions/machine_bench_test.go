package partitions

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
)

const benchFlow = `
flow: weir/1
name: bench
id: event_id
key: instrument
time: {field: event_time, unit: rfc3339}
lateness: 2s
dedupe: {horizon: %s}
operators: [{name: ema3, type: ema, input: close, period: 3}]
outputs: [ema3]
`

// benchTicks makes ticks of 132 bytes, 1 ms of event time apart, over 500 instruments, in batches of 1000. Disorder is how many
// milliseconds a tick may lag behind.
func benchTicks(batches int, disorder int) []*record.Batch {
	start := time.Date(2026, 1, 5, 14, 30, 0, 0, time.UTC)
	out := make([]*record.Batch, batches)
	n := 0
	for b := range out {
		records := make([]record.Record, 1000)
		for i := range records {
			lag := 0
			if disorder > 0 {
				lag = n * 7919 % disorder
			}
			at := start.Add(time.Duration(n-lag) * time.Millisecond)
			value := fmt.Appendf(nil, `{"event_id":"tick-%012d","event_time":"%s","instrument":"I%03d","close":%d.%02d,"size":%d`,
				n, at.Format("2006-01-02T15:04:05.000Z"), n*31%500, 100+n%50, n%100, 10+n%90)
			for len(value) < 131-len(`,"note":""`) {
				if len(value) < 131-len(`,"note":""`) {
					value = append(value, ' ')
				}
			}
			value = append(value, `,"note":""}`...)
			records[i] = record.Record{Position: record.Offset(int64(n)), Arrival: record.NoTime, Key: []byte("k"), Value: value}
			n++
		}
		out[b] = &record.Batch{Records: records, Next: record.Offset(int64(n))}
	}
	return out
}

// BenchmarkMachine is one record through the whole machine: scan, time, dedupe, order, EMA, row.
func BenchmarkMachine(b *testing.B) {
	for _, c := range []struct {
		name     string
		horizon  string
		disorder int
	}{{"in-order", "1m", 0}, {"disorder-100ms", "1m", 100}, {"disorder-1900ms", "1m", 1900}, {"million-ids", "16m", 0}} {
		b.Run(c.name, func(b *testing.B) {
			batches := benchTicks(300, c.disorder)
			plan := parsePlan(b, fmt.Sprintf(benchFlow, c.horizon))
			plan.Limits.IDs = 0
			benchMachine(b, New(plan, 0), batches)
		})
	}
}

// benchMachine delivers the batches over and over; each pass rewrites ids, times and positions in place, so that all are new.
func benchMachine(b *testing.B, m *Machine, batches []*record.Batch) {
	var eff Effects
	n, done := 0, 0
	step := func() {
		batch := batches[n%len(batches)]
		if n >= len(batches) {
			b.StopTimer()
			renew(batch, n/len(batches), len(batches))
			b.StartTimer()
		}
		if err := m.Step(Deliver{Batch: batch}, &eff); err != nil {
			b.Fatal(err)
		}
		done += len(batch.Records)
		n++
		eff.Reset()
	}
	for range batches {
		step()
	}
	done = 0
	b.ReportAllocs()
	b.ResetTimer()
	for done < b.N {
		step()
	}
	b.StopTimer()
	b.ReportMetric(float64(m.Counts().Consumed)/float64(m.Counts().Records), "accepted")
}

// renew moves the records of a batch on by one pass.
func renew(batch *record.Batch, pass, batches int) {
	shift := int64(batches * len(batch.Records))
	for i := range batch.Records {
		r := &batch.Records[i]
		at, _ := r.Position.Int64()
		r.Position = record.Offset(at + shift)
		copy(r.Value[len(`{"event_id":"tick-`):], fmt.Sprintf("%012d", at+shift))
		from := len(`{"event_id":"tick-000000000000","event_time":"`)
		t, err := record.ParseTime(r.Value[from : from+len("2026-01-05T14:30:00.000Z")])
		if err != nil {
			panic(err)
		}
		t += record.EventTime(shift) * record.EventTime(time.Millisecond)
		copy(r.Value[from:], time.Unix(0, int64(t)).UTC().Format("2006-01-02T15:04:05.000Z"))
	}
	next, _ := batch.Next.Int64()
	batch.Next = record.Offset(next + shift)
}

// BenchmarkCut is what a cut costs a record when one is taken for every so many records, with a million living ids.
func BenchmarkCut(b *testing.B) {
	for _, every := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint("every-", every), func(b *testing.B) {
			plan := parsePlan(b, fmt.Sprintf(benchFlow, "16m"))
			plan.Limits.IDs = 0
			m := New(plan, 0)
			batches := benchTicks(300, 0)
			var eff Effects
			n, written := 0, 0
			deliver := func(records int) {
				for range records / 1000 {
					batch := batches[n%len(batches)]
					if n >= len(batches) {
						renew(batch, n/len(batches), len(batches))
					}
					if err := m.Step(Deliver{Batch: batch}, &eff); err != nil {
						b.Fatal(err)
					}
					n++
					eff.Reset()
				}
			}
			deliver(1_200_000)
			m.Cut()
			var longest, total time.Duration
			cuts := 0
			b.ResetTimer()
			for done := 0; done < b.N; done += every {
				b.StopTimer()
				deliver(every)
				b.StartTimer()
				start := time.Now()
				c := m.Cut()
				longest, total = max(longest, time.Since(start)), total+time.Since(start)
				for _, blob := range c.Put {
					written += len(blob.Data)
				}
				cuts++
			}
			b.ReportMetric(float64(total.Microseconds())/float64(cuts), "µs/cut")
			b.ReportMetric(float64(longest.Microseconds()), "longest-µs")
			b.ReportMetric(float64(written)/float64(cuts*every), "B/record")
		})
	}
}
