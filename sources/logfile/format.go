package logfile

import (
	"bytes"
	"fmt"
	"math/bits"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/weirstream/weir/record"
)

// Format is the name and version of the format.
const Format = "arrival-log/1"

// MaxLine bounds a line, in bytes. It leaves room for a value of 16 MiB.
const MaxLine = 17 << 20

// Kind is a kind of fault.
type Kind uint8

// The kinds of faults, sorted by name.
const (
	// Burst delivers an event several times more, back to back.
	Burst Kind = iota
	// Delay lets an event arrive later.
	Delay
	// Duplicate delivers an event twice.
	Duplicate
	// Gap puts a tombstone in the place of an event.
	Gap
	// Pause lets the log stand still before an event, in wall time.
	Pause
	// Revision lets a changed event with the same id arrive later.
	Revision
	// SourceFailure lets the source fail before an event, and go on where it was.
	SourceFailure

	kinds = 7
)

var kindNames = [kinds]string{"BURST", "DELAY", "DUPLICATE", "GAP", "PAUSE", "REVISION", "SOURCE_FAILURE"}

// String is the kind's name, upper snake case.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "UNKNOWN"
}

// ParseKind is the kind of a name; ok is false when there is none.
func ParseKind(name string) (k Kind, ok bool) {
	i := slices.Index(kindNames[:], name)
	return Kind(max(i, 0)), i >= 0
}

// KindNames lists the names of all kinds, sorted.
func KindNames() []string { return slices.Clone(kindNames[:]) }

// KindSet is a set of kinds.
type KindSet uint8

// SetOf is the set of some kinds.
func SetOf(list ...Kind) KindSet {
	var s KindSet
	for _, k := range list {
		s |= 1 << k
	}
	return s
}

// Has says whether k is in the set.
func (s KindSet) Has(k Kind) bool { return s&(1<<k) != 0 }

// Len counts the kinds.
func (s KindSet) Len() int { return bits.OnesCount8(uint8(s)) }

// Header is the first line of a log.
type Header struct {
	Fields Fields
	// Seed that the log was built with.
	Seed uint64
	// SnapshotHash and ScheduleHash are the hashes of what the log was built from; ScheduleHash is "" when there were no faults.
	SnapshotHash, ScheduleHash string
}

// Fields names the fields of the values that hold event id, key and event time, and says how the time is written ("rfc3339",
// "s", "ms", "us" or "ns").
type Fields struct{ ID, Key, Time, Unit string }

// Arrival is one delivery.
type Arrival struct {
	// N numbers the arrivals of the log from 0. A Writer sets it.
	N int64
	// Time of arrival, in whole milliseconds.
	Time    record.EventTime
	EventID []byte
	// Key is nil when there is none.
	Key []byte
	// Value is a canonical JSON object, or nil for a tombstone.
	Value []byte
	// Faults that touch this arrival.
	Faults KindSet
	// Pause is how long the log stands still before the arrival, and Failure how long the source fails; whole milliseconds.
	Pause, Failure time.Duration
}

// Fault is the audit of one fault that was applied.
type Fault struct {
	// N is the arrival that the fault touches: the extra one of a DUPLICATE, BURST or REVISION. A Writer sets it.
	N       int64
	EventID string
	Kind    Kind
	// Count of extra deliveries (BURST). Delay in event time (DELAY, REVISION) and Wait in wall time (PAUSE, SOURCE_FAILURE), both
	// in whole milliseconds.
	Count       int64
	Delay, Wait time.Duration
	// Values that a REVISION overrides: record.Integer or float64, by field. Nil when it has none.
	Values map[string]any
}

// End is the last line of a log.
type End struct {
	Arrivals, FaultsApplied int64
	// LogHash is over all bytes of the log before the end line.
	LogHash string
}

// The first bytes of an arrival's line. No other line begins so, since canonical keys are sorted.
const arrivalStart = `{"arrival_time":"`

