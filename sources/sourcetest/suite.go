package sourcetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

const defaultPatience = 60 * time.Second

// Harness tells Run how to make logs of the source under test, and what the source can do.
type Harness struct {
	// New makes a log that nobody else uses, with these records in its partitions. The suite chooses keys that Kafka's default
	// partitioner maps to the partition that they stand in, and values that are JSON objects unless a feature allows more.
	New func(t testing.TB, partitions [][]record.Record) Target

	// Tombstones: a nil value comes back as nil.
	Tombstones bool
	// EmptyValues: an empty value comes back as empty, not nil; so does any other sequence of bytes.
	EmptyValues bool
	// NilKeys: a nil key comes back as nil, and an empty one as empty.
	NilKeys bool
	// Headers come back in order.
	Headers bool
	// ArrivalUnit is the unit in which the log keeps timestamps. 0: it does not.
	ArrivalUnit time.Duration
	// EmptyAnswers: a Poll that finds an unbounded log at its end answers empty after a while.
	EmptyAnswers bool
	// Patience ends a test that waits for something that does not come. Defaults to 60 s.
	Patience time.Duration
}

// Target is one log. A nil function is an absent feature. A log without Append must be bounded, one with it must not.
type Target struct {
	Source sources.Source
	// Append writes to a partition, also while readers are open.
	Append func(t testing.TB, partition int32, records ...record.Record)
	// Skip leaves a hole at the end of a partition.
	Skip func(t testing.TB, partition int32)
	// End is the position after the last record or hole of a partition. It is needed with Skip.
	End func(t testing.TB, partition int32) record.Position
	// Truncate drops what stands before a position.
	Truncate func(t testing.TB, partition int32, before record.Position)
	// Recreate puts an empty log of another identity in the place of this one.
	Recreate func(t testing.TB)
	// Fail makes the next reader fail once: its Open, or a Poll.
	Fail func(t testing.TB)
}

// Run tests that a source keeps the promises of package sources. Each test runs in parallel on logs of its own; a test of a feature
// that is absent is left out.
func Run(t *testing.T, h Harness) {
	always := func(Target) bool { return true }
	tests := []struct {
		name  string
		needs func(Target) bool
		run   func(*suite)
	}{
		{"info", always, (*suite).info},
		{"order and limits", always, (*suite).orderAndLimits},
		{"exact start", always, (*suite).exactStart},
		{"chosen partitions only", always, (*suite).chosenPartitions},
		{"pause and resume", always, (*suite).pauseAndResume},
		{"pause storm", always, (*suite).pauseStorm},
		{"pause from another goroutine", always, (*suite).pauseElsewhere},
		{"nil and empty", always, (*suite).nilAndEmpty},
		{"headers and arrival", always, (*suite).headersAndArrival},
		{"cancelled poll loses nothing", always, (*suite).cancelled},
		{"close", always, (*suite).closed},
		{"held batches stay whole", always, (*suite).held},
		{"released memory is not in use", always, (*suite).released},
		{"missing partition", always, (*suite).missingPartition},
		{"end of a bounded log", func(t Target) bool { return t.Append == nil }, (*suite).boundedEnd},
		{"a waiting poll gets what is appended", func(t Target) bool { return t.Append != nil }, (*suite).appended},
		{"empty answer", func(t Target) bool { return t.Append != nil && h.EmptyAnswers }, (*suite).emptyAnswer},
		{"reopen after a failure", func(t Target) bool { return t.Fail != nil }, (*suite).failures},
		{"holes", func(t Target) bool { return t.Skip != nil }, (*suite).holes},
		{"truncated", func(t Target) bool { return t.Truncate != nil }, (*suite).truncated},
		{"recreated", func(t Target) bool { return t.Recreate != nil }, (*suite).recreated},
	}
	features := h.New(t, fill(1, 1))
	for _, test := range tests {
		if !test.needs(features) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(h.Patience, defaultPatience))
			defer cancel()
			test.run(&suite{T: t, h: h, ctx: ctx})
		})
	}
}

// suite is one test of Run.
type suite struct {
	*testing.T
	h   Harness
	ctx context.Context
}

// fill makes n records for each of so many partitions, all different.
func fill(partitions int32, n int) [][]record.Record {
	parts := make([][]record.Record, partitions)
	for p := range parts {
		for i := range n {
			parts[p] = append(parts[p], plain(partitions, int32(p), i))
		}
	}
	return parts
}

// plain is a record that every source can hold. Its timestamps are whole seconds.
func plain(partitions, p int32, i int) record.Record {
	return record.Record{
		Arrival: record.EventTime(1_767_622_800_000_000_000 + int64(i)*1_000_000_000),
		Key:     keyFor(partitions, p),
		Value:   fmt.Appendf(nil, `{"n":%d,"partition":%d}`, i, p),
	}
}

