package partitions

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"

	"github.com/weirstream/weir/codes"
)

// When few keys of many chunks changed, to write those chunks whole would write nearly all of the state for a hundredth of the keys. Such keys
// go into one blob a cut, a delta, instead. Every cut that writes a delta also writes some chunks whole that stand in older ones, as many
// as the delta is worth and so many that no delta outlives maxDeltas others; a delta in which nothing stands any more is dropped. So a
// cut writes about twice what changed, and a restore reads at most about twice the state.
//
// A delta: version 1 │ sequence 8 │ keys uvarint │ per key, ascending: number uvarint, state of the clock (a grid's only), per node its
// snapshot with its length in front. It replaces what older deltas say of a key, and its chunk, unless that was written whole later.
type keyDelta struct {
	blobRef
	seq uint64
}

type deltaLoad struct {
	keyDelta
	keys uint64
	body []byte
}

const (
	deltasPrefix  = "deltas/"
	deltasVersion = 1
	// maxDeltas bounds the deltas that stand.
	maxDeltas = 128
	// sparseKeys is the number of changed keys up to which a chunk may go into a delta, sparseChunks the number of such chunks from which on
	// one is worth it.
	sparseKeys   = chunkKeys / 4
	sparseChunks = 32
)

const dirtyWords = chunkKeys / 64

// dirtyIn is the number of keys of a chunk that changed.
func (k *keyTable) dirtyIn(c int) (n int) {
	for _, w := range k.dirty[c*dirtyWords : min((c+1)*dirtyWords, len(k.dirty))] {
		n += bits.OnesCount64(w)
	}
	return n
}

// split says which chunks a cut writes whole, and which go into a delta.
func (k *keyTable) split() (whole, sparse []int) {
	keys := 0
	for c := range k.chunks {
		n := k.dirtyIn(c)
		switch chunk := &k.chunks[c]; {
		case n == 0:
		case n > sparseKeys || chunk.keys < k.keysIn(c):
			whole = append(whole, c)
		default:
			sparse, keys = append(sparse, c), keys+n
		}
	}
	// What a delta costs in chunks, and what is written whole beside it.
	fold := max((keys+chunkKeys-1)/chunkKeys, (len(k.chunks)+maxDeltas-1)/maxDeltas)
	if len(sparse) < max(sparseChunks, 4*fold) {
		whole = append(whole, sparse...)
		slices.Sort(whole)
		return whole, nil
	}
	folded := k.oldest(fold, whole)
	sparse = slices.DeleteFunc(sparse, func(c int) bool {
		_, found := slices.BinarySearch(folded, c)
		return found
	})
	whole = append(whole, folded...)
	slices.Sort(whole)
	return whole, sparse
}

// oldest are the n chunks that stand in the oldest deltas, without those that are written anyway, in ascending order.
func (k *keyTable) oldest(n int, without []int) (out []int) {
	for c := range k.chunks {
		if _, written := slices.BinarySearch(without, c); k.chunks[c].pending > 0 && !written {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b int) int {
		return cmp.Or(cmp.Compare(k.chunks[a].pending, k.chunks[b].pending), cmp.Compare(a, b))
	})
	out = out[:min(n, len(out))]
	slices.Sort(out)
	return out
}

// cutDelta writes the changed keys of chunks.
func (k *keyTable) cutDelta(chunks []int, g *grid, l *ledger) {
	l.seq++
	d := keyDelta{seq: l.seq}
	keys := 0
	for _, c := range chunks {
		keys += k.dirtyIn(c)
	}
	body := binary.BigEndian.AppendUint64([]byte{deltasVersion}, d.seq)
	body = binary.AppendUvarint(body, uint64(keys))
	for _, c := range chunks {
		if k.chunks[c].pending == 0 {
			k.chunks[c].pending = d.seq
		}
		for i, w := range k.dirty[c*dirtyWords : min((c+1)*dirtyWords, len(k.dirty))] {
			for ; w != 0; w &= w - 1 {
				key := int32(c<<chunkShift + i<<6 + bits.TrailingZeros64(w))
				body = binary.AppendUvarint(body, uint64(key))
				body = k.appendState(body, key, g)
			}
		}
	}
	d.blobRef = l.write(fmt.Sprintf("%s%d", deltasPrefix, d.seq), body)
	k.deltas = append(k.deltas, d)
}

