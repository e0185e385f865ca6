package flow_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/flow"
)

// model is a flow before it is spelled: what it means, and its name and limits.
type model struct {
	name                        string
	selectField                 string
	selectValues                []string
	id, key, timeField, unit    string
	revision, sequence          string
	lateness, skew, horizon     time.Duration // skew 0 is off
	gapHold, every              time.Duration
	revisable                   time.Duration // 0 is no revisions
	silent                      bool          // revisions are not published
	history                     int
	hold                        int // 0 is no key held
	idle                        int
	operators                   []operatorModel
	outputs                     []outputModel
	ids, keys, reorder, ticking int
}

type operatorModel struct {
	name, typ, field, from string
	period                 int
	gap                    string
}

type outputModel struct{ name, from string }

// generateModel makes a model at random that breaks no rule.
func generateModel(rng *rand.Rand) *model {
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	length := func() time.Duration {
		return time.Duration(1+rng.IntN(1000)) * []time.Duration{1, time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour}[rng.IntN(6)]
	}
	m := &model{
		name: pick("a", "prices-1", "7", "x.y_z"), id: "id", key: pick("instrument", "Key of it", "k/é"), timeField: "t",
		unit: pick("rfc3339", "s", "ms", "us", "ns"), skew: 24 * time.Hour, horizon: time.Hour,
		ids: 1 + rng.IntN(1000), keys: 1 + rng.IntN(1000), reorder: 1 + rng.IntN(1000), ticking: 1_000_000,
	}
	if rng.IntN(2) == 0 {
		m.selectField = pick("kind", "instrument")
		m.selectValues = []string{"1", "b c", "0", "-17", "true", "1.0", ""}[rng.IntN(4):][:1+rng.IntN(3)]
	}
	if rng.IntN(2) == 0 {
		m.lateness, m.horizon = length(), length()
	}
	if rng.IntN(2) == 0 {
		m.skew = time.Duration(rng.IntN(2)) * length()
	}
	if rng.IntN(2) == 0 {
		m.revision = "rev"
		if rng.IntN(2) == 0 {
			m.revisable, m.silent, m.history = 1+time.Duration(rng.Int64N(int64(m.horizon))), rng.IntN(2) == 0, 1+rng.IntN(1000)
		}
	}
	if rng.IntN(2) == 0 {
		m.sequence, m.gapHold = "seq", length()
	}
	if rng.IntN(2) == 0 {
		m.every = length()
	}
	if m.revision == "" && m.every == 0 && rng.IntN(2) == 0 {
		m.hold = []int{flow.DefaultHoldKey, 1 + rng.IntN(1000)}[rng.IntN(2)]
	}
	m.idle = rng.IntN(3)
	m.generateOperators(rng)
	return m
}

// generateOperators makes a chain or forest of operators that all feed an output.
func (m *model) generateOperators(rng *rand.Rand) {
	n := 1 + rng.IntN(4)
	for i := range n {
		o := operatorModel{name: string(rune('p'-i)) + strconv.Itoa(i), typ: []string{"ema", "sma", "last"}[rng.IntN(3)]}
		if i > 0 && rng.IntN(2) == 0 {
			o.from = m.operators[rng.IntN(i)].name
		} else {
			o.field = []string{"close", "open price", "0"}[rng.IntN(3)]
		}
		if o.typ != "last" {
			o.period, o.gap = 1+rng.IntN(20), []string{"reject", "hold"}[rng.IntN(2)]
		}
		m.operators = append(m.operators, o)
		m.outputs = append(m.outputs, outputModel{name: []string{o.name, "out_" + o.name}[rng.IntN(2)], from: o.name})
	}
}

// pair is a field of a document, fields a mapping in some order.
type pair struct {
	key   string
	value any
}
type fields []pair

// spell writes the model as a document in one of the many ways that mean the same.
func (m *model) spell(rng *rand.Rand) string {
	s := speller{rng}
	return s.document(m.fields(s))
}

// spellJSON is spell, in JSON.
func (m *model) spellJSON(rng *rand.Rand) string {
	var b strings.Builder
	s := speller{rng}
	s.json(&b, m.fields(s))
	return b.String()
}

