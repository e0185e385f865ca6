package partitions

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/weirstream/weir/record"
)

// holds are the keys of a partition that wait behind records that could not be read, of a flow with hold_key. The key of such a record is its key
// field if that could be read, else the log's own key, which then has to be the same; without either nothing is held.
//
//	log of key k     a   POISON   b   c   POISON   d          replay or drop of the first lets b and c go on,
//	queue of k           poison   b   c   poison   d          of the second d; a repaired record stands in its own place
//
// A record behind one is tried and counted as ever: its id is remembered, it moves the watermark. It only waits here instead of for the watermark, and so
// does not hold it, nor any other key. When it goes on, the watermark may have passed it: it is not late, and its row comes after rows of
// other keys with greater times. Within its key everything is in order.
//
// A key's queue is one blob, written by the cuts in which it changed:
//
//	version 1 │ inputs uvarint │ key text │ per item: 0 position 24 sub uvarint, or 1 event time 8 id text inputs 8 each
type holds struct {
	// width is the number of inputs of a record.
	width int
	limit int
	items int
	keys  map[string]*heldKey
	// gone are the blobs of keys that are held no more.
	gone []blobRef
}

type heldKey struct {
	queue   []heldItem
	ref     blobRef
	changed bool
}

// heldItem is a record that waits, or (at place) the one that it waits for.
type heldItem struct {
	blocker bool
	at      record.EventTime
	id      []byte
	inputs  []float64
	place   record.Position
	sub     uint32
}

const (
	heldPrefix  = "held/"
	heldVersion = 1
)

// ReasonHeldOverflow is a record whose key is held, when no more may wait.
const ReasonHeldOverflow = "HELD_OVERFLOW"

// Kinds of the decisions about held keys. The records make them, or the decision about an entry before them.
const (
	DecisionKeyHeld     = "KEY_HELD"
	DecisionKeyReleased = "KEY_RELEASED"
)

func newHolds(width, limit int) *holds {
	return &holds{width: width, limit: limit, keys: map[string]*heldKey{}}
}

// full says whether a record of a key cannot wait any more.
func (h *holds) full(key []byte) bool {
	return h != nil && h.items >= h.limit && h.keys[string(key)] != nil
}

// has says whether a key is held.
func (h *holds) has(key []byte) bool { return h != nil && h.keys[string(key)] != nil }

// push lets a record wait.
func (h *holds) push(key []byte, at record.EventTime, id []byte, inputs []float64) {
	h.add(h.keys[string(key)], heldItem{at: at, id: slices.Clone(id), inputs: slices.Clone(inputs)})
}

func (h *holds) add(k *heldKey, i heldItem) {
	k.queue = append(k.queue, i)
	k.changed = true
	h.items++
}

// block begins to hold the key of a record that cannot be read. It says why it cannot, or "".
func (m *Machine) block(r *record.Record, eff *Effects) string {
	key := m.read.key
	if key == nil {
		key = r.Key
	}
	switch {
	case m.holds == nil:
		return ""
	case key == nil:
		return "; its key is not known, so no key is held"
	case m.holds.items >= m.holds.limit:
		return fmt.Sprintf("; its key is not held: %d records wait already", m.holds.items)
	}
	k := m.holds.keys[string(key)]
	if k == nil {
		k = &heldKey{}
		m.holds.keys[string(key)] = k
		m.decide(eff, r.Position, DecisionKeyHeld, fmt.Sprintf("key %q", key))
	}
	m.holds.add(k, heldItem{blocker: true, place: r.Position, sub: r.Sub})
	return ""
}

// unreadable sets a record aside that cannot be read. Its key is held, in a flow that asks for it.
func (m *Machine) unreadable(r *record.Record, eff *Effects) {
	detail := m.read.detail
	if m.read.reason == ReasonUnreadable {
		detail += m.block(r, eff)
	}
	m.omit(r, eff, m.read.reason, detail)
}

// wait lets the record on trial wait where its key is held, or in the place of the entry that it was made out of.
func (m *Machine) wait() bool {
	x := m.read
	switch {
	case m.holds == nil:
		return false
	case m.standIn != nil && m.replace(m.standIn, x):
		return true
	case !m.holds.has(x.key):
		return false
	}
	m.holds.push(x.key, x.at, x.id, x.inputs)
	return true
}

func (h *holds) overflow() string {
	return fmt.Sprintf("its key is held, and %d records wait already, as many as hold_key allows", h.items)
}

