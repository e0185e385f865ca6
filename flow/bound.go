package flow

import (
	"fmt"
	"math"
	"strings"
)

// What the memory bound assumes, in bytes: upper bounds of what the partition machine keeps of each thing.
const (
	// BytesPerID is one remembered event id: a hash of 128 bits in a table at the load at which it grows, and its place in
	// the delta that the next cut will write.
	BytesPerID = 40
	// BytesPerReorder is one record that waits for the watermark, without its id and inputs: its slot, its place in the queue and in
	// the next cut, with the slack of lists that grow. Its id counts three times: the memory of ids may be twice what lives in it,
	// and the next cut holds the id again.
	BytesPerReorder = 96
	// BytesPerInput is one numeric input of a waiting record or of the open interval of a grid, and again in the next cut.
	BytesPerInput = 24
	// BytesPerKey is one key without its text and its states: the entry in the table of keys and the bookkeeping beside it. Text and
	// states count twice: they stand in the table and in the next cut.
	BytesPerKey = 160
	// BytesPerNode is the reference to the state of one node of one key.
	BytesPerNode = 16
	// BytesPerIndexed is the place of one record in the index by which a revision finds its event, and the number of its revision.
	BytesPerIndexed = 96
	// BytesPerPast is what one record that is kept for revisions needs beyond a waiting one: its place in the history of its partition and its key.
	// Its share of the states that are kept between its key's records comes on top.
	// BytesPerNumber is the number of a row that was published again, in the table and in the next cut.
	BytesPerPast   = 32
	BytesPerNumber = 48
	// BytesPerSequence is the last sequence number of one key, and BytesPerGap one open gap; each needs a record that waits behind it.
	BytesPerSequence = 128
	BytesPerGap      = 64
	// BytesPerRow is one row of results that is not yet committed, without its id, key and values; BytesPerValue one value of it.
	BytesPerRow   = 16
	BytesPerValue = 9
	// GridIDBytes is what a grid adds to a key to name a tick: "@" and a time.
	GridIDBytes = 31
	// AssumedIDBytes and AssumedKeyBytes are how long event ids and keys are taken to be. Longer ones add their length.
	AssumedIDBytes  = 64
	AssumedKeyBytes = 64
	// CreditBytes and CreditRecords are what a partition may have in flight: fetched, not yet processed.
	CreditBytes   = 8 << 20
	CreditRecords = 8192
	// EpochBytes is what the results of a partition may take that wait for the journal, before a cut is asked for out of its time and
	// the partition held until it is made.
	EpochBytes = 4 << 20
	// BytesPerRecord is one record in flight, without its bytes.
	BytesPerRecord = 128
	// ProcessBytes is what the process needs before it has read anything: runtime, store, client of the source.
	ProcessBytes = 64 << 20
)

// Bound is how much memory a run can take. It is an upper bound under the assumptions that its items name, printed before a run
// starts; a run reaches it only when every limit is reached at once.
type Bound struct {
	Partitions int
	// Items make up the bound of one partition.
	Items []BoundItem
	// PerPartition is the sum of the items, in bytes.
	PerPartition int64
	// Collector is what the garbage collector may let the heap grow by beyond what is live: as much again, at GOGC=100.
	Collector int64
	// Process is ProcessBytes.
	Process int64
	// Total is Partitions·PerPartition + Collector + Process, in bytes. It stops at the largest int64.
	Total int64
}

// BoundItem is one part of the bound: Count things of Each bytes.
type BoundItem struct {
	Name        string
	Count, Each int64
	// Bytes is Count·Each.
	Bytes int64
	// Assumes says in words what Each is made of.
	Assumes string
}

// MemoryBound is the bound for a run over a number of partitions in one process. Partitions below 1 count as 1.
func (p *Plan) MemoryBound(partitions int) Bound {
	b := Bound{Partitions: max(1, partitions), Process: ProcessBytes}
	b.add("event ids", p.Limits.IDs, BytesPerID, "limits.ids ids of any length, each a hash of 128 bits in the table and its share of the next cut")
	b.addWaiting(p)
	b.addHistory(p)
	b.addHeld(p)
	b.addKeys(p)
	b.addRows(p)
	b.add("records in flight", CreditRecords, BytesPerRecord, "the credit of a partition in records")
	b.add("bytes in flight", 1, CreditBytes, "the credit of a partition in bytes; one batch that is larger may pass alone")
	b.add("results waiting", 2, EpochBytes, "results that wait for the journal: those of the cut that is being committed, and those since")
	for _, item := range b.Items {
		b.PerPartition = plus(b.PerPartition, item.Bytes)
	}
	live := times(int64(b.Partitions), b.PerPartition)
	b.Collector = live
	b.Total = plus(plus(live, b.Collector), b.Process)
	return b
}

