package board

import (
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
)

// What a batch costs on the board: its queue begins and ends.
func BenchmarkQueue(b *testing.B) {
	board := New(Config{Run: "r"})
	board.State(actors.StateChange{State: actors.StateRunning, Incarnation: 1})
	busy, idle := actors.Queue{Records: 1024, Bytes: 100_000, WindowRecords: 8192}, actors.Queue{WindowRecords: 8192}
	b.ReportAllocs()
	for b.Loop() {
		board.Queue(busy)
		board.Queue(idle)
	}
}

// What a scrape costs the run: the lock is held for one snapshot.
func BenchmarkSnapshot(b *testing.B) {
	board := New(Config{Run: "r"})
	for p := range int32(64) {
		board.Queue(actors.Queue{Partition: p})
	}
	b.ReportAllocs()
	for b.Loop() {
		if s := board.Snapshot(); len(s.Partitions) != 64 || s.At.After(time.Now()) {
			b.Fatal(s)
		}
	}
}
