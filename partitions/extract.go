package partitions

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

// extractor reads out of a record's value what the plan names. It does not allocate for a record that it can read.
//
//	field            text of                       otherwise
//	id               string (not empty), integer   unreadable
//	key, select      string, integer               unreadable
//	time             string with zone, or integer  unreadable, as the unit says
//	revision         integer, not negative         0 when missing or null, else unreadable
//	sequence         integer of 64 bits            not numbered when missing or null, else unreadable
//	numeric inputs   number                        a gap when missing, null or not finite, else unreadable
type extractor struct {
	scanner *record.Scanner
	fields  []record.Field
	names   []string
	// Places in fields; -1 where the flow has no such field.
	id, key, time, revision, sequence, selection int
	inputs                                       []int
	unit                                         flow.TimeUnit
	// ends is the first event time that is too late for the flow's clock.
	ends record.EventTime
	// selected are the values that select a record, nil when there is only one.
	selected map[string]bool
	only     string
}

// extracted is what a record says.
type extracted struct {
	// reason and detail say why it cannot be read; reason is "" for a readable one. What could be read all the same is filled in.
	reason, detail string
	id, key        []byte
	// hash is that of the id, inputs the numeric inputs with NaN for a gap: of a selected record only.
	hash   idHash
	inputs []float64
	at     record.EventTime
	// selected is false for what cannot be read.
	selected           bool
	numbered           bool
	revision, sequence int64
}

var zeroDigit = []byte("0")

func newExtractor(plan *flow.Plan) *extractor {
	x := &extractor{unit: plan.TimeUnit, ends: record.MaxTime}
	if plan.ClockEvery > 0 {
		every := record.EventTime(plan.ClockEvery)
		x.ends = record.MaxTime / every * every
	}
	x.id, x.key, x.time = x.place(plan.IDField), x.place(plan.KeyField), x.place(plan.TimeField)
	x.revision, x.sequence = x.place(plan.RevisionField), x.place(plan.SequenceField)
	x.selection = x.place(plan.SelectField)
	for _, name := range plan.Inputs {
		x.inputs = append(x.inputs, x.place(name))
	}
	if len(plan.SelectValues) == 1 {
		x.only = plan.SelectValues[0]
	} else {
		x.selected = make(map[string]bool, len(plan.SelectValues))
		for _, v := range plan.SelectValues {
			x.selected[v] = true
		}
	}
	x.scanner = record.NewScanner(x.names)
	x.fields = make([]record.Field, len(x.names))
	return x
}

// place is where a field is scanned to; one field may serve several ends.
func (x *extractor) place(name string) int {
	if name == "" {
		return -1
	}
	for i, n := range x.names {
		if n == name {
			return i
		}
	}
	x.names = append(x.names, name)
	return len(x.names) - 1
}

// read reads a value; nil is a tombstone. The bytes in out are valid until the next read.
func (x *extractor) read(value []byte, out *extracted) {
	*out = extracted{at: record.NoTime, inputs: out.inputs}
	if value == nil {
		out.reason, out.detail = ReasonTombstone, "the record has a key and no value"
		return
	}
	if out.detail = x.readFields(value, out); out.detail != "" {
		out.reason, out.selected = ReasonUnreadable, false
		return
	}
	if out.selected {
		x.readInputs(out.inputs)
	}
}

// readFields returns why a value cannot be read, or "".
func (x *extractor) readFields(value []byte, out *extracted) (detail string) {
	if err := x.scanner.Scan(value, x.fields); err != nil {
		return scanDetail(value, err)
	}
	var ok bool
	if out.id, ok = text(x.fields[x.id]); !ok || len(out.id) == 0 {
		out.id = nil
		return x.wrong(x.id, "event id", "a string that is not empty, or an integer")
	}
	if out.key, ok = text(x.fields[x.key]); !ok {
		return x.wrong(x.key, "key", "a string or an integer")
	}
	if detail = x.readTime(out); detail != "" {
		return detail
	}
	if detail = x.readSelection(out); detail != "" {
		return detail
	}
	if x.revision >= 0 || x.sequence >= 0 {
		if detail = x.readNumbering(out); detail != "" {
			return detail
		}
	}
	for _, i := range x.inputs {
		if k := x.fields[i].Kind; k == record.String || k >= record.True {
			return x.wrong(i, "input", "a number or null")
		}
	}
	return ""
}

