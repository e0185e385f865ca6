package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// The flow of the poison drill, and one that mends it: it asks for no kind and reads no revision.
const (
	poisonFlow = `flow: weir/1
name: poison
id: event_id
key: instrument
time: event_time
lateness: LATENESS
max_future_skew: 1h
select: {field: kind, equals: trade}
revision: rev
operators: [{name: ema3, type: ema, input: close, period: 3}]
outputs: [ema3]
limits: {reorder: 2000000, ids: 3000000}
`
	poisonCures = "select: {field: kind, equals: trade}\nrevision: rev\n"
)

var poisonBase = time.Date(2026, 1, 5, 14, 0, 0, 0, time.UTC)

func poisonTime(n int) time.Time { return poisonBase.Add(time.Duration(n) * time.Millisecond) }

// goodEvent is the n-th event; more are further fields.
func goodEvent(n int, id, more string) string {
	return fmt.Sprintf(`{"close":%d.25,"event_id":"%s%d","event_time":%q,"instrument":"k%02d"%s}`, n%997, id, n, poisonTime(n).Format(time.RFC3339Nano), n%50, more)
}

const tradeKind = `,"kind":"trade"`

// poisonKind makes what cannot be processed out of a good event.
type poisonKind struct {
	name, reason string
	value        func(n int) []byte
	// mended: the flow that mends can read it.
	mended bool
}

// replaced is a good event with a piece replaced.
func replaced(from, to string) func(n int) []byte {
	return func(n int) []byte {
		v := goodEvent(n, "p", tradeKind)
		out := strings.Replace(v, from, to, 1)
		if out == v {
			panic("nothing was replaced: " + from)
		}
		return []byte(out)
	}
}

// field is a good event whose field has another JSON value, or none when that is "".
func field(name, json string) func(n int) []byte {
	return func(n int) []byte {
		v := goodEvent(n, "p", tradeKind)
		from := strings.Index(v, `"`+name+`":`)
		to := from + strings.IndexAny(v[from:], ",}")
		if json != "" {
			return []byte(v[:from] + `"` + name + `":` + json + v[to:])
		}
		return []byte(v[:from] + `"none":0` + v[to:])
	}
}

func whole(text string) func(int) []byte { return func(int) []byte { return []byte(text) } }

func moved(by time.Duration) func(n int) []byte {
	return func(n int) []byte {
		at := poisonTime(n).Format(time.RFC3339Nano)
		return []byte(strings.Replace(goodEvent(n, "p", tradeKind), at, poisonTime(n).Add(by).Format(time.RFC3339Nano), 1))
	}
}

func marked(more string) func(n int) []byte {
	return func(n int) []byte { return []byte(goodEvent(n, "p", more)) }
}

// poisonKinds are 40 ways of being bad.
var poisonKinds = []poisonKind{
	{"no value", partitions.ReasonTombstone, func(int) []byte { return nil }, false},
	{"late", partitions.ReasonLate, moved(-24 * time.Hour), false},
	{"of the future", partitions.ReasonFuture, moved(48 * time.Hour), false},
	{"of another time zone", partitions.ReasonFuture, moved(9 * time.Hour), false},
	{"empty", partitions.ReasonUnreadable, func(int) []byte { return []byte{} }, false},
	{"null", partitions.ReasonUnreadable, whole("null"), false},
	{"a number", partitions.ReasonUnreadable, whole("17"), false},
	{"a string", partitions.ReasonUnreadable, whole(`"17"`), false},
	{"a list", partitions.ReasonUnreadable, whole(`[{"event_id":"p"}]`), false},
	{"text", partitions.ReasonUnreadable, whole("EURUSD 1.0723"), false},
	{"bytes", partitions.ReasonUnreadable, whole("\x0a\x05EURUSD\x11\x00\x00\xff"), false},
	{"compressed", partitions.ReasonUnreadable, whole("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"), false},
	{"a byte order mark", partitions.ReasonUnreadable, replaced("{", "\xef\xbb\xbf{"), false},
	{"single quotes", partitions.ReasonUnreadable, replaced(`"close"`, `'close'`), false},
	{"cut short", partitions.ReasonUnreadable, func(n int) []byte { v := goodEvent(n, "p", tradeKind); return []byte(v[:len(v)/2]) }, false},
	{"two documents", partitions.ReasonUnreadable, replaced("}", "}{}"), false},
	{"a comma too many", partitions.ReasonUnreadable, replaced("}", ",}"), false},
	{"a key twice", partitions.ReasonUnreadable, replaced(`{"close"`, `{"close":1,"close"`), false},
	{"not UTF-8", partitions.ReasonUnreadable, replaced(`"p`, "\"\xff\xfe"), false},
	{"half a surrogate", partitions.ReasonUnreadable, replaced(`"p`, `"\ud83d`), false},
	{"a raw control character", partitions.ReasonUnreadable, replaced(`"p`, "\"\x01"), false},
	{"a wrong escape", partitions.ReasonUnreadable, replaced(`"p`, `"\x41`), false},
	{"no id", partitions.ReasonUnreadable, field("event_id", ""), false},
	{"a null id", partitions.ReasonUnreadable, field("event_id", "null"), false},
	{"an empty id", partitions.ReasonUnreadable, field("event_id", `""`), false},
	{"a huge id", partitions.ReasonUnreadable, field("event_id", "1e400"), false},
	{"no key", partitions.ReasonUnreadable, field("instrument", ""), false},
	{"a key that is a list", partitions.ReasonUnreadable, field("instrument", "[]"), false},
	{"no time", partitions.ReasonUnreadable, field("event_time", ""), false},
	{"a time that is no number", partitions.ReasonUnreadable, field("event_time", "NaN"), false},
	{"a time in milliseconds", partitions.ReasonUnreadable, field("event_time", "1767621600000"), false},
	{"a time without zone", partitions.ReasonUnreadable, replaced(`Z"`, `"`), false},
	{"a month 13", partitions.ReasonUnreadable, replaced("2026-01", "2026-13"), false},
	{"a price that is text", partitions.ReasonUnreadable, field("close", `"1.5"`), false},
	{"a kind that is a number", partitions.ReasonUnreadable, marked(`,"kind":7.5`), true},
	{"no kind", partitions.ReasonUnreadable, marked(""), true},
	{"a kind that is a document", partitions.ReasonUnreadable, marked(`,"kind":{"is":"trade"}`), true},
	{"a negative revision", partitions.ReasonUnreadable, marked(tradeKind + `,"rev":-1`), true},
	{"half a revision", partitions.ReasonUnreadable, marked(tradeKind + `,"rev":0.5`), true},
	{"a revision that is text", partitions.ReasonUnreadable, marked(tradeKind + `,"rev":"0"`), true},
}

// poison is a record that cannot be processed, and which of all records it is.
type poison struct {
	kind *poisonKind
	n    int
	record.Record
}

// poisonAt is the poison behind the n-th event. Its headers have a name twice, one without a value, and bytes.
func poisonAt(n, number int) poison {
	k := &poisonKinds[number%len(poisonKinds)]
	at := record.EventTime(poisonTime(n).UnixNano())
	r := record.Record{Arrival: at, Key: []byte(fmt.Sprintf("k%02d", n%50)), Value: k.value(n), Headers: []record.Header{
		{Key: "number", Value: fmt.Append(nil, number)}, {Key: "twice", Value: []byte{0xff, 0}}, {Key: "twice", Value: []byte{}}, {Key: "none"}}}
	return poison{k, n, r}
}
