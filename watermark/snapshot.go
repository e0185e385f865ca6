package watermark

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/weirstream/weir/record"
)

// ErrSnapshot says that bytes handed to Restore are damaged, cut short or of another version.
var ErrSnapshot = errors.New("watermark: the snapshot is damaged or of another version")

const version = 1

// KeysPerPart is the number of keys whose sequence numbers stand in one part of the state.
const KeysPerPart = 256

// Snapshot appends the state to dst: all parts in order. Equal states give equal bytes. All numbers are big endian, times and
// sequence numbers as two's complement in 8 bytes:
//
//	part 0      version 1 │ input 1 │ polls 4 │ max event time 8 │ W 8 │ keys 4
//	part 1, 2…  KeysPerPart keys in the order of first sight, the last part what remains
//	  per key                             length 4 │ key │ last number 8 │ its time 8 │ ranges 4
//	  per range, lowest number first      first 8 │ last 8 │ anchor 8
func (p *Partition) Snapshot(dst []byte) []byte {
	for part := range p.Parts() {
		dst = p.AppendPart(dst, part)
	}
	return dst
}

// Parts is the number of parts of the state: 1 where the flow names no sequence field. It never shrinks.
func (p *Partition) Parts() int { return 1 + len(p.gaps.changed) }

// Changed says whether a part may differ from what it was at the last Saved, so that a cut costs what changed and not what stands.
// Part 0 always counts as changed.
func (p *Partition) Changed(part int) bool { return part == 0 || p.gaps.changed[part-1] }

// Saved marks every part as unchanged: the caller has taken the changed ones. After Restore nothing counts as changed.
func (p *Partition) Saved() { clear(p.gaps.changed) }

// AppendPart appends one part of the state to dst. The parts in order, one after the other, are what Restore takes.
func (p *Partition) AppendPart(dst []byte, part int) []byte {
	be := binary.BigEndian
	if part == 0 {
		dst = append(dst, version, byte(p.input))
		dst = be.AppendUint32(dst, uint32(p.polls))
		dst = be.AppendUint64(dst, uint64(p.max))
		dst = be.AppendUint64(dst, uint64(p.w))
		return be.AppendUint32(dst, uint32(len(p.gaps.keys)))
	}
	from := (part - 1) * KeysPerPart
	for i := range p.gaps.keys[from:min(from+KeysPerPart, len(p.gaps.keys))] {
		dst = p.gaps.appendKey(dst, &p.gaps.keys[from+i])
	}
	return dst
}

func (g *gaps) appendKey(dst []byte, k *sequence) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(len(k.key)))
	dst = append(dst, k.key...)
	dst = be.AppendUint64(dst, uint64(k.last))
	dst = be.AppendUint64(dst, uint64(k.at))
	dst = be.AppendUint32(dst, uint32(len(k.open)))
	for _, id := range k.open {
		s := &g.slab[id]
		dst = be.AppendUint64(dst, uint64(s.first))
		dst = be.AppendUint64(dst, uint64(s.last))
		dst = be.AppendUint64(dst, uint64(s.anchor))
	}
	return dst
}

// StatusIn is the input's status in what Snapshot, or AppendPart for part 0, wrote.
func StatusIn(src []byte) (Status, error) {
	r := reader{src: src}
	v, is := r.byte(), input(r.byte())
	if r.bad || v != version || is >= inputs {
		return Active, fmt.Errorf("%w: version %d, status %d", ErrSnapshot, v, is)
	}
	return statusOf[is], nil
}

// Restore replaces the state by what Snapshot wrote; lateness, gap hold and the idle policy stay those of p. On an error, which is
// an ErrSnapshot, p is unchanged: damage is never a fresh start.
func (p *Partition) Restore(src []byte) error {
	r := reader{src: src}
	if v := r.byte(); v != version {
		return fmt.Errorf("%w: version %d", ErrSnapshot, v)
	}
	q := Partition{lateness: p.lateness, gapHold: p.gapHold, idleAfter: p.idleAfter}
	q.input = input(r.byte())
	q.polls = int(r.uint32())
	q.max, q.w = r.time(), r.time()
	if q.input >= inputs || q.w > q.max {
		return fmt.Errorf("%w: status %d, max event time %d, watermark %d", ErrSnapshot, q.input, q.max, q.w)
	}
	q.gaps.init()
	if err := q.gaps.restore(&r); err != nil {
		return err
	}
	if r.bad || len(r.src) != 0 {
		return fmt.Errorf("%w: cut short or too long", ErrSnapshot)
	}
	q.told, q.quiet = q.w, q.max
	q.Saved()
	*p = q
	return nil
}

func (g *gaps) restore(r *reader) error {
	for n := r.uint32(); n > 0 && !r.bad; n-- {
		s := sequence{key: string(r.bytes(int64(r.uint32()))), last: int64(r.uint64()), at: r.time()}
		if _, twice := g.index[s.key]; twice {
			return fmt.Errorf("%w: key %q stands twice", ErrSnapshot, s.key)
		}
		g.append(s)
		if err := g.restoreSpans(r, int32(len(g.keys)-1)); err != nil {
			return err
		}
	}
	return nil
}

func (g *gaps) restoreSpans(r *reader, k int32) error {
	s := &g.keys[k]
	for m, floor, from := r.uint32(), int64(0), false; m > 0 && !r.bad; m-- {
		x := span{first: int64(r.uint64()), last: int64(r.uint64()), anchor: r.time(), key: k}
		if r.bad {
			break
		}
		// Ranges are apart by at least one number that came, and the key's last number is above them all.
		if x.first > x.last || x.last >= s.last || (from && x.first-1 <= floor) || g.open() >= MaxOpenGaps {
			return fmt.Errorf("%w: range %d to %d of key %q", ErrSnapshot, x.first, x.last, s.key)
		}
		floor, from = x.last, true
		s.open = append(s.open, g.add(x))
	}
	return nil
}

// reader takes big-endian numbers off src; past the end it is bad and yields zeros.
type reader struct {
	src []byte
	bad bool
}

func (r *reader) bytes(n int64) []byte {
	if n > int64(len(r.src)) {
		r.bad, r.src = true, nil
		return nil
	}
	b := r.src[:n]
	r.src = r.src[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) time() record.EventTime { return record.EventTime(r.uint64()) }
