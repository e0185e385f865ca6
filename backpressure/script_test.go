package backpressure

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weirstream/weir/record"
)

// TestScripts runs testdata/scripts/*.txt. Every line of a machine's script is at the next second; credits and skew have no time.
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				return s.new(t, d)
			case "run":
				return lines(t, d, s.line)
			case "history":
				return s.history()
			case "credits":
				return s.credits(t, d)
			case "skew":
				return skew(t, d)
			}
			t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
			return ""
		})
	})
}

type script struct {
	m   *Machine
	now time.Time
}

var gaugeNames = map[string]Gauge{"lag": UnfinishedLag, "bytes": BytesInFlight, "disk": FreeDisk, "buffer": ProcessBuffer, "lead": EventTimeLead}

// new GAUGE=(low,high)... history=N
func (s *script) new(t *testing.T, d *datadriven.TestData) string {
	c := Config{History: 100}
	for _, a := range d.CmdArgs {
		if a.Key == "history" {
			c.History = int(integer(t, a.Vals[0]))
			continue
		}
		b := Band{Low: integer(t, a.Vals[0]), High: integer(t, a.Vals[1])}
		switch gaugeNames[a.Key] {
		case UnfinishedLag:
			c.UnfinishedLag = b
		case BytesInFlight:
			c.BytesInFlight = b
		case FreeDisk:
			c.FreeDisk = b
		case ProcessBuffer:
			c.ProcessBuffer = b
		case EventTimeLead:
			c.EventTimeLead = b
		}
	}
	m, err := New(c)
	if err != nil {
		return err.Error()
	}
	s.m, s.now = m, time.Date(2026, 1, 5, 14, 30, 0, 0, time.UTC)
	return m.State().String()
}

func (s *script) line(t *testing.T, f []string) string {
	s.now = s.now.Add(time.Second)
	switch f[0] {
	case "block": // block REASON MEASURED THRESHOLD DETAIL
		tr, moved, err := s.m.Block(Reason(f[1]), integer(t, f[2]), integer(t, f[3]), strings.Join(f[4:], " "), s.now)
		return s.answer(tr, moved, err)
	case "recover": // recover REASON KIND WHO WHY
		f = append(f, "", "", "")[:max(len(f), 4)]
		tr, err := s.m.Recover(Choice{Settles: Reason(f[1]), Kind: ChoiceKind(f[2]), Who: f[3], Why: strings.TrimSpace(strings.Join(f[4:], " "))}, s.now)
		return s.answer(tr, true, err)
	case "why":
		out := s.m.State().String()
		for _, c := range s.m.Causes() {
			out += "\n  " + c.String()
		}
		return out
	}
	g, known := gaugeNames[f[0]]
	if !known {
		t.Fatalf("unknown line %q", f)
	}
	tr, moved := s.m.Measure(g, integer(t, f[1]), s.now)
	return s.answer(tr, moved, nil)
}

func (s *script) answer(tr Transition, moved bool, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case !moved:
		return s.m.State().String()
	}
	return tr.String()
}

func (s *script) history() string {
	kept, dropped := s.m.History()
	out := fmt.Sprintf("%d dropped\n", dropped)
	for _, tr := range kept {
		out += fmt.Sprintf("%s %s -> %s %s\n", tr.At.Format("15:04:05"), tr.From, tr.To, tr.Reason)
	}
	return out
}

// credits RECORDS BYTES, then lines take RECORDS BYTES, give RECORDS BYTES or reset.
func (s *script) credits(t *testing.T, d *datadriven.TestData) string {
	c := NewCredits(integer(t, d.CmdArgs[0].Key), integer(t, d.CmdArgs[1].Key))
	return lines(t, d, func(t *testing.T, f []string) string {
		ok := true
		switch f[0] {
		case "take":
			ok = c.Take(integer(t, f[1]), integer(t, f[2]))
		case "give":
			ok = c.Give(integer(t, f[1]), integer(t, f[2]))
		case "reset":
			c.Reset()
		default:
			t.Fatalf("unknown line %q", f)
		}
		r, b := c.Available()
		or, ob := c.Outstanding()
		return fmt.Sprintf("%v available %d/%d outstanding %d/%d", ok, r, b, or, ob)
	})
}

// skew BOUND, then lines PARTITION TIME|none reading|quiet; the answer names who is held.
func skew(t *testing.T, d *datadriven.TestData) string {
	s := NewSkew(time.Duration(integer(t, d.CmdArgs[0].Key)))
	highest := int32(-1)
	return lines(t, d, func(t *testing.T, f []string) string {
		p, at := int32(integer(t, f[0])), record.NoTime
		highest = max(highest, p)
		if f[1] != "none" {
			at = record.EventTime(integer(t, f[1]))
		}
		s.Update(p, at, f[2] == "reading")
		out := "held"
		for p := int32(0); p <= highest; p++ {
			if s.Hold(p) {
				out += fmt.Sprintf(" %d", p)
			}
		}
		if s.Slowest() == record.NoTime {
			return out + ", slowest none"
		}
		return fmt.Sprintf("%s, slowest %d", out, s.Slowest())
	})
}

func lines(t *testing.T, d *datadriven.TestData, do func(t *testing.T, f []string) string) string {
	var b strings.Builder
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		fmt.Fprintf(&b, "%s\n  %s\n", strings.TrimSpace(line), do(t, f))
	}
	return b.String()
}

func integer(t *testing.T, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
