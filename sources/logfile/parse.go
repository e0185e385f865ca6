package logfile

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirstream/weir/record"
)

// parser reads the one form that an arrival's line can have: the keys are sorted, so what may come next is known. It is as strict as
// canonical JSON, except for the inside of the value, which it hands on as it is.
type parser struct {
	rest []byte
	err  error
}

var errForm = errors.New("not an arrival in canonical form")

// parseArrival reads a line into a. a's slices alias the line, but for text with escapes.
func parseArrival(line []byte, a *Arrival) error {
	p := parser{rest: line}
	*a = Arrival{}
	p.expect(arrivalStart)
	a.Time = p.time()
	p.expect(`,"event_id":`)
	a.EventID = p.text()
	if p.take(`,"failure_ms":`) {
		a.Failure = p.millis()
	}
	if p.take(`,"faults":[`) {
		a.Faults = p.kinds()
	}
	if p.expect(`,"key":`); !p.take("null") {
		a.Key = p.text()
	}
	p.expect(`,"n":`)
	a.N = p.integer()
	if p.take(`,"pause_ms":`) {
		a.Pause = p.millis()
	}
	p.expect(`,"type":"arrival","value":`)
	a.Value = p.value()
	return p.err
}

func (p *parser) fail(err error) {
	if p.err == nil {
		p.err, p.rest = err, nil
	}
}

func (p *parser) take(s string) bool {
	if len(p.rest) >= len(s) && string(p.rest[:len(s)]) == s {
		p.rest = p.rest[len(s):]
		return true
	}
	return false
}

func (p *parser) expect(s string) {
	if !p.take(s) {
		p.fail(fmt.Errorf("%w: expected %s", errForm, s))
	}
}

// time reads up to and with the closing quote.
func (p *parser) time() record.EventTime {
	i := bytes.IndexByte(p.rest, '"')
	if i < 0 {
		p.fail(errForm)
		return record.NoTime
	}
	text := p.rest[:i]
	t, err := record.ParseTime(text)
	switch {
	case err != nil:
		p.fail(fmt.Errorf("arrival_time: %w", err))
	case text[i-1] != 'Z' || text[10] != 'T' || t%record.EventTime(time.Millisecond) != 0 || len(text) > 20 && text[i-2] == '0':
		p.fail(errors.New("arrival_time is not in the canonical form of whole milliseconds, 2026-01-05T14:30:00.5Z"))
	}
	if p.err == nil {
		p.rest = p.rest[i+1:]
	}
	return t
}

// text reads a string. One without escapes aliases the line.
func (p *parser) text() []byte {
	if p.err != nil || len(p.rest) == 0 || p.rest[0] != '"' {
		p.fail(errForm)
		return nil
	}
	for i, escaped := 1, false; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '\\':
			escaped = true
			i++
		case c < 0x20:
			p.fail(errForm)
			return nil
		case c == '"':
			raw := p.rest[:i+1]
			p.rest = p.rest[i+1:]
			return p.unquote(raw, escaped)
		}
	}
	p.fail(errForm)
	return nil
}

func (p *parser) unquote(raw []byte, escaped bool) []byte {
	if !escaped {
		if !utf8.Valid(raw) {
			p.fail(errors.New("invalid UTF-8"))
		}
		return raw[1 : len(raw)-1 : len(raw)-1]
	}
	v, err := record.Decode(raw)
	text, _ := v.(string)
	if err != nil || !bytes.Equal(record.AppendString(nil, text), raw) {
		p.fail(errForm)
	}
	return []byte(text)
}

// integer reads a number that is not negative.
func (p *parser) integer() int64 {
	i := 0
	for i < len(p.rest) && p.rest[i]-'0' <= 9 {
		i++
	}
	n, err := strconv.ParseInt(string(p.rest[:i]), 10, 64)
	if err != nil || i > 1 && p.rest[0] == '0' {
		p.fail(fmt.Errorf("%w: expected an integer", errForm))
		return 0
	}
	p.rest = p.rest[i:]
	return n
}

func (p *parser) millis() time.Duration {
	n := p.integer()
	if p.err == nil && (n == 0 || n > maxMillis) {
		p.fail(fmt.Errorf("%w: a wait of %d ms", errForm, n))
	}
	return time.Duration(n) * time.Millisecond
}