func (x *extractor) readSelection(out *extracted) (detail string) {
	if x.selection < 0 {
		out.selected = true
		return ""
	}
	v, ok := text(x.fields[x.selection])
	if !ok {
		return x.wrong(x.selection, "select", "a string or an integer")
	}
	if out.selected = string(v) == x.only; x.selected != nil {
		out.selected = x.selected[string(v)]
	}
	return ""
}

func (x *extractor) readTime(out *extracted) (detail string) {
	f := x.fields[x.time]
	var err error
	switch {
	case x.unit == flow.RFC3339 && f.Kind == record.String:
		out.at, err = record.ParseTime(f.Raw)
	case x.unit != flow.RFC3339 && f.IsInteger():
		out.at, err = record.TimeFromUnix(f.Raw, nanosOf(x.unit))
	case x.unit == flow.RFC3339:
		return x.wrong(x.time, "time", "an RFC 3339 string with a zone")
	default:
		return x.wrong(x.time, "time", "an integer of "+x.unit.String()+" since 1970")
	}
	if err == nil && out.at >= x.ends {
		err = record.ErrTimeRange
	}
	if err != nil {
		out.at = record.NoTime
		return fmt.Sprintf("time field %q: %v", x.names[x.time], err)
	}
	return ""
}

func (x *extractor) readNumbering(out *extracted) (detail string) {
	var ok bool
	if x.revision >= 0 {
		if out.revision, _, ok = integer(x.fields[x.revision]); !ok || out.revision < 0 {
			return x.wrong(x.revision, "revision", "an integer that is not negative")
		}
	}
	if x.sequence >= 0 {
		if out.sequence, out.numbered, ok = integer(x.fields[x.sequence]); !ok {
			return x.wrong(x.sequence, "sequence", "an integer of 64 bits")
		}
	}
	return ""
}

// readInputs reads the numbers: NaN for a gap.
func (x *extractor) readInputs(out []float64) {
	for i, field := range x.inputs {
		out[i] = math.NaN()
		if f := x.fields[field]; f.Kind == record.Number {
			if n := record.ParseFloat(f.Raw); !math.IsInf(n, 0) {
				out[i] = n
			}
		}
	}
}

func (x *extractor) wrong(field int, role, want string) string {
	return fmt.Sprintf("%s field %q is %s, must be %s", role, x.names[field], describe(x.fields[field]), want)
}

func describe(f record.Field) string {
	switch {
	case f.Kind == record.String && len(f.Raw) == 0:
		return "an empty string"
	case f.Kind == record.Number && len(f.Raw) <= 32:
		return "the number " + string(f.Raw)
	case f.Kind == record.String || f.Kind == record.Number:
		return "a " + f.Kind.String()
	case f.Kind == record.Object || f.Kind == record.Array:
		return "an " + f.Kind.String()
	}
	return f.Kind.String()
}

// scanDetail names the values that are special before anything else: empty, and the JSON null.
func scanDetail(value []byte, err error) string {
	if len(value) == 0 {
		return "the value is empty (0 bytes); a tombstone has no value at all"
	}
	if string(bytes.TrimSpace(value)) == "null" {
		return "the value is the JSON null, must be an object; a tombstone has no value at all"
	}
	return err.Error()
}

// text is a string, or an integer as its digits; -0 is 0.
func text(f record.Field) ([]byte, bool) {
	if f.Kind == record.String {
		return f.Raw, true
	}
	if !f.IsInteger() {
		return nil, false
	}
	if len(f.Raw) == 2 && f.Raw[0] == '-' && f.Raw[1] == '0' {
		return zeroDigit, true
	}
	return f.Raw, true
}

// integer is a number of 64 bits; there is none (given false) when the field is missing or null.
func integer(f record.Field) (n int64, given, ok bool) {
	if f.Kind == record.Missing || f.Kind == record.Null {
		return 0, false, true
	}
	if !f.IsInteger() || len(f.Raw) > len("-9223372036854775808") {
		return 0, false, false
	}
	n, err := strconv.ParseInt(string(f.Raw), 10, 64)
	return n, true, err == nil
}

func nanosOf(u flow.TimeUnit) int64 {
	switch u {
	case flow.Seconds:
		return int64(time.Second)
	case flow.Milliseconds:
		return int64(time.Millisecond)
	case flow.Microseconds:
		return int64(time.Microsecond)
	}
	return 1
}