func appendHeader(dst []byte, h Header) ([]byte, error) {
	doc := map[string]any{
		"fields":        map[string]string{"id": h.Fields.ID, "key": h.Fields.Key, "time": h.Fields.Time, "unit": h.Fields.Unit},
		"format":        Format,
		"schedule_hash": nil,
		"seed":          h.Seed,
		"snapshot_hash": h.SnapshotHash,
		"type":          "header",
	}
	if h.ScheduleHash != "" {
		doc["schedule_hash"] = h.ScheduleHash
	}
	return record.AppendJSON(dst, doc)
}

func appendFault(dst []byte, f *Fault) ([]byte, error) {
	doc := map[string]any{"event_id": f.EventID, "kind": f.Kind.String(), "n": f.N, "type": "fault"}
	switch f.Kind {
	case Burst:
		doc["count"] = f.Count
	case Delay, Revision:
		doc["domain_ms"] = f.Delay.Milliseconds()
	case Pause, SourceFailure:
		doc["wall_ms"] = f.Wait.Milliseconds()
	}
	if len(f.Values) > 0 {
		doc["values"] = f.Values
	}
	return record.AppendJSON(dst, doc)
}

func appendEnd(dst []byte, e End) ([]byte, error) {
	return record.AppendJSON(dst, map[string]any{
		"arrivals": e.Arrivals, "faults_applied": e.FaultsApplied, "log_hash": e.LogHash, "type": "end",
	})
}

// appendArrival is written out by hand: it runs once for every event of a log. The keys are sorted.
func appendArrival(dst []byte, a *Arrival) []byte {
	dst = record.AppendTime(append(dst, arrivalStart...), a.Time)
	dst = record.AppendString(append(dst, `","event_id":`...), a.EventID)
	if a.Failure != 0 {
		dst = appendMillis(append(dst, `,"failure_ms":`...), a.Failure)
	}
	if a.Faults != 0 {
		dst = appendKinds(append(dst, `,"faults":[`...), a.Faults)
	}
	dst = append(dst, `,"key":`...)
	if a.Key == nil {
		dst = append(dst, "null"...)
	} else {
		dst = record.AppendString(dst, a.Key)
	}
	dst = appendInt(append(dst, `,"n":`...), a.N)
	if a.Pause != 0 {
		dst = appendMillis(append(dst, `,"pause_ms":`...), a.Pause)
	}
	dst = append(dst, `,"type":"arrival","value":`...)
	if a.Value == nil {
		dst = append(dst, "null"...)
	} else {
		dst = append(dst, a.Value...)
	}
	return append(dst, '}')
}

func appendKinds(dst []byte, s KindSet) []byte {
	first := true
	for k := range Kind(kinds) {
		if !s.Has(k) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(append(dst, '"'), kindNames[k]...), '"')
	}
	return append(dst, ']')
}

// checkArrival says what keeps an arrival from being written.
func checkArrival(a *Arrival) error {
	switch {
	case a.Time == record.NoTime || a.Time == record.MaxTime:
		return fmt.Errorf("arrival %d has no time", a.N)
	case a.Time%record.EventTime(time.Millisecond) != 0:
		return fmt.Errorf("arrival %d: its time %v is not in whole milliseconds", a.N, a.Time)
	case a.Pause < 0 || a.Failure < 0 || a.Pause%time.Millisecond != 0 || a.Failure%time.Millisecond != 0:
		return fmt.Errorf("arrival %d: its waits are not whole milliseconds", a.N)
	case !utf8.Valid(a.EventID) || !utf8.Valid(a.Key):
		return fmt.Errorf("arrival %d: its event id or key is not UTF-8", a.N)
	case a.Value != nil && !looksLikeObject(a.Value):
		return fmt.Errorf("arrival %d: its value is not an object", a.N)
	}
	return nil
}

func looksLikeObject(v []byte) bool {
	return len(v) >= 2 && v[0] == '{' && v[len(v)-1] == '}' && bytes.IndexByte(v, '\n') < 0
}
