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

// Snapshot appends the state to dst. Equal states give equal bytes. All numbers are big endian, times and sequence numbers as two's
// complement in 8 bytes:
//
//	version 1 │ input 1 │ polls 4 │ max event time 8 │ W 8 │ keys 4
//	per key, in the order of first sight: length 4 │ key │ last number 8 │ its time 8 │ ranges 4
//	  per range, lowest number first:     first 8 │ last 8 │ anchor 8
func (p *Partition) Snapshot(dst []byte) []byte {
	be := binary.BigEndian
	dst = append(dst, version, byte(p.input))
	dst = be.AppendUint32(dst, uint32(p.polls))
	dst = be.AppendUint64(dst, uint64(p.max))
	dst = be.AppendUint64(dst, uint64(p.w))
	dst = be.AppendUint32(dst, uint32(len(p.gaps.keys)))
	for i := range p.gaps.keys {
		k := &p.gaps.keys[i]
		dst = be.AppendUint32(dst, uint32(len(k.key)))
		dst = append(dst, k.key...)
		dst = be.AppendUint64(dst, uint64(k.last))
		dst = be.AppendUint64(dst, uint64(k.at))
		dst = be.AppendUint32(dst, uint32(len(k.open)))
		for _, id := range k.open {
			s := &p.gaps.slab[id]
			dst = be.AppendUint64(dst, uint64(s.first))
			dst = be.AppendUint64(dst, uint64(s.last))
			dst = be.AppendUint64(dst, uint64(s.anchor))
		}
	}
	return dst
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
	*p = q
	return nil
}

func (g *gaps) restore(r *reader) error {
	for n := r.uint32(); n > 0 && !r.bad; n-- {
		s := sequence{key: string(r.bytes(int64(r.uint32()))), last: int64(r.uint64()), at: r.time()}
		k := int32(len(g.keys))
		if _, twice := g.index[s.key]; twice {
			return fmt.Errorf("%w: key %q stands twice", ErrSnapshot, s.key)
		}
		g.index[s.key] = k
		g.keys = append(g.keys, s)
		if err := g.restoreSpans(r, k); err != nil {
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