// find is where an entry of the quarantine holds a key.
func (h *holds) find(q *Quarantined) (key string, at int) {
	if h == nil || q.Reason != ReasonUnreadable {
		return "", -1
	}
	// The entry does not say its key in all cases. Positions are unique, so the order of the map does not matter.
	for key, k := range h.keys {
		for i := range k.queue {
			if b := &k.queue[i]; b.blocker && b.place == q.Position && b.sub == q.Sub {
				return key, i
			}
		}
	}
	return "", -1
}

// blocks says whether an entry holds this key.
func (m *Machine) blocks(q *Quarantined, key []byte) bool {
	held, at := m.holds.find(q)
	return at >= 0 && held == string(key)
}

// unblock takes an entry out of the queue that it holds.
func (m *Machine) unblock(q *Quarantined, eff *Effects) {
	key, at := m.holds.find(q)
	if at < 0 {
		return
	}
	k := m.holds.keys[key]
	k.queue, k.changed = slices.Delete(k.queue, at, at+1), true
	m.holds.items--
	m.letGo(key, false, fmt.Sprintf("entry %d does not hold it any more", q.Number), eff)
}

// replace lets a record stand where the entry of its key stood that it was made out of. It is false when the entry holds no such key.
func (m *Machine) replace(q *Quarantined, x *extracted) bool {
	key, at := m.holds.find(q)
	if at < 0 || key != string(x.key) {
		return false
	}
	k := m.holds.keys[key]
	k.queue[at] = heldItem{at: x.at, id: slices.Clone(x.id), inputs: slices.Clone(x.inputs)}
	k.changed = true
	return true
}

// letGo gives on what nothing in the queue of a key stands before any more, or all of it.
func (m *Machine) letGo(key string, all bool, why string, eff *Effects) {
	h, k := m.holds, m.holds.keys[key]
	n, passed := 0, 0
	for ; n < len(k.queue) && (all || !k.queue[n].blocker); n++ {
		i := &k.queue[n]
		if i.blocker {
			continue
		}
		passed++
		number := m.keys.index[key] // it was numbered when the record was accepted
		copy(m.waiting.push(i.at, i.id, number), i.inputs)
	}
	h.items -= n
	k.queue = slices.Delete(k.queue, 0, n)
	k.changed = k.changed || n > 0
	if len(k.queue) > 0 {
		return
	}
	delete(h.keys, key)
	if k.ref.name != "" {
		h.gone = append(h.gone, k.ref)
	}
	m.decide(eff, m.next, DecisionKeyReleased, fmt.Sprintf("key %q goes on (records: %d): %s", key, passed, why))
}

// letAllGo ends all holds: the partition has ended, and nobody can decide about it any more.
func (m *Machine) letAllGo(eff *Effects) {
	if m.holds == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(m.holds.keys)) {
		m.letGo(key, true, "the partition has ended", eff)
	}
}

// takeHeld takes over what waits of the kept keys of a parent. It goes on at once: nobody can decide about the entries of a partition that has ended.
func (m *Machine) takeHeld(p *Machine, keep func(key string) bool, eff *Effects) {
	if p.holds == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(p.holds.keys)) {
		if keep(key) {
			m.holds.keys[key] = p.holds.keys[key]
			m.holds.keys[key].ref = blobRef{}
			m.holds.items += len(m.holds.keys[key].queue)
			m.letGo(key, true, fmt.Sprintf("partition %d has ended", p.partition), eff)
		}
	}
}

// cut writes the queues that changed.
func (h *holds) cut(l *ledger) {
	if h == nil {
		return
	}
	for _, ref := range h.gone {
		l.drop(ref)
	}
	h.gone = nil
	for _, key := range slices.Sorted(maps.Keys(h.keys)) {
		k := h.keys[key]
		switch {
		case !k.changed:
			continue
		case k.ref.name != "":
			k.ref = l.rewrite(k.ref, h.body(key))
		default:
			l.seq++
			k.ref = l.write(fmt.Sprintf("%s%d", heldPrefix, l.seq), h.body(key))
		}
		k.changed = false
	}
}

func (h *holds) body(key string) []byte {
	out := binary.AppendUvarint([]byte{heldVersion}, uint64(h.width))
	out = appendText(out, key)
	for i := range h.keys[key].queue {
		x := &h.keys[key].queue[i]
		if x.blocker {
			out, _ = x.place.AppendBinary(append(out, 0)) // a position has no error
			out = binary.AppendUvarint(out, uint64(x.sub))
			continue
		}
		out = binary.BigEndian.AppendUint64(append(out, 1), uint64(x.at))
		out = appendText(out, x.id)
		for _, f := range x.inputs {
			out = binary.BigEndian.AppendUint64(out, math.Float64bits(f))
		}
	}
	return out
}