// fields are the fields of a document, in some order.
func (m *model) fields(s speller) fields {
	f := fields{{"flow", "weir/1"}, {"name", m.name}, {"id", m.id}, {"key", m.key}, {"time", s.time(m)}}
	optional := func(key string, standard bool, value any) {
		if !standard || s.coin() {
			f = append(f, pair{key, value})
		}
	}
	optional("lateness", m.lateness == 0, s.duration(m.lateness))
	optional("max_future_skew", m.skew == 24*time.Hour, s.skew(m))
	optional("dedupe", m.horizon == time.Hour, fields{{"horizon", s.duration(m.horizon)}})
	optional("clock", m.every == 0, s.clock(m))
	optional("idle", m.idle == 0, fields{{"after_polls", m.idle}})
	if m.selectField != "" {
		f = append(f, pair{"select", s.selection(m)})
	}
	if m.revision != "" {
		f = append(f, pair{"revision", m.revision})
	}
	if m.hold == flow.DefaultHoldKey && s.coin() {
		f = append(f, pair{"hold_key", true})
	} else if m.hold > 0 {
		f = append(f, pair{"hold_key", fields{{"records", m.hold}}})
	} else if s.coin() {
		f = append(f, pair{"hold_key", false})
	}
	if m.revisable > 0 {
		revisions := fields{{"horizon", s.duration(m.revisable)}}
		if m.silent || s.coin() {
			revisions = append(revisions, pair{"publish", !m.silent})
		}
		f = append(f, pair{"revisions", s.shuffle(revisions)})
	}
	if m.sequence != "" {
		f = append(f, pair{"sequence", s.shuffle(fields{{"field", m.sequence}, {"gap_hold", s.duration(m.gapHold)}})})
	}
	limits := fields{{"ids", m.ids}, {"keys", m.keys}, {"reorder", m.reorder}}
	if m.ticking != flow.DefaultTicks || s.coin() {
		limits = append(limits, pair{"ticks", m.ticking})
	}
	if m.revisable > 0 {
		limits = append(limits, pair{"history", m.history})
	}
	f = append(f, pair{"limits", s.shuffle(limits)}, pair{"operators", s.operators(m)}, pair{"outputs", s.outputs(m)})
	return s.shuffle(f)
}

type speller struct{ rng *rand.Rand }

func (s speller) coin() bool { return s.rng.IntN(2) == 0 }

func (s speller) shuffle(f fields) fields {
	s.rng.Shuffle(len(f), func(i, j int) { f[i], f[j] = f[j], f[i] })
	return f
}

func (s speller) time(m *model) any {
	if m.unit == "rfc3339" {
		if s.coin() {
			return m.timeField
		}
		if s.coin() {
			return fields{{"field", m.timeField}}
		}
	}
	return s.shuffle(fields{{"field", m.timeField}, {"unit", m.unit}})
}

func (s speller) skew(m *model) any {
	if m.skew == 0 {
		return "off"
	}
	return s.duration(m.skew)
}

func (s speller) clock(m *model) any {
	if m.every == 0 {
		return "event"
	}
	return fields{{"every", s.duration(m.every)}}
}

// duration spells a duration in whole units, in one unit, with a fraction, or in parts.
func (s speller) duration(d time.Duration) string {
	switch s.rng.IntN(5) {
	case 0:
		return fmt.Sprintf("%dns", d)
	case 1:
		return strings.TrimRight(fmt.Sprintf("%d.%09d", d/time.Second, d%time.Second), "0") + "0s"
	case 2:
		return fmt.Sprintf("%dns%dus%dµs", d%time.Microsecond, d/time.Microsecond/3, d/time.Microsecond-d/time.Microsecond/3)
	case 3:
		return d.String() // as Go spells it
	}
	return flow.FormatDuration(d)
}

func (s speller) selection(m *model) any {
	values := make([]any, len(m.selectValues))
	for i, v := range m.selectValues {
		values[i] = v
		if n, err := strconv.Atoi(v); err == nil && s.coin() {
			values[i] = n
		}
	}
	s.rng.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
	if len(values) == 1 && s.coin() {
		return s.shuffle(fields{{"field", m.selectField}, {"equals", values[0]}})
	}
	return s.shuffle(fields{{"field", m.selectField}, {"in", values}})
}

