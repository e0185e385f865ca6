package replay

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
)

// ParseSchedule reads a fault schedule, strictly; file stands for it in messages. The error is a *ScheduleErrors with everything that
// is wrong in it, each with its line and column; JSON that cannot be read is one error.
func ParseSchedule(file string, src []byte) (*Schedule, error) {
	p := &scheduleParser{src: src, errs: ScheduleErrors{File: file}, line: 1, schedule: &Schedule{file: file}, seen: map[faultKey]int32{}}
	// The scanner checks the syntax of all of it, so that the rest can walk through without looking back.
	if err := record.NewScanner(nil).Scan(src, nil); err != nil {
		p.syntax(err)
	} else {
		p.document()
	}
	if err := p.errs.err(); err != nil {
		return nil, err
	}
	return p.schedule, nil
}

type scheduleParser struct {
	src      []byte
	errs     ScheduleErrors
	schedule *Schedule
	seen     map[faultKey]int32
	names    map[string]struct{}
	members  []scheduleMember
	entry    int // -1 outside of the list

	// line is that of the byte at counted, and lineStart where it starts.
	line, lineStart, counted int
}

// scheduleMember is a member of an object: its name, its value and where they stand.
type scheduleMember struct {
	name          string
	raw           []byte
	nameAt, rawAt int
}

func (p *scheduleParser) syntax(err error) {
	var s *record.SyntaxError
	if errors.As(err, &s) {
		p.errs.add(s.Line, s.Column, -1, s.Msg)
	} else {
		p.errs.add(1, 1, -1, err.Error())
	}
}

// place is the line and column of an offset. Offsets mostly grow, so that counting goes through the file once.
func (p *scheduleParser) place(at int) (line, column int) {
	if at < p.lineStart {
		p.line, p.lineStart, p.counted = 1, 0, 0
	}
	if at > p.counted {
		passed := p.src[p.counted:at]
		if n := bytes.Count(passed, []byte{'\n'}); n > 0 {
			p.line += n
			p.lineStart = p.counted + bytes.LastIndexByte(passed, '\n') + 1
		}
		p.counted = at
	}
	return p.line, at - p.lineStart + 1
}

func (p *scheduleParser) report(at int, format string, args ...any) {
	line, column := p.place(at)
	p.errs.add(line, column, p.entry, fmt.Sprintf(format, args...))
}

func (p *scheduleParser) document() {
	p.entry = -1
	at := skipSpace(p.src, 0)
	p.object(at)
	var faults *scheduleMember
	format := false
	for i, m := range p.members {
		switch m.name {
		case "format":
			format = true
			if text, ok := p.text(m.raw); !ok || text != ScheduleFormat {
				p.report(m.rawAt, "format is %.80s; this version reads %q", m.raw, ScheduleFormat)
			}
		case "seed":
			var err error
			if p.schedule.Seed, err = strconv.ParseUint(string(m.raw), 10, 64); err != nil {
				p.report(m.rawAt, "seed must be an integer between 0 and %d", uint64(math.MaxUint64))
			}
		case "faults":
			faults = &p.members[i]
		default:
			p.report(m.nameAt, "unknown field %.80q; a schedule has format, seed and faults", m.name)
		}
	}
	if !format {
		p.report(at, "the field \"format\" is missing: write \"format\": %q", ScheduleFormat)
	}
	switch {
	case faults == nil:
		p.report(at, "the field \"faults\" is missing: a list of entries")
	case faults.raw[0] != '[':
		p.report(faults.rawAt, "faults must be a list")
	default:
		p.list(faults.rawAt)
	}
}

// list reads the entries of the array at an offset.
func (p *scheduleParser) list(at int) {
	for i := skipSpace(p.src, at+1); p.src[i] != ']'; {
		p.entry = len(p.schedule.Faults)
		end := skipValue(p.src, i)
		f := Fault{}
		if p.src[i] != '{' {
			p.report(i, "an entry must be an object such as {\"event_id\": \"e1\", \"kind\": \"GAP\"}")
		} else {
			f.line, f.column = p.place(i)
			p.object(i)
			p.fault(&f, i)
		}
		p.schedule.Faults = append(p.schedule.Faults, f)
		if i = skipSpace(p.src, end); p.src[i] == ',' {
			i = skipSpace(p.src, i+1)
		}
	}
}

// object reads the members of the object at an offset.
func (p *scheduleParser) object(at int) {
	p.members = p.members[:0]
	if p.names == nil {
		p.names = map[string]struct{}{}
	}
	clear(p.names)
	for i := skipSpace(p.src, at+1); p.src[i] != '}'; {
		nameEnd := skipValue(p.src, i)
		name, _ := p.text(p.src[i:nameEnd])
		value := skipSpace(p.src, skipSpace(p.src, nameEnd)+1)
		end := skipValue(p.src, value)
		if _, twice := p.names[name]; twice {
			p.report(i, "the field %.80q stands here a second time", name)
		} else {
			p.names[name] = struct{}{}
			p.members = append(p.members, scheduleMember{name: name, raw: p.src[value:end], nameAt: i, rawAt: value})
		}
		if i = skipSpace(p.src, end); p.src[i] == ',' {
			i = skipSpace(p.src, i+1)
		}
	}
}

