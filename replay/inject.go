package replay

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math/bits"
	"time"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
)

// event is one event of a snapshot. Its slices belong to the caller again after injector.event.
type event struct {
	time    record.EventTime
	id, key []byte
	value   []byte // canonical
}

// injector turns events into arrivals: the pure part of a build. It holds what is delayed, and nothing else of the events.
type injector struct {
	// emit takes an arrival and the audit of the faults that stand before it. It keeps neither.
	emit func(a *logfile.Arrival, audit []logfile.Fault) error
	// revision names the field of the revision number.
	revision string

	schedule *Schedule
	// first is the first fault of an event that has not come yet, and next[i] the one of the same event after i, or -1.
	first map[string]int32
	next  []int32
	left  int // faults whose event has not come yet
	// sieve rules most of the other events out, without a look into the map.
	sieve sieve

	events  int64
	delayed deliveries
	arrival logfile.Arrival
}

func newInjector(s *Schedule, revision string, emit func(*logfile.Arrival, []logfile.Fault) error) *injector {
	in := &injector{emit: emit, revision: revision, schedule: s}
	if s == nil {
		return in
	}
	in.left = len(s.Faults)
	in.first, in.next = make(map[string]int32, len(s.Faults)), make([]int32, len(s.Faults))
	in.sieve = newSieve(len(s.Faults))
	for i := range s.Faults {
		in.next[i] = -1
		id := s.Faults[i].EventID
		in.sieve.add(id)
		if other, ok := in.first[id]; ok {
			in.next[i] = other
		}
		in.first[id] = int32(i)
	}
	return in
}

// event takes the next event, in the order of the snapshot, and emits what arrives up to its time.
func (in *injector) event(e *event) error {
	at, ok := ceilMillis(e.time)
	if !ok {
		return errLastMillisecond
	}
	if len(in.delayed) > 0 {
		if err := in.release(at); err != nil {
			return err
		}
	}
	in.events++
	if in.left > 0 && in.sieve.has(e.id) {
		if i, ok := in.first[string(e.id)]; ok {
			delete(in.first, string(e.id))
			return in.faulty(e, at, i)
		}
	}
	in.arrival = logfile.Arrival{Time: at, EventID: e.id, Key: e.key, Value: e.value}
	return in.emit(&in.arrival, nil)
}

// finish emits what is still to come, and reports the faults whose event did not come.
func (in *injector) finish() error {
	if in.left > 0 {
		return in.unknown()
	}
	return in.release(record.MaxTime)
}

// unknown lists the faults whose event is not in the snapshot.
func (in *injector) unknown() error {
	errs := ScheduleErrors{File: in.schedule.file}
	for _, i := range in.first {
		for ; i >= 0; i = in.next[i] {
			f := &in.schedule.Faults[i]
			errs.add(f.line, f.column, int(i), fmt.Sprintf("the snapshot has no event %.80q", f.EventID))
		}
	}
	return errs.err()
}

// release emits what was delayed up to a time.
func (in *injector) release(until record.EventTime) error {
	for len(in.delayed) > 0 && in.delayed[0].arrival.Time <= until {
		d := in.delayed.pop()
		if err := in.deliver(&d); err != nil {
			return err
		}
	}
	return nil
}

// deliver emits a delivery as often as it comes.
func (in *injector) deliver(d *delivery) error {
	audit := d.audit
	for range d.times {
		in.arrival = d.arrival
		if err := in.emit(&in.arrival, audit); err != nil {
			return err
		}
		audit = nil
	}
	return nil
}

// faulty works out the deliveries of an event that has faults, the first of which is i.
func (in *injector) faulty(e *event, at record.EventTime, i int32) error {
	var by byKind
	for ; i >= 0; i = in.next[i] {
		f := &in.schedule.Faults[i]
		by[f.Kind] = f
		in.left--
	}
	list, err := in.repetitions(make([]delivery, 0, 4), e, at, &by)
	if err != nil {
		return err
	}
	if f := by[logfile.Revision]; f != nil {
		d := delivery{arrival: logfile.Arrival{EventID: e.id, Key: e.key}, times: 1}
		if d.arrival.Time, err = in.later(at, f); err != nil {
			return err
		}
		if d.arrival.Value, err = revise(e.value, in.revision, f.Values); err != nil {
			return err
		}
		d.mark(f)
		list = append(list, d)
	}
	return in.send(list, at, e)
}

// byKind are the faults of one event.
type byKind [8]*Fault

// repetitions appends the event itself, its duplicate and its burst.
func (in *injector) repetitions(list []delivery, e *event, at record.EventTime, by *byKind) ([]delivery, error) {
	original := delivery{arrival: logfile.Arrival{Time: at, EventID: e.id, Key: e.key, Value: e.value}, times: 1}
	if f := by[logfile.Delay]; f != nil {
		var err error
		if original.arrival.Time, err = in.later(at, f); err != nil {
			return nil, err
		}
		original.mark(f)
	}
	if f := by[logfile.Gap]; f != nil {
		original.arrival.Value = nil
		original.mark(f)
	}
	repeated := original // without the audit, and without what stands before the event
	repeated.audit = nil
	if f := by[logfile.Pause]; f != nil {
		original.arrival.Pause = f.Wait
		original.mark(f)
	}
	if f := by[logfile.SourceFailure]; f != nil {
		original.arrival.Failure = f.Wait
		original.mark(f)
	}
	list = append(list, original)
	for _, kind := range [...]logfile.Kind{logfile.Duplicate, logfile.Burst} {
		if f := by[kind]; f != nil {
			d := repeated
			d.times = max(1, f.Count)
			d.mark(f)
			list = append(list, d)
		}
	}
	return list, nil
}

