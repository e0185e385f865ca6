package partitions

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/flow/operators"
)

// keyTable numbers the keys of a partition in the order in which they were first accepted, and holds the operators of each. It is
// written in chunks of 256 keys; a cut writes the chunks in which a key or a state changed.
//
// A chunk: version 1 │ chunk uvarint │ keys uvarint │ per key: text, state of the clock (a grid's only), per node its snapshot; texts
// and snapshots with their length in front.
type keyTable struct {
	plan  *flow.Plan
	index map[string]int32
	names []string
	// operators has len(plan.Nodes) for each key.
	operators []operators.Operator
	chunks    []keyChunk
	// scratch is for the snapshot of one operator.
	scratch []byte
	// loads are the chunks that a restore has read so far.
	loads []keyLoad
}

type keyChunk struct {
	blobRef
	dirty bool
}

type keyLoad struct {
	blobRef
	chunk, keys uint64
	body        []byte
}

const (
	keysPrefix  = "keys/"
	keysVersion = 1
	chunkShift  = 8
	chunkKeys   = 1 << chunkShift
)

func newKeyTable(plan *flow.Plan) *keyTable {
	return &keyTable{plan: plan, index: map[string]int32{}}
}

// intern is the number of a key; a new one is copied and gets fresh operators.
func (k *keyTable) intern(key []byte) (int32, error) {
	if n, ok := k.index[string(key)]; ok {
		return n, nil
	}
	if limit := k.plan.Limits.Keys; limit > 0 && len(k.names) >= limit {
		return 0, codes.New(codes.LimitReached, "%d keys are known, which is the flow's `limits.keys`: raise it, or choose a `key` with fewer values", len(k.names))
	}
	return k.add(string(key)), nil
}

func (k *keyTable) add(key string) int32 {
	n := int32(len(k.names))
	k.index[key] = n
	k.names = append(k.names, key)
	for i := range k.plan.Nodes {
		k.operators = append(k.operators, k.plan.Nodes[i].New())
	}
	if int(n)>>chunkShift == len(k.chunks) {
		k.chunks = append(k.chunks, keyChunk{})
	}
	k.changed(n)
	return n
}

// changed says that the next cut must write the key's chunk.
func (k *keyTable) changed(key int32) { k.chunks[key>>chunkShift].dirty = true }

// of are the operators of a key, in the order of the nodes.
func (k *keyTable) of(key int32) []operators.Operator {
	n := len(k.plan.Nodes)
	return k.operators[int(key)*n : int(key)*n+n]
}

// cut writes the chunks that changed.
func (k *keyTable) cut(g *grid, l *ledger) {
	for c := range k.chunks {
		chunk := &k.chunks[c]
		if !chunk.dirty {
			continue
		}
		body := k.appendChunk(nil, c, g)
		if chunk.name == "" {
			chunk.blobRef = l.write(fmt.Sprintf("%s%06d", keysPrefix, c), body)
		} else {
			chunk.blobRef = l.rewrite(chunk.blobRef, body)
		}
		chunk.dirty = false
	}
}

func (k *keyTable) appendChunk(dst []byte, c int, g *grid) []byte {
	from, to := c<<chunkShift, min((c+1)<<chunkShift, len(k.names))
	dst = append(dst, keysVersion)
	dst = binary.AppendUvarint(dst, uint64(c))
	dst = binary.AppendUvarint(dst, uint64(to-from))
	for key := from; key < to; key++ {
		dst = appendText(dst, k.names[key])
		if g != nil {
			dst = g.appendKey(dst, int32(key))
		}
		for _, op := range k.of(int32(key)) {
			k.scratch = op.Snapshot(k.scratch[:0])
			dst = appendText(dst, k.scratch)
		}
	}
	return dst
}

// load takes one chunk. The chunks may come in any order; call loaded after the last one.
func (k *keyTable) load(blob StateBlob, l *ledger) error {
	body, ref, err := unseal(blob)
	if err != nil {
		return err
	}
	in := decoder{src: body}
	version := in.byte()
	x := keyLoad{blobRef: ref, chunk: in.uvarint(), keys: in.uvarint()}
	if in.bad || version != keysVersion || x.keys < 1 || x.keys > chunkKeys {
		return damaged(blob.Name, fmt.Sprintf("holds no keys of version %d", keysVersion))
	}
	x.body = slices.Clone(in.src)
	k.loads = append(k.loads, x)
	l.stands(ref)
	return nil
}

// loaded takes the chunks up.
func (k *keyTable) loaded(g *grid) error {
	slices.SortFunc(k.loads, func(a, b keyLoad) int { return cmp.Compare(a.chunk, b.chunk) })
	for i, x := range k.loads {
		if x.chunk != uint64(i) || x.keys < chunkKeys && i < len(k.loads)-1 {
			return damaged(x.name, "is not the chunk that follows the one before it")
		}
		if err := k.loadChunk(x, g); err != nil {
			return err
		}
		k.chunks[i] = keyChunk{blobRef: x.blobRef}
	}
	k.loads = nil
	return nil
}

func (k *keyTable) loadChunk(x keyLoad, g *grid) error {
	in := decoder{src: x.body}
	for range x.keys {
		name := in.text()
		if _, twice := k.index[string(name)]; in.bad || twice {
			return damaged(x.name, "has a key that is cut short or stands twice")
		}
		key := k.add(string(name))
		if g != nil && !g.loadKey(&in, key) {
			return damaged(x.name, fmt.Sprintf("has no state of the clock for key %q", name))
		}
		for n, op := range k.of(key) {
			state := in.text()
			if in.bad {
				return damaged(x.name, "is cut short")
			}
			if err := op.Restore(state); err != nil {
				return codes.New(codes.JournalCorrupt, "state blob %q, key %q, operator %q: %w", x.name, name, k.plan.Nodes[n].Name, err)
			}
		}
	}
	if !in.whole() {
		return damaged(x.name, "has something after its last key")
	}
	return nil
}