func (s speller) operators(m *model) any {
	out := make([]any, len(m.operators))
	for i, o := range m.operators {
		var input any = o.field
		if o.from != "" {
			input = fields{{"operator", o.from}}
		} else if s.coin() {
			input = fields{{"field", o.field}}
		}
		f := fields{{"name", o.name}, {"type", o.typ}, {"input", input}}
		if o.period > 0 {
			f = append(f, pair{"period", o.period})
		}
		if o.gap == "hold" || o.gap == "reject" && s.coin() {
			f = append(f, pair{"gap", o.gap})
		}
		out[i] = s.shuffle(f)
	}
	s.rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func (s speller) outputs(m *model) any {
	out := make([]any, len(m.outputs))
	for i, o := range m.outputs {
		if out[i] = s.shuffle(fields{{"name", o.name}, {"from", o.from}}); o.name == o.from && s.coin() {
			out[i] = o.name
		}
	}
	return out
}

// document writes a mapping as JSON, or as YAML in block or flow style with comments.
func (s speller) document(f fields) string {
	var b strings.Builder
	if s.coin() {
		s.json(&b, f)
		return b.String()
	}
	b.WriteString([]string{"", "---\n", "# a flow\n\n", "\ufeff"}[s.rng.IntN(4)])
	s.block(&b, f, 0)
	return b.String()
}

func (s speller) json(b *strings.Builder, v any) {
	gap := func() { b.WriteString([]string{"", " ", "\n\t", "\r\n"}[s.rng.IntN(4)]) }
	gap()
	switch v := v.(type) {
	case fields:
		b.WriteByte('{')
		for i, p := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			s.json(b, p.key)
			b.WriteByte(':')
			s.json(b, p.value)
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, item := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			s.json(b, item)
		}
		b.WriteByte(']')
	case string:
		b.WriteString(s.jsonString(v))
	default:
		fmt.Fprint(b, v)
	}
	gap()
}

// jsonString escapes characters at random, as JSON allows it.
func (s speller) jsonString(v string) string {
	q, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var b strings.Builder
	for _, r := range string(q) {
		switch {
		case r == '/' && s.coin():
			b.WriteString(`\/`)
		case r != '"' && r != '\\' && s.rng.IntN(5) == 0:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// block writes a mapping in block style at an indentation.
func (s speller) block(b *strings.Builder, f fields, indent int) {
	pad := strings.Repeat(" ", indent)
	for _, p := range f {
		if s.rng.IntN(5) == 0 {
			b.WriteString(pad + "# why: [not]\n\n")
		}
		b.WriteString(pad + s.scalar(p.key) + ":")
		switch v := p.value.(type) {
		case fields:
			if s.coin() {
				b.WriteString("\n")
				s.block(b, v, indent+2)
				continue
			}
		case []any:
			if s.coin() {
				b.WriteString("\n")
				for _, item := range v {
					b.WriteString(pad + "- ")
					s.inline(b, item)
					b.WriteString("\n")
				}
				continue
			}
		}
		b.WriteString(" ")
		s.inline(b, p.value)
		b.WriteString([]string{"\n", "  # so\n", "\r\n"}[s.rng.IntN(3)])
	}
}

// inline writes a value in flow style.
func (s speller) inline(b *strings.Builder, v any) {
	switch v := v.(type) {
	case fields:
		b.WriteString("{")
		for i, p := range v {
			b.WriteString([]string{"", ", "}[min(i, 1)] + s.scalar(p.key) + ": ")
			s.inline(b, p.value)
		}
		b.WriteString("}")
	case []any:
		b.WriteString("[ ")
		for i, item := range v {
			b.WriteString([]string{"", ","}[min(i, 1)])
			s.inline(b, item)
		}
		b.WriteString("]")
	case string:
		b.WriteString(s.scalar(v))
	default:
		fmt.Fprint(b, v)
	}
}

// scalar writes a text plain where that is safe, or in either kind of quotes.
func (s speller) scalar(v string) string {
	plain := v != "" && v != "true" && !strings.ContainsAny(v[:1], "-0123456789") && !strings.ContainsAny(v, ":#,[]{}\"'\\")
	switch {
	case plain && s.coin():
		return v
	case s.coin():
		return "'" + v + "'"
	}
	return strconv.Quote(v)
}

// clone copies a model so that it can be changed.
func (m *model) clone() *model {
	c := *m
	c.selectValues = slices.Clone(m.selectValues)
	c.operators = slices.Clone(m.operators)
	c.outputs = slices.Clone(m.outputs)
	return &c
}