// send emits the deliveries that are due now and keeps the others.
func (in *injector) send(list []delivery, now record.EventTime, e *event) error {
	var kept *event
	for i := range list {
		d := &list[i]
		d.event, d.number = in.events, i
		if d.arrival.Time == now {
			if err := in.deliver(d); err != nil {
				return err
			}
			continue
		}
		if kept == nil {
			kept = &event{id: bytes.Clone(e.id), key: bytes.Clone(e.key), value: bytes.Clone(e.value)}
		}
		d.arrival.EventID, d.arrival.Key = kept.id, kept.key
		if d.arrival.Value != nil && !d.arrival.Faults.Has(logfile.Revision) {
			d.arrival.Value = kept.value
		}
		in.delayed.push(*d)
	}
	return nil
}

// later is the time that a fault moves an arrival to.
func (in *injector) later(at record.EventTime, f *Fault) (record.EventTime, error) {
	later := at + record.EventTime(f.Delay)
	if later < at || later == record.MaxTime {
		errs := ScheduleErrors{File: in.schedule.file}
		errs.add(f.line, f.column, -1, fmt.Sprintf("event %.80q of %v: %s would move it beyond the end of time, 2262-04-11", f.EventID, at, f.Kind))
		return 0, errs.err()
	}
	return later, nil
}

// revise is the value of a revision: canonical, with revision number 1 and other values.
func revise(value []byte, revision string, values map[string]any) ([]byte, error) {
	v, err := record.Decode(value)
	if err != nil {
		return nil, err
	}
	doc, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the value is no object")
	}
	for name, x := range values {
		doc[name] = x
	}
	doc[revision] = record.Integer("1")
	return record.AppendJSON(nil, doc)
}

// ceilMillis rounds up to whole milliseconds; ok is false when that is beyond the end of time.
func ceilMillis(t record.EventTime) (up record.EventTime, ok bool) {
	const milli = record.EventTime(time.Millisecond)
	switch rest := t % milli; {
	case rest < 0:
		return t - rest, true
	case rest > 0:
		up = t + (milli - rest)
		return up, up > t
	}
	return t, true
}

// delivery is an arrival that comes some times, back to back.
type delivery struct {
	arrival logfile.Arrival
	audit   []logfile.Fault
	times   int64
	event   int64 // number of the event in the snapshot
	number  int   // of the delivery among those of its event
}

// mark notes that a fault touches the delivery, and audits it there.
func (d *delivery) mark(f *Fault) {
	d.arrival.Faults |= logfile.SetOf(f.Kind)
	d.audit = append(d.audit, logfile.Fault{EventID: f.EventID, Kind: f.Kind, Count: f.Count, Delay: f.Delay, Wait: f.Wait, Values: f.Values})
}

// deliveries is a heap by the order of arrivals.
type deliveries []delivery

func (h deliveries) less(i, j int) bool {
	a, b := &h[i], &h[j]
	if a.arrival.Time != b.arrival.Time {
		return a.arrival.Time < b.arrival.Time
	}
	if a.event != b.event {
		return a.event < b.event
	}
	return a.number < b.number
}

func (h *deliveries) push(d delivery) {
	*h = append(*h, d)
	for i := len(*h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		(*h)[i], (*h)[parent] = (*h)[parent], (*h)[i]
		i = parent
	}
}

func (h *deliveries) pop() delivery {
	old := *h
	top := old[0]
	n := len(old) - 1
	old[0] = old[n]
	old[n] = delivery{} // what it holds is not kept alive
	*h = old[:n]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < n; child++ {
			if h.less(child, least) {
				least = child
			}
		}
		if least == i {
			return top
		}
		old[i], old[least] = old[least], old[i]
		i = least
	}
}

// sieve holds a set of ids in two bytes each: an id that it does not have is not in the set, one that it has nearly always is.
type sieve struct {
	seed maphash.Seed
	bits []uint64
	mask uint64
}

func newSieve(n int) sieve {
	words := uint64(1) << bits.Len(uint(n)/4)
	return sieve{seed: maphash.MakeSeed(), bits: make([]uint64, words), mask: 64*words - 1}
}

func (s *sieve) add(id string) {
	h := maphash.String(s.seed, id) & s.mask
	s.bits[h/64] |= 1 << (h % 64)
}

func (s *sieve) has(id []byte) bool {
	h := maphash.Bytes(s.seed, id) & s.mask
	return s.bits[h/64]&(1<<(h%64)) != 0
}
