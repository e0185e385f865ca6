package partitions

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

func (r *reorder) bytes() int {
	n := cap(r.slots)*int(unsafe.Sizeof(waiting{})) + cap(r.inputs)*8 + cap(r.free)*4 + cap(r.journal.fresh)*4
	n += (cap(r.run) + cap(r.heap) + cap(r.arrived)) * int(unsafe.Sizeof(waitingRef{}))
	n += r.ids.held + len(r.ids.spare)*chunkBytes + cap(r.ids.chunks)*int(unsafe.Sizeof(chunk{})) + cap(r.ids.free)*4
	return n
}

// boundOf is what the flow's bound gives for each thing of a name.
func boundOf(t *testing.T, plan *flow.Plan, name string) int {
	t.Helper()
	for _, item := range plan.MemoryBound(1).Items {
		if item.Name == name {
			return int(item.Each)
		}
	}
	t.Fatalf("the memory bound has no item %q", name)
	return 0
}

func blobBytes(put []StateBlob, prefix string) int {
	n := 0
	for _, b := range put {
		if strings.HasPrefix(b.Name, prefix) {
			n += len(b.Data)
		}
	}
	return n
}

// What waits stays within the bound that is printed before a run, in order and out of it, with the delta of the cut.
func TestMemoryOfWaitingRecords(t *testing.T) {
	t.Parallel()
	plan := planOf(t, "lateness: 1h\n"+emaFlow)
	each := boundOf(t, plan, "waiting records")
	for _, disorder := range []bool{false, true} {
		rng := rand.New(rand.NewPCG(1, 9))
		r, l := newReorder(1, 0), &ledger{}
		for i := range 150_000 {
			at := record.EventTime(i)
			if disorder {
				at = record.EventTime(rng.Int64N(1 << 40))
			}
			r.push(at, fmt.Appendf(nil, "%064d", i), 0)[0] = 1
			if i%10_000 != 9_999 {
				continue
			}
			bytes := r.bytes()
			r.cut(record.NoTime+1, l)
			put, _ := settle(l)
			if got := (bytes + blobBytes(put, recordsPrefix)) / r.len(); got > each {
				t.Errorf("disorder %v: %d bytes for each of %d waiting records, the bound says %d", disorder, got, r.len(), each)
			}
		}
	}
}

// Event ids stay within the bound, without any cut, with rare and with frequent ones; the cut's delta counts too.
func TestMemoryOfEventIDs(t *testing.T) {
	t.Parallel()
	plan := planOf(t, "dedupe: {horizon: 100s}\n"+emaFlow)
	each := boundOf(t, plan, "event ids")
	for _, every := range []int{0, 100, 20_000} {
		d, l := newDedupe(plan.DedupeHorizon, 0, 0, 0), &ledger{}
		worst := 0
		for i := range 800_000 {
			at := record.EventTime(i) * 400_000 // 250,000 live at a time
			if _, err := d.add(hashID(binary.BigEndian.AppendUint64(nil, uint64(i))), at); err != nil {
				t.Fatal(err)
			}
			d.advance(at)
			delta := 0
			if every > 0 && i%every == 0 {
				d.cut(at, l)
				put, _ := settle(l)
				delta = blobBytes(put, idsPrefix)
			}
			if d.living > 200_000 && i%1000 == 0 {
				worst = max(worst, (d.bytes()+delta)/d.living)
			}
		}
		if t.Logf("a cut every %d ids: at most %d bytes an id", every, worst); worst > each {
			t.Errorf("a cut every %d ids: %d bytes an id, the bound says %d", every, worst, each)
		}
	}
}

