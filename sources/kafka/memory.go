package kafka

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/record"
)

const (
	// decodedRecordBytes is what a record costs beside its bytes: kgo's record and the pointer to it, and weir's.
	decodedRecordBytes = int64(unsafe.Sizeof(kgo.Record{}) + unsafe.Sizeof(uintptr(0)) + unsafe.Sizeof(record.Record{}))

	// What a pool keeps for reuse. Beyond it memory goes to the garbage collector.
	keepSlices  = 32
	keepRecords = 128 << 10
	keepBytes   = 16 << 20
)

// pool keeps slices for reuse: at most keepSlices, and at most limit elements in all. Safe for concurrent use.
type pool[T any] struct {
	mu    sync.Mutex
	free  [][]T
	held  int
	limit int
}

// get returns a slice with room for n elements, and an unknown length.
func (p *pool[T]) get(n int) []T {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.free) - 1; i >= 0; i-- {
		if s := p.free[i]; cap(s) >= n {
			p.held -= cap(s)
			p.free = slices.Delete(p.free, i, i+1)
			return s
		}
	}
	return make([]T, n)
}

// put takes a slice back, if it fits without throwing a larger one away.
func (p *pool[T]) put(s []T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cap(s) > p.limit {
		return
	}
	for len(p.free) == keepSlices || p.held+cap(s) > p.limit {
		smallest := -1
		for i := range p.free {
			if cap(p.free[i]) < cap(s) && (smallest < 0 || cap(p.free[i]) < cap(p.free[smallest])) {
				smallest = i
			}
		}
		if smallest < 0 {
			return
		}
		p.held -= cap(p.free[smallest])
		p.free = slices.Delete(p.free, smallest, smallest+1)
	}
	p.free = append(p.free, s)
	p.held += cap(s)
}

// fetchMemory is the pool that kgo decodes fetches into. kgo gives the slices back when every record in them was recycled.
type fetchMemory struct {
	records pool[kgo.Record]
	bytes   pool[byte]
	// ratio is by how much the batches of late grow when they are decompressed; it sizes new buffers.
	ratio atomic.Int64
}

func newFetchMemory() *fetchMemory {
	m := &fetchMemory{}
	m.records.limit, m.bytes.limit = keepRecords, keepBytes
	m.ratio.Store(4)
	return m
}

// GetRecords implements kgo.PoolRecords.
func (m *fetchMemory) GetRecords(n int) []kgo.Record { return m.records.get(n) }

// PutRecords implements kgo.PoolRecords.
func (m *fetchMemory) PutRecords(s []kgo.Record) { m.records.put(s) }

// GetDecompressBytes implements kgo.PoolDecompressBytes.
func (m *fetchMemory) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	return m.bytes.get(min(len(compressed)*int(m.ratio.Load()), keepBytes/4))
}

// PutDecompressBytes implements kgo.PoolDecompressBytes.
func (m *fetchMemory) PutDecompressBytes(s []byte) { m.bytes.put(s) }