// dropDeltas deletes those in which nothing stands any more.
func (k *keyTable) dropDeltas(l *ledger) {
	if len(k.deltas) == 0 {
		return
	}
	oldest := l.seq + 1
	for c := range k.chunks {
		if p := k.chunks[c].pending; p > 0 {
			oldest = min(oldest, p)
		}
	}
	n := 0
	for ; n < len(k.deltas) && k.deltas[n].seq < oldest; n++ {
		l.drop(k.deltas[n].blobRef)
	}
	k.deltas = slices.Delete(k.deltas, 0, n)
}

// loadDelta takes one delta. They may come in any order; call loaded after the last blob.
func (k *keyTable) loadDelta(blob StateBlob, l *ledger) error {
	body, ref, err := unseal(blob)
	if err != nil {
		return err
	}
	in := decoder{src: body}
	version := in.byte()
	x := deltaLoad{keyDelta: keyDelta{blobRef: ref, seq: in.uint64()}, keys: in.uvarint()}
	if in.bad || version != deltasVersion || x.keys < 1 {
		return damaged(blob.Name, fmt.Sprintf("holds no changed keys of version %d", deltasVersion))
	}
	x.body = slices.Clone(in.src)
	k.deltaLoads = append(k.deltaLoads, x)
	l.stands(ref)
	return nil
}

// loadedDeltas takes the deltas up, the oldest first, once the chunks are there.
func (k *keyTable) loadedDeltas(g *grid) error {
	slices.SortFunc(k.deltaLoads, func(a, b deltaLoad) int { return cmp.Compare(a.seq, b.seq) })
	for i, x := range k.deltaLoads {
		if i > 0 && x.seq == k.deltaLoads[i-1].seq {
			return damaged(x.name, "has the sequence of another one")
		}
		if err := k.applyDelta(x, g); err != nil {
			return err
		}
		k.deltas = append(k.deltas, x.keyDelta)
	}
	k.deltaLoads = nil
	return nil
}

func (k *keyTable) applyDelta(x deltaLoad, g *grid) error {
	in := decoder{src: x.body}
	last := int64(-1)
	for range x.keys {
		n := in.uvarint()
		if in.bad || n >= uint64(len(k.names)) || int64(n) <= last {
			return damaged(x.name, "has a key that is cut short, unknown or out of order")
		}
		last = int64(n)
		chunk := &k.chunks[n>>chunkShift]
		if x.seq <= chunk.stamp {
			// The chunk was written whole since.
			if !k.skipState(&in, g) {
				return damaged(x.name, "is cut short")
			}
			continue
		}
		if chunk.pending == 0 {
			chunk.pending = x.seq
		}
		if err := k.loadState(&in, int32(n), g, x.name); err != nil {
			return err
		}
	}
	if !in.whole() {
		return damaged(x.name, "has something after its last key")
	}
	return nil
}

// appendState writes the state of a key: that of the clock, and those of its operators.
func (k *keyTable) appendState(dst []byte, key int32, g *grid) []byte {
	if g != nil {
		dst = g.appendKey(dst, key)
	}
	for _, op := range k.of(key) {
		k.scratch = op.Snapshot(k.scratch[:0])
		dst = appendText(dst, k.scratch)
	}
	if k.past != nil {
		dst = k.past.appendKey(dst, k, key)
	}
	return dst
}

// loadState reads what appendState wrote, out of the blob of that name.
func (k *keyTable) loadState(in *decoder, key int32, g *grid, blob string) error {
	if g != nil && !g.loadKey(in, key) {
		return damaged(blob, fmt.Sprintf("has no state of the clock for key %q", k.names[key]))
	}
	for n, op := range k.of(key) {
		state := in.text()
		if in.bad {
			return damaged(blob, "is cut short")
		}
		if err := op.Restore(state); err != nil {
			return codes.New(codes.JournalCorrupt, "state blob %q, key %q, operator %q: %w", blob, k.names[key], k.plan.Nodes[n].Name, err)
		}
	}
	if k.past != nil {
		return k.past.loadKey(in, k, key, blob)
	}
	return nil
}

// skipState passes over what appendState wrote.
func (k *keyTable) skipState(in *decoder, g *grid) bool {
	if g != nil {
		g.skipKey(in)
	}
	for range k.plan.Nodes {
		in.text()
	}
	if k.past != nil {
		k.past.skipKey(in)
	}
	return !in.bad
}
