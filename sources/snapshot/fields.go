package snapshot

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/record"
)

// Fields says where a row holds what every record has.
type Fields struct {
	// ID, Key and Time name the fields of the event id, the key and the event time, which is written in Unit.
	ID, Key, Time string
	Unit          flow.TimeUnit
	// Revision names the field of the revision number. Rows need not have it.
	Revision string
	// Text names further columns that CSV keeps as text, such as the field that a flow selects by.
	Text []string
}

// DefaultFields are event_id, instrument, event_time in RFC 3339, and revision.
func DefaultFields() Fields {
	return Fields{ID: "event_id", Key: "instrument", Time: "event_time", Unit: flow.RFC3339, Revision: "revision"}
}

// FieldsOf are the fields that a flow names.
func FieldsOf(p *flow.Plan) Fields {
	f := Fields{ID: p.IDField, Key: p.KeyField, Time: p.TimeField, Unit: p.TimeUnit, Revision: p.RevisionField}
	if f.Revision == "" {
		f.Revision = DefaultFields().Revision
	}
	if p.SelectField != "" {
		f.Text = []string{p.SelectField}
	}
	return f
}

var units = map[flow.TimeUnit]struct {
	name string
	of   time.Duration
}{
	flow.RFC3339:      {"rfc3339", 0},
	flow.Seconds:      {"s", time.Second},
	flow.Milliseconds: {"ms", time.Millisecond},
	flow.Microseconds: {"us", time.Microsecond},
	flow.Nanoseconds:  {"ns", time.Nanosecond},
}

// UnitName is how the unit of time is called in an arrival log: rfc3339, s, ms, us or ns.
func (f Fields) UnitName() string { return units[f.Unit].name }

// time reads an event time.
func (f Fields) time(field record.Field) (record.EventTime, error) {
	if f.Unit == flow.RFC3339 {
		if field.Kind != record.String {
			return record.NoTime, wrongKind(field, "an RFC 3339 time as a string")
		}
		return record.ParseTime(field.Raw)
	}
	if field.Kind != record.Number {
		return record.NoTime, wrongKind(field, "an integer ("+f.UnitName()+" since 1970)")
	}
	return record.TimeFromUnix(field.Raw, int64(units[f.Unit].of))
}

// text reads an event id or key.
func text(field record.Field) ([]byte, error) {
	if field.Kind != record.String && !field.IsInteger() {
		return nil, wrongKind(field, "a string or an integer")
	}
	return field.Raw, nil
}

func wrongKind(got record.Field, want string) error {
	switch {
	case got.Kind == record.Missing:
		return errors.New("is missing; every row needs " + want)
	case got.Kind == record.Number && !got.IsInteger():
		return errors.New("is a number with a point or an exponent, want " + want)
	}
	name := got.Kind.String()
	switch got.Kind {
	case record.String, record.Number:
		name = "a " + name
	case record.Object, record.Array:
		name = "an " + name
	}
	return fmt.Errorf("is %s, want %s", name, want)
}