// maxMillis is the longest duration that fits time.Duration.
const maxMillis = int64(1<<63-1) / int64(time.Millisecond)

func (p *parser) kinds() (s KindSet) {
	for last := -1; p.err == nil; {
		name := string(p.text())
		k, ok := ParseKind(name)
		if !ok || int(k) <= last {
			p.fail(fmt.Errorf("faults: %.40q is no kind of fault, or stands in the wrong place", name))
			return s
		}
		s |= 1 << k
		last = int(k)
		if p.take("]") {
			break
		}
		p.expect(",")
	}
	return s
}

// value is the rest of the line but for its closing brace.
func (p *parser) value() []byte {
	if p.err != nil {
		return nil
	}
	n := len(p.rest) - 1
	if n < 0 || p.rest[n] != '}' {
		p.fail(errForm)
		return nil
	}
	v := p.rest[:n:n]
	if string(v) == "null" {
		return nil
	}
	if !looksLikeObject(v) {
		p.fail(errors.New("the value is neither an object nor null"))
	}
	return v
}

// parseOther reads a line that is no arrival: a header, fault or end, as Header, Fault or End.
func parseOther(line []byte) (any, error) {
	v, err := record.Decode(line)
	if err != nil {
		var syntax *record.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("column %d: %s", syntax.Column, syntax.Msg)
		}
		return nil, err
	}
	doc, _ := v.(map[string]any)
	m := members{doc: doc}
	var out any
	var again []byte
	switch kind, _ := doc["type"].(string); kind {
	case "header":
		h := m.header()
		out = h
		again, err = appendHeader(nil, h)
	case "fault":
		f := m.fault()
		out = f
		again, err = appendFault(nil, &f)
	case "end":
		e := m.end()
		out = e
		again, err = appendEnd(nil, e)
	default:
		return nil, errors.New("not a line of an arrival log")
	}
	if m.err == nil && (err != nil || !bytes.Equal(again, line)) {
		m.err = fmt.Errorf("unknown or missing fields, or not in canonical form")
	}
	return out, m.err
}

// members takes typed members out of a decoded line. What is missing or of another type shows when the line is written again and
// compared; only what cannot be represented is an error here.
type members struct {
	doc map[string]any
	err error
}

func (m *members) text(key string) string {
	s, _ := m.doc[key].(string)
	return s
}

func (m *members) integer(key string) int64 {
	raw, ok := m.doc[key].(record.Integer)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 0 {
		m.err = fmt.Errorf("%s is out of range: %.40s", key, raw)
	}
	return n
}

func (m *members) millis(key string) time.Duration {
	n := m.integer(key)
	if n > maxMillis {
		m.err = fmt.Errorf("%s is out of range: %d", key, n)
	}
	return time.Duration(n) * time.Millisecond
}

func (m *members) header() Header {
	h := Header{SnapshotHash: m.text("snapshot_hash"), ScheduleHash: m.text("schedule_hash")}
	if format := m.text("format"); format != Format {
		m.err = fmt.Errorf("format %.40q; this version reads %q", format, Format)
	}
	if raw, ok := m.doc["seed"].(record.Integer); ok {
		var err error
		if h.Seed, err = strconv.ParseUint(string(raw), 10, 64); err != nil {
			m.err = fmt.Errorf("seed is out of range: %.40s", raw)
		}
	}
	fields, _ := m.doc["fields"].(map[string]any)
	in := members{doc: fields}
	h.Fields = Fields{ID: in.text("id"), Key: in.text("key"), Time: in.text("time"), Unit: in.text("unit")}
	return h
}

func (m *members) fault() Fault {
	f := Fault{N: m.integer("n"), EventID: m.text("event_id"), Count: m.integer("count"), Delay: m.millis("domain_ms"), Wait: m.millis("wall_ms")}
	f.Values, _ = m.doc["values"].(map[string]any)
	name := m.text("kind")
	var ok bool
	if f.Kind, ok = ParseKind(name); !ok {
		m.err = fmt.Errorf("unknown kind of fault %.40q; the kinds are %s", name, strings.Join(kindNames[:], ", "))
	}
	return f
}

func (m *members) end() End {
	return End{Arrivals: m.integer("arrivals"), FaultsApplied: m.integer("faults_applied"), LogHash: m.text("log_hash")}
}