// A long stream of distinct ids and keys that repeat: heap and journal reach a plateau.
func TestLongStreamReachesPlateau(t *testing.T) {
	plan := planOf(t, "lateness: 1s\ndedupe: {horizon: 8s}\nlimits: {ids: 60000, keys: 500, reorder: 6000}\n"+emaFlow)
	m := New(plan, 0)
	var eff Effects
	stand := map[string]int{}
	blobs, held, most := 0, 0, uint64(0)
	batch := &record.Batch{Records: make([]record.Record, 500)}
	var values [500][]byte
	var early uint64
	for n := range 1000 {
		for i := range batch.Records {
			k := n*500 + i
			values[i] = fmt.Appendf(values[i][:0], `{"id":"event-%d","key":"k%d","at":%d,"x":1}`, k, k%400, k/5)
			batch.Records[i] = record.Record{Position: record.Offset(int64(k)), Arrival: record.NoTime, Value: values[i]}
		}
		batch.Next = record.Offset(int64(n+1) * 500)
		if err := m.Step(Deliver{Batch: batch}, &eff); err != nil {
			t.Fatal(err)
		}
		eff.Reset()
		c := m.Cut()
		for _, name := range c.Delete {
			delete(stand, name)
		}
		for _, b := range c.Put {
			stand[b.Name] = len(b.Data)
		}
		bytes := 0
		for _, size := range stand {
			bytes += size
		}
		blobs, held = max(blobs, len(stand)), max(held, bytes)
		if n%100 != 99 {
			continue
		}
		runtime.GC()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		if n == 299 {
			early = mem.HeapAlloc
		}
		most = max(most, mem.HeapAlloc)
	}
	if blobs > 150 || held > 4<<20 {
		t.Errorf("%d blobs of %d bytes stood at once", blobs, held)
	}
	if bound := uint64(plan.MemoryBound(1).PerPartition); most > early+early/4 || most > bound {
		t.Errorf("the heap grew from %d to %d bytes, bound %d", early, most, bound)
	}
	t.Logf("%d ids, %d keys, %d waiting; at most %d blobs, %d bytes of state in the journal, %d bytes of heap", m.IDs(), m.Keys(), m.Waiting(), blobs, held, most)
}

// Keys stay within the bound, with their operators and the delta of the cut.
func TestMemoryOfKeys(t *testing.T) {
	plan := planOf(t, "limits: {keys: 50000}\noperators: [{name: e, type: ema, input: x, period: 3}, {name: s, type: sma, input: x, period: 10}]\noutputs: [e, s]\n")
	each := boundOf(t, plan, "keys")
	heap := func() int {
		runtime.GC()
		var mem runtime.MemStats
		runtime.ReadMemStats(&mem)
		return int(mem.HeapAlloc)
	}
	before := heap()
	k, l := newKeyTable(plan), &ledger{}
	for i := range plan.Limits.Keys {
		if _, err := k.intern(fmt.Appendf(nil, "%064d", i)); err != nil {
			t.Fatal(err)
		}
	}
	k.cut(nil, l)
	if got := (heap() - before) / plan.Limits.Keys; got > each {
		t.Errorf("%d bytes a key, the bound says %d", got, each)
	}
	runtime.KeepAlive(k)
	runtime.KeepAlive(l)
}

// A record costs no allocation once tables and buffers have grown; what is left comes from growing itself.
func TestAllocations(t *testing.T) {
	for _, disorder := range []int{0, 300} {
		batches := benchTicks(80, disorder)
		m := New(parsePlan(t, fmt.Sprintf(benchFlow, "10s")), 0)
		var eff Effects
		n := 0
		step := func() {
			if err := m.Step(Deliver{Batch: batches[n]}, &eff); err != nil {
				t.Fatal(err)
			}
			n++
			eff.Reset()
		}
		for range 40 {
			step()
		}
		if got := testing.AllocsPerRun(30, step) / 1000; got > 0.01 {
			t.Errorf("disorder %d: %.3f allocations a record", disorder, got)
		}
		if c := m.Counts(); c.Consumed != c.Records {
			t.Fatalf("not every record was accepted: %+v", c)
		}
	}
}