// addWaiting adds the records that wait for the watermark, and the gaps that hold them.
func (b *Bound) addWaiting(p *Plan) {
	each := BytesPerReorder + 3*AssumedIDBytes + BytesPerInput*len(p.Inputs)
	assumes := fmt.Sprintf("limits.reorder records accepted and not yet released, with ids of %d bytes and %s, and their share of the next cut",
		AssumedIDBytes, plural(len(p.Inputs), "input"))
	if p.RevisionField != "" {
		each += BytesPerIndexed
		assumes += "; its place in the index that a revision asks"
	}
	if p.SequenceField != "" {
		each += BytesPerGap
		assumes += "; before each an open gap"
	}
	b.add("waiting records", p.Limits.Reorder, each, assumes)
}

// addKeys adds what is kept for each key: the states of the operators, the last sequence number, and of a grid the values of the open
// interval.
func (b *Bound) addKeys(p *Plan) {
	state := 0
	for _, n := range p.Nodes {
		state += n.StateBytes
	}
	each := BytesPerKey + 2*AssumedKeyBytes + 2*state + BytesPerNode*len(p.Nodes)
	assumes := fmt.Sprintf("limits.keys keys of %d bytes, each with %d bytes of operator state, and their share of the next cut", AssumedKeyBytes, state)
	if p.ClockEvery > 0 {
		each += BytesPerInput * len(p.Inputs)
		assumes += "; the values of the open interval"
	}
	if p.SequenceField != "" {
		each += BytesPerSequence + AssumedKeyBytes
		assumes += "; the last sequence number"
	}
	if p.RevisionHorizon > 0 {
		each += 2*state + BytesPerNode*len(p.Nodes)
		assumes += "; the states behind the history"
		if p.ClockEvery > 0 {
			each += 2 * BytesPerInput * len(p.Inputs)
			each = int(plus(int64(each), times(int64(p.RevisionHorizon/p.ClockEvery)+2, BytesPerNumber)))
			assumes += ", and a number for each of its ticks"
		}
	}
	b.add("keys", p.Limits.Keys, each, assumes)
}

// addRows adds the rows of results that one advance of the watermark can make.
func (b *Bound) addRows(p *Plan) {
	count, id, assumes := CreditRecords, AssumedIDBytes, "one for each waiting record and each in flight"
	if p.ClockEvery > 0 {
		id = AssumedKeyBytes + GridIDBytes
		count += p.Limits.Ticks
		assumes += ", and limits.ticks empty ones"
	}
	if p.RevisionHorizon > 0 {
		count += p.Limits.History
		assumes += "; what one revision publishes again"
	}
	b.add("rows of results", count+p.Limits.Reorder, BytesPerRow+id+AssumedKeyBytes+BytesPerValue*len(p.Outputs), assumes)
}

func (b *Bound) add(name string, count, each int, assumes string) {
	item := BoundItem{Name: name, Count: int64(count), Each: int64(each), Assumes: assumes}
	item.Bytes = times(item.Count, item.Each)
	b.Items = append(b.Items, item)
}

// plus and times are for numbers that are not negative and stop at the largest int64.
func plus(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func times(a, b int64) int64 {
	if a > 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}

// Document is the bound for canonical JSON (record.AppendJSON). All sizes are in bytes.
func (b Bound) Document() map[string]any {
	items := make([]any, 0, len(b.Items))
	for _, i := range b.Items {
		items = append(items, map[string]any{"name": i.Name, "count": i.Count, "bytes_each": i.Each, "bytes": i.Bytes, "assumes": i.Assumes})
	}
	return map[string]any{
		"partitions": b.Partitions, "items": items, "bytes_per_partition": b.PerPartition,
		"collector_bytes": b.Collector, "process_bytes": b.Process, "total_bytes": b.Total,
	}
}

// String writes the bound as a table for people.
func (b Bound) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "memory at most %s, with %s\n", formatBytes(b.Total), plural(b.Partitions, "partition"))
	for _, i := range b.Items {
		fmt.Fprintf(&s, "  %-18s %10d × %-10s = %10s  %s\n", i.Name, i.Count, formatBytes(i.Each), formatBytes(i.Bytes), i.Assumes)
	}
	fmt.Fprintf(&s, "  %-18s %36s\n", "one partition", formatBytes(b.PerPartition))
	fmt.Fprintf(&s, "  %-18s %36s  what the heap may grow by between two collections, at GOGC=100\n", "collector", formatBytes(b.Collector))
	fmt.Fprintf(&s, "  %-18s %36s  runtime, store and client of the source\n", "process", formatBytes(b.Process))
	return s.String()
}

// plural writes a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// formatBytes writes a size with a binary unit, rounded up: a bound is never shown below what it is.
func formatBytes(n int64) string {
	const k = 1024
	size, unit := int64(1), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB", "PiB"} {
		if n/size < k {
			break
		}
		size, unit = size*k, u
	}
	if size == 1 {
		return fmt.Sprintf("%d B", n)
	}
	whole, rest := n/size, n%size
	tenths := (rest*10 + size - 1) / size
	if tenths == 10 {
		whole, tenths = whole+1, 0
	}
	return fmt.Sprintf("%d.%d %s", whole, tenths, unit)
}