// keyFor finds a key of the partition.
func keyFor(partitions, p int32) []byte {
	for i := 0; ; i++ {
		if key := fmt.Appendf(nil, "key-%d", i); record.PartitionOf(key, partitions) == p {
			return key
		}
	}
}

func (s *suite) open(target Target, from map[int32]record.Position) sources.Reader {
	s.Helper()
	r, err := target.Source.Open(s.ctx, from)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = r.Close() })
	return r
}

// starts are the positions at which every record of the log can be read again, learned from a first reading.
func (s *suite) starts(target Target, partitions int32, total int) *reading {
	s.Helper()
	all := newReading(s, from0(partitions))
	r := s.open(target, from0(partitions))
	all.until(r, 0, func() bool { return all.records() == total })
	if err := r.Close(); err != nil {
		s.Fatal(err)
	}
	return all
}

// from0 are the first positions of so many partitions.
func from0(partitions int32) map[int32]record.Position {
	m := map[int32]record.Position{}
	for p := range partitions {
		m[p] = record.Position{}
	}
	return m
}

// reading gathers what a reader delivers and checks what holds for every answer.
type reading struct {
	*suite
	got   map[int32][]record.Record // copies
	next  map[int32]record.Position
	hold  func(*record.Batch) bool // keeps the batch instead of releasing it
	ended bool
}

func newReading(s *suite, from map[int32]record.Position) *reading {
	return &reading{suite: s, got: map[int32][]record.Record{}, next: clonePositions(from), hold: func(*record.Batch) bool { return false }}
}

func clonePositions(m map[int32]record.Position) map[int32]record.Position {
	c := make(map[int32]record.Position, len(m))
	for p, pos := range m {
		c[p] = pos
	}
	return c
}

func (g *reading) records() (n int) {
	for _, recs := range g.got {
		n += len(recs)
	}
	return n
}

// until polls until done, or the end of a bounded log.
func (g *reading) until(r sources.Reader, limit int, done func() bool) {
	g.Helper()
	for !done() && !g.ended {
		if _, err := g.poll(r, limit); err != nil {
			g.Fatalf("after %d records: %v", g.records(), err)
		}
	}
	if !done() {
		g.Fatalf("the log ended after %d records", g.records())
	}
}

// poll polls once. io.EOF is noted, not returned.
func (g *reading) poll(r sources.Reader, limit int) ([]int32, error) {
	g.Helper()
	batches, err := r.Poll(g.ctx, limit)
	if errors.Is(err, io.EOF) {
		g.ended = true
		err = nil
	}
	var partitions []int32
	total := 0
	for i := range batches {
		b := batches[i]
		g.take(&b)
		total += len(b.Records)
		partitions = append(partitions, b.Partition)
		if !g.hold(&b) {
			b.Done()
		}
	}
	if limit > 0 && total > limit {
		g.Errorf("%d records in an answer, asked for at most %d", total, limit)
	}
	return partitions, err
}

// take checks a batch against what came before and copies its records.
func (g *reading) take(b *record.Batch) {
	g.Helper()
	at, asked := g.next[b.Partition]
	if !asked {
		g.Fatalf("got a batch of partition %d, which was not asked for", b.Partition)
	}
	size := 0
	for _, r := range b.Records {
		if r.Position.Cmp(at) < 0 {
			g.Errorf("partition %d: position %s after %s", b.Partition, r.Position, at)
		}
		at = r.Position.Next()
		g.got[b.Partition] = append(g.got[b.Partition], copyOf(r))
		size += len(r.Key) + len(r.Value)
	}
	if b.Next.Cmp(at) < 0 || b.Next == g.next[b.Partition] {
		g.Errorf("partition %d: next is %s after %s, which must move on", b.Partition, b.Next, at)
	}
	if b.Bytes < size {
		g.Errorf("partition %d: a batch of %d bytes says that it holds %d", b.Partition, size, b.Bytes)
	}
	g.next[b.Partition] = b.Next
}

func copyOf(r record.Record) record.Record {
	r.Key, r.Value, r.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), slices.Clone(r.Headers)
	for i := range r.Headers {
		r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
	}
	return r
}

// wantRecords compares what came of a partition, positions aside.
func (g *reading) wantRecords(p int32, want []record.Record) {
	g.Helper()
	got := g.got[p]
	if len(got) != len(want) {
		g.Errorf("partition %d: %d records, want %d", p, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if !sameBytes(got[i].Key, want[i].Key) || !sameBytes(got[i].Value, want[i].Value) {
			g.Fatalf("partition %d record %d: got %s, want %s", p, i, show(got[i]), show(want[i]))
		}
	}
}

// sameBytes tells nil from empty.
func sameBytes(a, b []byte) bool { return bytes.Equal(a, b) && (a == nil) == (b == nil) }

func show(r record.Record) string {
	quote := func(b []byte) string {
		if b == nil {
			return "nil"
		}
		return fmt.Sprintf("%q", b)
	}
	return quote(r.Key) + "=" + quote(r.Value)
}