// fault reads an entry whose members were read, and which stands at an offset.
func (p *scheduleParser) fault(f *Fault, at int) {
	known := p.kind(f, at)
	hasID, hasParameter, before := false, false, len(p.errs.List)+p.errs.Omitted
	need := parameter(f.Kind)
	for _, m := range p.members {
		switch {
		case m.name == kindMember:
		case m.name == idMember:
			if f.EventID, hasID = p.text(m.raw); !hasID {
				hasID = true
				p.report(m.rawAt, "event_id must be a string")
			}
		case !known && isMember(m.name):
		case known && m.name == need:
			hasParameter = true
			p.parameter(f, m)
		case isMember(m.name):
			p.report(m.nameAt, "%s takes no %s", f.Kind, m.name)
		case f.Kind == logfile.Revision && known:
			p.value(f, m)
		default:
			p.report(m.nameAt, "unknown field %.80q", m.name)
		}
	}
	if !hasID {
		p.report(at, "event_id is missing")
	}
	if known && need != "" && !hasParameter {
		p.report(at, "%s needs %s", f.Kind, need)
	}
	if known && hasID && before == len(p.errs.List)+p.errs.Omitted {
		p.once(f, at)
	}
}

func (p *scheduleParser) kind(f *Fault, at int) (known bool) {
	for _, m := range p.members {
		if m.name != kindMember {
			continue
		}
		name, ok := p.text(m.raw)
		if ok {
			f.Kind, ok = logfile.ParseKind(name)
		}
		if !ok {
			p.report(m.rawAt, "unknown kind %.80s; the kinds are %s", m.raw, strings.Join(logfile.KindNames(), ", "))
		}
		return ok
	}
	p.report(at, "kind is missing; the kinds are %s", strings.Join(logfile.KindNames(), ", "))
	return false
}

// parameter reads the parameter that the fault's kind needs.
func (p *scheduleParser) parameter(f *Fault, m scheduleMember) {
	limit, least, what := int64(math.MaxInt64/time.Millisecond), int64(0), "whole number of milliseconds"
	if m.name == countMember {
		limit, least, what = MaxBurst, 1, "whole number"
	}
	if digits := bytes.TrimPrefix(m.raw, []byte("-")); digits[0]-'0' > 9 || bytes.ContainsAny(digits, ".eE") {
		p.report(m.rawAt, "%s must be a %s, not %.40s", m.name, what, m.raw)
		return
	}
	n, err := strconv.ParseInt(string(m.raw), 10, 64)
	switch {
	case m.raw[0] == '-' && string(m.raw) != "-0":
		p.report(m.rawAt, "%s must not be negative: %.40s", m.name, m.raw)
	case err != nil || n > limit || n < least:
		p.report(m.rawAt, "%s must be between %d and %d, not %.40s", m.name, least, limit, m.raw)
	case m.name == countMember:
		f.Count = n
	case m.name == domainMember:
		f.Delay = time.Duration(n) * time.Millisecond
	default:
		f.Wait = time.Duration(n) * time.Millisecond
	}
}

// value reads a value that a revision overrides.
func (p *scheduleParser) value(f *Fault, m scheduleMember) {
	v, err := record.Decode(m.raw)
	var problem string
	if err != nil {
		problem = fmt.Sprintf("the value of %.80q is no finite number", m.name)
	} else {
		problem = checkValue(m.name, v)
	}
	if problem != "" {
		p.report(m.rawAt, "%s: a revision overrides numbers", problem)
		return
	}
	if f.Values == nil {
		f.Values = map[string]any{}
	}
	f.Values[m.name] = v
}

// once reports a second fault of an event and kind.
func (p *scheduleParser) once(f *Fault, at int) {
	key := faultKey{f.EventID, f.Kind}
	if first, twice := p.seen[key]; twice {
		p.report(at, "%s", p.schedule.twice(int(first)))
		return
	}
	p.seen[key] = int32(p.entry)
}

// text is the text of a JSON string that the scanner accepted.
func (p *scheduleParser) text(raw []byte) (string, bool) {
	if raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	v, err := record.Decode(raw)
	s, ok := v.(string)
	return s, ok && err == nil
}

func skipSpace(src []byte, i int) int {
	for i < len(src) && (src[i] == ' ' || src[i] == '\n' || src[i] == '\t' || src[i] == '\r') {
		i++
	}
	return i
}

// skipValue is where the value at i ends, in JSON that the scanner accepted.
func skipValue(src []byte, i int) int {
	for depth := 0; ; {
		switch src[i] {
		case '"':
			for i++; src[i] != '"'; i++ {
				if src[i] == '\\' {
					i++
				}
			}
			i++
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\n', '\t', '\r':
			i++
			continue
		default:
			i += bytes.IndexAny(src[i:], ",]} \n\t\r")
		}
		if depth == 0 {
			return i
		}
	}
}
