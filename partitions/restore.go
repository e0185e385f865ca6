package partitions

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

// Restore makes the machine of a partition from the blobs that stand. load calls yield with each of them, in any order; the data
// need be valid during the call only. An error of load is returned as it is.
//
// The restored machine is the one that was cut: same full state, same behaviour, same later cuts. Anything else is refused:
// RUN_MISMATCH when the state belongs to another flow or partition, JOURNAL_CORRUPT when a blob is damaged, missing, stale or too
// many. Nothing standing at all is refused too; a partition that was never cut starts with New. HANDOVER_UNFINISHED is a state whose history
// has not ended (see BeginHistory).
func Restore(plan *flow.Plan, partition int32, load func(yield func(StateBlob) error) error) (*Machine, error) {
	m, err := restoreMachine(plan, partition, load)
	if err == nil && m.history.open() {
		return nil, m.inHistory()
	}
	return m, err
}

func restoreMachine(plan *flow.Plan, partition int32, load func(yield func(StateBlob) error) error) (*Machine, error) {
	r := restore{m: New(plan, partition)}
	err := load(func(b StateBlob) error {
		if r.err == nil {
			r.err = r.take(b)
		}
		// A mismatch explains all other errors; so the core is looked for even after one of them.
		if codes.Has(r.err, codes.RunMismatch) {
			return r.err
		}
		if r.err != nil && b.Name == coreName {
			if err := r.core(b); codes.Has(err, codes.RunMismatch) {
				r.err = err
			}
		}
		return nil
	})
	if r.err != nil {
		return nil, r.err
	}
	if err != nil {
		return nil, err
	}
	if err := r.finish(); err != nil {
		return nil, err
	}
	return r.m, nil
}

type restore struct {
	m *Machine
	// found is the ledger as the blobs say, m.ledger as the core says.
	found ledger
	// mark is the first part of the watermark's state.
	mark []byte
	// keys is the number of keys as the core says.
	keys    uint64
	hasCore bool
	err     error
}

func (r *restore) take(b StateBlob) error {
	switch {
	case b.Name == coreName:
		return r.core(b)
	case b.Name == HistoryBlob:
		return r.m.history.load(b, &r.found)
	case strings.HasPrefix(b.Name, idsPrefix):
		return r.m.ids.load(b, &r.found)
	case strings.HasPrefix(b.Name, keysPrefix):
		return r.m.keys.load(b, &r.found)
	case strings.HasPrefix(b.Name, deltasPrefix):
		return r.m.keys.loadDelta(b, &r.found)
	case strings.HasPrefix(b.Name, marksPrefix):
		return r.m.marks.load(b, &r.found)
	case strings.HasPrefix(b.Name, heldPrefix):
		return r.m.holds.load(b, &r.found)
	case strings.HasPrefix(b.Name, recordsPrefix):
		return r.m.waiting.load(b, &r.found)
	}
	return damaged(b.Name, "is none that this weir writes")
}

func (r *restore) core(b StateBlob) error {
	body, _, err := unseal(b)
	if err != nil {
		return err
	}
	m := r.m
	in := decoder{src: body}
	v := in.byte()
	held := v&holderFlag != 0
	if v &^= holderFlag; v != coreVersion && v != deferringVersion {
		return damaged(b.Name, fmt.Sprintf("has version %d, this weir reads version %d", v, deferringVersion))
	}
	fingerprint, partition := string(in.text()), in.bytes(4)
	switch {
	case in.bad:
		return damaged(b.Name, "is cut short")
	case fingerprint != m.plan.Fingerprint:
		return codes.New(codes.RunMismatch, "the state was written by a flow with fingerprint %.80q, this one has %q: use a new run id, or the flow that the run was started with", fingerprint, m.plan.Fingerprint)
	case int32(binary.BigEndian.Uint32(partition)) != m.partition:
		return codes.New(codes.RunMismatch, "the state of partition %d was handed to partition %d", int32(binary.BigEndian.Uint32(partition)), m.partition)
	case v != m.coreVersion():
		return codes.New(codes.RunMismatch, "partition %d: the state was written by a weir that took the records of an open interval up at once, so that revisions cannot take their place any more: use a new run id", m.partition)
	case r.hasCore:
		return damaged(b.Name, "stands twice")
	}
	r.hasCore = true
	finished := in.byte()
	m.finished, m.inBand = finished > 0, finished == 2
	if m.next, _, err = record.DecodePosition(in.bytes(24)); err != nil {
		return damaged(b.Name, "has no position")
	}
	for _, n := range m.counts.fields() {
		*n = int64(in.uint64())
	}
	r.keys = in.uvarint()
	r.mark = slices.Clone(in.text())
	if m.holder.known = held; held {
		if m.holder.at, _, err = record.DecodePosition(in.bytes(24)); err != nil {
			return damaged(b.Name, "has no position of a holder")
		}
	}
	m.ledger.seq, m.ledger.count, m.ledger.sum = in.uint64(), in.uint64(), in.uint64()
	if !in.whole() || finished > 2 {
		return damaged(b.Name, "is cut short or too long")
	}
	return nil
}

// finish puts the parts together once all blobs are there.
func (r *restore) finish() error {
	m := r.m
	if !r.hasCore {
		return damaged(coreName, "is missing")
	}
	if r.found.count != m.ledger.count || r.found.sum != m.ledger.sum {
		return codes.New(codes.JournalCorrupt, "partition %d has %d state blobs, its last cut left %d, or some of them are of another cut: restore the store from a backup, or start a new run id",
			m.partition, r.found.count, m.ledger.count)
	}
	mark, err := m.marks.snapshot(r.mark)
	if err != nil {
		return err
	}
	if err := m.wm.Restore(mark); err != nil {
		return codes.New(codes.JournalCorrupt, "state blob %q and those of %q: %w", coreName, marksPrefix, err)
	}
	if err := m.keys.loaded(m.grid); err != nil {
		return err
	}
	if uint64(len(m.keys.names)) != r.keys {
		return damaged(coreName, fmt.Sprintf("counts %d keys, there are %d", r.keys, len(m.keys.names)))
	}
	if err := m.waiting.loaded(m.kept(), m.decided(), len(m.keys.names)); err != nil {
		return err
	}
	m.ids.loaded(m.wm.Watermark())
	if m.grid != nil {
		m.grid.resume(m.keys.names, m.wm.Watermark())
	}
	if m.past != nil {
		m.past.loaded(m)
	}
	return nil
}
