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
// written in chunks of 256 keys; a cut writes the chunks in which a key or a state changed, or, where few of their keys did, a delta.
//
// A chunk: version 1 │ chunk uvarint │ keys uvarint │ per key: text, state of the clock (a grid's only), per node its snapshot; texts
// and snapshots with their length in front. Version 2, which is written while deltas stand, has a stamp (uvarint) before the keys: deltas
// up to that sequence are older than it.
type keyTable struct {
	plan *flow.Plan
	// past has a part of the state of each key; nil in a flow that keeps nothing for revisions.
	past  *past
	index map[string]int32
	names []string
	// operators has len(plan.Nodes) for each key.
	operators []operators.Operator
	chunks    []keyChunk
	// dirty has a bit for each key: the next cut must write it.
	dirty []uint64
	// deltas that stand, the oldest first.
	deltas     []keyDelta
	deltaLoads []deltaLoad
	// scratch is for the snapshot of one operator.
	scratch []byte
	// loads are the chunks that a restore has read so far.
	loads []keyLoad
}

type keyChunk struct {
	blobRef
	// keys is the number of keys that it was written with; deltas up to stamp are older than it.
	keys  int
	stamp uint64
	// pending is the oldest delta in which keys of it stand, or 0.
	pending uint64
}

type keyLoad struct {
	blobRef
	chunk, keys, stamp uint64
	body               []byte
}

const (
	keysPrefix  = "keys/"
	keysVersion = 1
	// stampedVersion is that of a chunk with a stamp.
	stampedVersion = 2
	chunkShift     = 8
	chunkKeys      = 1 << chunkShift
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
	if int(n)>>6 == len(k.dirty) {
		k.dirty = append(k.dirty, 0)
	}
	k.changed(n)
	return n
}

// changed says that the next cut must write the key.
func (k *keyTable) changed(key int32) { k.dirty[key>>6] |= 1 << (key & 63) }

// keysIn is the number of keys of a chunk.
func (k *keyTable) keysIn(c int) int { return min(chunkKeys, len(k.names)-c<<chunkShift) }

// of are the operators of a key, in the order of the nodes.
func (k *keyTable) of(key int32) []operators.Operator {
	n := len(k.plan.Nodes)
	return k.operators[int(key)*n : int(key)*n+n]
}

// cut writes the chunks and keys that changed.
func (k *keyTable) cut(g *grid, l *ledger) {
	whole, sparse := k.split()
	stamp := uint64(0)
	if len(k.deltas) > 0 {
		stamp = l.seq
	}
	for _, c := range whole {
		chunk := &k.chunks[c]
		body := k.appendChunk(nil, c, g, stamp)
		if chunk.name == "" {
			chunk.blobRef = l.write(fmt.Sprintf("%s%06d", keysPrefix, c), body)
		} else {
			chunk.blobRef = l.rewrite(chunk.blobRef, body)
		}
		chunk.keys, chunk.stamp, chunk.pending = k.keysIn(c), stamp, 0
	}
	if len(sparse) > 0 {
		k.cutDelta(sparse, g, l)
	}
	k.dropDeltas(l)
	clear(k.dirty)
}

func (k *keyTable) appendChunk(dst []byte, c int, g *grid, stamp uint64) []byte {
	from, n := c<<chunkShift, k.keysIn(c)
	version := byte(keysVersion)
	if stamp > 0 {
		version = stampedVersion
	}
	dst = append(dst, version)
	dst = binary.AppendUvarint(dst, uint64(c))
	dst = binary.AppendUvarint(dst, uint64(n))
	if stamp > 0 {
		dst = binary.AppendUvarint(dst, stamp)
	}
	for key := from; key < from+n; key++ {
		dst = appendText(dst, k.names[key])
		dst = k.appendState(dst, int32(key), g)
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
	if version == stampedVersion {
		x.stamp = in.uvarint()
	}
	if in.bad || version != keysVersion && version != stampedVersion || x.keys < 1 || x.keys > chunkKeys {
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
		k.chunks[i] = keyChunk{blobRef: x.blobRef, keys: int(x.keys), stamp: x.stamp}
	}
	k.loads = nil
	clear(k.dirty)
	return k.loadedDeltas(g)
}

func (k *keyTable) loadChunk(x keyLoad, g *grid) error {
	in := decoder{src: x.body}
	for range x.keys {
		name := in.text()
		if _, twice := k.index[string(name)]; in.bad || twice {
			return damaged(x.name, "has a key that is cut short or stands twice")
		}
		if err := k.loadState(&in, k.add(string(name)), g, x.name); err != nil {
			return err
		}
	}
	if !in.whole() {
		return damaged(x.name, "has something after its last key")
	}
	return nil
}