// state is what is held, in a form that depends on nothing else.
func (h *holds) state() (out []StateBlob) {
	if h == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(h.keys)) {
		out = append(out, StateBlob{Name: heldPrefix + key, Data: h.body(key)})
	}
	return out
}

// load takes one blob.
func (h *holds) load(blob StateBlob, l *ledger) error {
	body, ref, err := unseal(blob)
	if err != nil {
		return err
	}
	key, width, queue, ok := decodeHeld(body)
	if h == nil || !ok || width != h.width || h.keys[key] != nil {
		return damaged(blob.Name, fmt.Sprintf("holds no queue of a key of version %d", heldVersion))
	}
	h.keys[key] = &heldKey{queue: queue, ref: ref}
	h.items += len(queue)
	l.stands(ref)
	return nil
}

func decodeHeld(body []byte) (key string, width int, queue []heldItem, ok bool) {
	in := decoder{src: body}
	version, inputs := in.byte(), in.uvarint()
	width = int(min(inputs, uint64(len(body))))
	key = string(in.text())
	for len(in.src) > 0 {
		var x heldItem
		switch in.byte() {
		case 0:
			var err error
			x.blocker = true
			x.place, _, err = record.DecodePosition(in.bytes(24))
			x.sub = uint32(in.uvarint())
			in.bad = in.bad || err != nil
		case 1:
			x.at, x.id = record.EventTime(in.uint64()), slices.Clone(in.text())
			x.inputs = make([]float64, width)
			for i := range x.inputs {
				x.inputs[i] = math.Float64frombits(in.uint64())
			}
		default:
			in.bad = true
		}
		if in.bad {
			return "", 0, nil, false
		}
		queue = append(queue, x)
	}
	return key, width, queue, version == heldVersion && in.whole() && len(queue) > 0 && queue[0].blocker
}

// HeldKey is a key that waits.
type HeldKey struct {
	Key string
	// Since is the position of the record that holds it, Oldest the event time of the first record that waits, or NoTime.
	Since  record.Position
	Oldest record.EventTime
	// Blockers and Waiting are numbers of records: those that hold it, and those that wait behind them.
	Blockers, Waiting int
}

// Held sums up the keys of a partition that wait.
type Held struct {
	// Keys is how many wait, Records how many records of them.
	Keys, Records int
	// Key is the one that waits longest, for the record at Position.
	Key      string
	Position record.Position
}

// Add takes a key in.
func (h *Held) Add(k HeldKey) {
	if h.Keys == 0 || k.Since.Cmp(h.Position) < 0 || k.Since == h.Position && k.Key < h.Key {
		h.Key, h.Position = k.Key, k.Since
	}
	h.Keys++
	h.Records += k.Waiting
}

// Held sums up the keys that wait.
func (m *Machine) Held() (out Held) {
	if m.holds != nil {
		for key, k := range m.holds.keys {
			out.Add(heldKeyOf(key, k.queue))
		}
	}
	return out
}

// HeldKeys are the keys that wait, by the position that they wait since.
func (m *Machine) HeldKeys() []HeldKey {
	if m.holds == nil {
		return nil
	}
	out := make([]HeldKey, 0, len(m.holds.keys))
	for key, k := range m.holds.keys {
		out = append(out, heldKeyOf(key, k.queue))
	}
	slices.SortFunc(out, func(a, b HeldKey) int { return cmp.Or(a.Since.Cmp(b.Since), cmp.Compare(a.Key, b.Key)) })
	return out
}

// HeldPrefix begins the names of the state blobs that hold the queues of keys.
const HeldPrefix = heldPrefix

// ReadHeld reads the key that waits out of its state blob, for commands that show it.
func ReadHeld(b StateBlob) (HeldKey, error) {
	body, _, err := unseal(b)
	if err != nil {
		return HeldKey{}, err
	}
	key, _, queue, ok := decodeHeld(body)
	if !ok {
		return HeldKey{}, damaged(b.Name, fmt.Sprintf("holds no queue of a key of version %d", heldVersion))
	}
	return heldKeyOf(key, queue), nil
}

func heldKeyOf(key string, queue []heldItem) HeldKey {
	out := HeldKey{Key: key, Since: queue[0].place, Oldest: record.NoTime}
	for i := range queue {
		switch {
		case queue[i].blocker:
			out.Blockers++
		case out.Waiting == 0:
			out.Oldest = queue[i].at
			fallthrough
		default:
			out.Waiting++
		}
	}
	return out
}
