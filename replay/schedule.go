package replay

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
)

// ScheduleFormat is the name and version of the format of fault schedules.
const ScheduleFormat = "fault-schedule/1"

// MaxBurst is the largest count of a BURST.
const MaxBurst = 1_000_000

// Schedule says which faults to put into an arrival log.
type Schedule struct {
	Seed   uint64
	Faults []Fault

	file string // that was parsed, for messages
}

// Fault is one fault of one event.
type Fault struct {
	EventID string
	Kind    logfile.Kind
	// Delay in event time (DELAY, REVISION) and Wait in wall time (PAUSE, SOURCE_FAILURE), in whole milliseconds.
	Delay, Wait time.Duration
	// Count of extra deliveries (BURST).
	Count int64
	// Values that a REVISION overrides: record.Integer or finite float64, by field.
	Values map[string]any

	line, column int // where it stands in the file; 0 when it comes from none
}

// The members of an entry. Any other number of a REVISION is a value.
const (
	idMember     = "event_id"
	kindMember   = "kind"
	domainMember = "domain_ms"
	wallMember   = "wall_ms"
	countMember  = "count"
)

func isMember(name string) bool {
	switch name {
	case idMember, kindMember, domainMember, wallMember, countMember:
		return true
	}
	return false
}

// parameter is the member that a kind needs, or "".
func parameter(k logfile.Kind) string {
	switch k {
	case logfile.Delay, logfile.Revision:
		return domainMember
	case logfile.Pause, logfile.SourceFailure:
		return wallMember
	case logfile.Burst:
		return countMember
	}
	return ""
}

// check reports what is wrong with a fault by itself.
func (f *Fault) check(report func(format string, args ...any)) {
	if _, ok := logfile.ParseKind(f.Kind.String()); !ok {
		report("there is no kind of fault with the number %d", f.Kind)
		return
	}
	if !utf8.ValidString(f.EventID) {
		report("event_id is not UTF-8")
	}
	need := parameter(f.Kind)
	checkMillis(domainMember, f.Delay, need, f.Kind, report)
	checkMillis(wallMember, f.Wait, need, f.Kind, report)
	switch {
	case need != countMember && f.Count != 0:
		report("%s takes no %s", f.Kind, countMember)
	case need == countMember && (f.Count < 1 || f.Count > MaxBurst):
		report("count must be between 1 and %d, not %d", MaxBurst, f.Count)
	}
	if len(f.Values) > 0 && f.Kind != logfile.Revision {
		report("%s takes no values", f.Kind)
	}
	for name, v := range f.Values {
		if problem := checkValue(name, v); problem != "" {
			report("%s", problem)
		}
	}
}

func checkMillis(name string, d time.Duration, need string, k logfile.Kind, report func(string, ...any)) {
	switch {
	case need != name && d != 0:
		report("%s takes no %s", k, name)
	case d < 0:
		report("%s must not be negative", name)
	case d%time.Millisecond != 0:
		report("%s must be whole milliseconds, not %v", name, d)
	}
}

func checkValue(name string, v any) string {
	switch v := v.(type) {
	case record.Integer:
		if _, err := record.AppendJSON(nil, v); err != nil {
			return fmt.Sprintf("the value of %.80q is no integer", name)
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprintf("the value of %.80q is not finite", name)
		}
	default:
		return fmt.Sprintf("the value of %.80q is no number", name)
	}
	if isMember(name) || !utf8.ValidString(name) {
		return fmt.Sprintf("%.80q cannot be the name of a field to override", name)
	}
	return ""
}

// check reports what is wrong with a schedule: each fault by itself, and second faults of one event and kind.
func (s *Schedule) check() error {
	errs := ScheduleErrors{File: s.file}
	seen := make(map[faultKey]int32, len(s.Faults))
	for i := range s.Faults {
		f := &s.Faults[i]
		report := func(format string, args ...any) { errs.add(f.line, f.column, i, fmt.Sprintf(format, args...)) }
		f.check(report)
		key := faultKey{f.EventID, f.Kind}
		if first, twice := seen[key]; twice {
			report("%s", s.twice(int(first)))
		} else {
			seen[key] = int32(i)
		}
	}
	return errs.err()
}

type faultKey struct {
	id   string
	kind logfile.Kind
}

// twice is the message for a second fault of the event and kind of fault i.
func (s *Schedule) twice(i int) string {
	f := &s.Faults[i]
	where := fmt.Sprintf("faults[%d]", i)
	if f.line > 0 {
		where = fmt.Sprintf("line %d", f.line)
	}
	return fmt.Sprintf("duplicate entry: event %.80q has a %s already, at %s; leave one of them out", f.EventID, f.Kind, where)
}

// Encode writes the schedule as ParseSchedule reads it: canonical JSON but for line feeds, so that every fault has a line. The error
// is a *ScheduleErrors.
func (s *Schedule) Encode() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	dst := append(make([]byte, 0, 64+96*len(s.Faults)), scheduleStart...)
	for i := range s.Faults {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '\n')
		var err error
		if dst, err = appendFault(dst, &s.Faults[i]); err != nil {
			return nil, codes.New(codes.ScheduleInvalid, "faults[%d]: %w", i, err)
		}
	}
	return append(appendScheduleEnd(append(dst, '\n'), s.Seed), '\n'), nil
}

const scheduleStart = `{"faults":[`

func appendScheduleEnd(dst []byte, seed uint64) []byte {
	dst = append(dst, `],"format":"`+ScheduleFormat+`","seed":`...)
	return append(strconv.AppendUint(dst, seed, 10), '}')
}

// Hash is the hash of the schedule's canonical JSON, which `weir canon --hash` gives for its file too when that names a seed. The
// schedule must be one that Encode takes.
func (s *Schedule) Hash() (string, error) {
	h := sha256.New()
	io.WriteString(h, scheduleStart)
	var buf []byte
	for i := range s.Faults {
		buf = buf[:0]
		if i > 0 {
			buf = append(buf, ',')
		}
		var err error
		if buf, err = appendFault(buf, &s.Faults[i]); err != nil {
			return "", codes.New(codes.ScheduleInvalid, "faults[%d]: %w", i, err)
		}
		h.Write(buf)
	}
	h.Write(appendScheduleEnd(buf[:0], s.Seed))
	return record.HashPrefix + hex.EncodeToString(h.Sum(nil)), nil
}

// appendFault writes an entry as canonical JSON.
func appendFault(dst []byte, f *Fault) ([]byte, error) {
	if len(f.Values) > 0 {
		doc := map[string]any{idMember: f.EventID, kindMember: f.Kind.String(), domainMember: f.Delay.Milliseconds()}
		for name, v := range f.Values {
			doc[name] = v
		}
		return record.AppendJSON(dst, doc)
	}
	// The common form by hand, its keys in order; a schedule may have very many of them.
	dst = append(dst, '{')
	switch parameter(f.Kind) {
	case countMember:
		dst = append(strconv.AppendInt(append(dst, `"count":`...), f.Count, 10), ',')
	case domainMember:
		dst = append(strconv.AppendInt(append(dst, `"domain_ms":`...), f.Delay.Milliseconds(), 10), ',')
	}
	dst = record.AppendString(append(dst, `"event_id":`...), f.EventID)
	dst = append(append(append(dst, `,"kind":"`...), f.Kind.String()...), '"')
	if parameter(f.Kind) == wallMember {
		dst = strconv.AppendInt(append(dst, `,"wall_ms":`...), f.Wait.Milliseconds(), 10)
	}
	return append(dst, '}'), nil
}
