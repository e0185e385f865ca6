package watermark

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/weirstream/weir/record"
)

// TestScripts runs testdata/*.txt. A script makes a partition (new) or a merge (new-merge) and feeds it lines (run); each line
// answers with what it returned and what changed. Times are whole seconds.
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "new":
				s.p = NewPartition(s.arg(t, d, "lateness"), s.arg(t, d, "hold"))
				if d.HasArg("idle-after") {
					var n int
					d.ScanArgs(t, "idle-after", &n)
					s.p.IdleAfterPolls(n)
				}
				return s.partition()
			case "new-merge":
				s.m = NewMerge(s.numbers(t, d))
				return s.merge()
			case "rescale":
				return s.rescale(t, d)
			case "run":
				return s.lines(t, d, s.line)
			case "merge":
				return s.lines(t, d, s.update)
			default:
				t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
				return ""
			}
		})
	})
}

type script struct {
	p *Partition
	m *Merge
}

func (s *script) arg(t *testing.T, d *datadriven.TestData, name string) time.Duration {
	var text string
	d.ScanArgs(t, name, &text)
	v, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return v
}

func (s *script) numbers(t *testing.T, d *datadriven.TestData) []int32 {
	var out []int32
	for _, a := range d.CmdArgs {
		n, err := strconv.ParseInt(a.Key, 10, 32)
		if err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		out = append(out, int32(n))
	}
	return out
}

func (s *script) lines(t *testing.T, d *datadriven.TestData, do func(t *testing.T, f []string) string) string {
	var b strings.Builder
	for line := range strings.Lines(d.Input) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		fmt.Fprintf(&b, "%-18s %s\n", strings.TrimSpace(line), do(t, f))
	}
	return b.String()
}

// line runs one line against the partition.
func (s *script) line(t *testing.T, f []string) string {
	switch f[0] {
	case "event": // event TIME: the trial of one record without a sequence number
		at := seconds(t, f[1])
		if s.p.IsLate(at) {
			s.p.Record()
			return "late; " + s.partition()
		}
		moved := s.p.Observe(at)
		s.p.Record()
		return fmt.Sprintf("moved=%v; %s", moved, s.partition())
	case "seq": // seq KEY NUMBER TIME: the trial of one record with a sequence number
		n, at := integer(t, f[2]), seconds(t, f[3])
		late := s.p.IsLate(at)
		out := changes(s.p.Sequence(f[1], n, at))
		if late {
			return "late; " + out + s.partition()
		}
		moved := s.p.Observe(at)
		s.p.Record()
		return fmt.Sprintf("moved=%v; %s%s", moved, out, s.partition())
	case "changes":
		return changes(s.p.Changes()) + s.partition()
	case "close": // close KEY NUMBER
		return fmt.Sprintf("%v; %s", s.p.CloseGap(f[1], integer(t, f[2])), s.partition())
	case "record":
		return fmt.Sprintf("%v; %s", s.p.Record(), s.partition())
	case "idle":
		return fmt.Sprintf("%v; %s", s.p.Idle(), s.partition())
	case "pause":
		return fmt.Sprintf("%v; %s", s.p.Pause(), s.partition())
	case "resume":
		return fmt.Sprintf("%v; %s", s.p.Resume(), s.partition())
	case "finish":
		return fmt.Sprintf("%v; %s", s.p.Finish(), s.partition())
	case "empty-poll":
		return fmt.Sprintf("propose-idle=%v; %s", s.p.EmptyPoll(), s.partition())
	case "restart": // the state goes through Snapshot and Restore into a new partition
		q := NewPartition(time.Duration(s.p.lateness), time.Duration(s.p.gapHold))
		q.IdleAfterPolls(s.p.idleAfter)
		if err := q.Restore(s.p.Snapshot(nil)); err != nil {
			t.Fatal(err)
		}
		s.p = q
		return s.partition()
	}
	t.Fatalf("unknown line %q", f)
	return ""
}

// update runs one line against the merge: PARTITION STATUS TIME, or add PARTITION, or restart.
func (s *script) update(t *testing.T, f []string) string {
	switch f[0] {
	case "add":
		return fmt.Sprintf("%v; %s", s.m.Add(int32(integer(t, f[1]))), s.merge())
	case "restart":
		m := NewMerge(nil)
		if err := m.Restore(s.m.Snapshot(nil)); err != nil {
			t.Fatal(err)
		}
		s.m = m
		return s.merge()
	}
	for st := Active; st <= Finished; st++ {
		if st.String() == f[1] {
			w, moved := s.m.Update(int32(integer(t, f[0])), st, seconds(t, f[2]))
			return fmt.Sprintf("moved=%v; merged=%s", moved, clock(w))
		}
	}
	t.Fatalf("unknown status in %q", f)
	return ""
}

// rescale hands the merge's partitions to two workers, splits as given, and joins them again: the whole must be what it was.
func (s *script) rescale(t *testing.T, d *datadriven.TestData) string {
	var parts []*Merge
	var b strings.Builder
	for _, a := range d.CmdArgs {
		var own []int32
		for _, v := range a.Vals {
			own = append(own, int32(integer(t, v)))
		}
		m, err := Rescale(own, s.m)
		if err != nil {
			return err.Error()
		}
		parts = append(parts, m)
		fmt.Fprintf(&b, "%s: %s\n", a.Key, (&script{m: m}).merge())
	}
	var all []int32
	s.m.Each(func(p int32, _ Status, _ record.EventTime) bool { all = append(all, p); return true })
	whole, err := Rescale(all, parts...)
	if err != nil {
		return b.String() + err.Error()
	}
	s.m = whole
	return b.String() + "joined: " + s.merge()
}

func (s *script) partition() string {
	out := fmt.Sprintf("%s max=%s W=%s", s.p.Status(), clock(s.p.MaxEventTime()), clock(s.p.Watermark()))
	if g, open := s.p.OldestGap(); open {
		out += fmt.Sprintf(" gaps=%d oldest=%s:%d-%d@%s", s.p.OpenGaps(), g.Key, g.First, g.Last, clock(g.Anchor))
	}
	return out
}

func (s *script) merge() string {
	out := "merged=" + clock(s.m.Watermark())
	s.m.Each(func(p int32, st Status, w record.EventTime) bool {
		out += fmt.Sprintf(" %d:%s@%s", p, st, clock(w))
		return true
	})
	return out
}

func changes(cs []GapChange) string {
	out := ""
	for _, c := range cs {
		out += fmt.Sprintf("%s %s:%d-%d@%s; ", c.Kind, c.Key, c.First, c.Last, clock(c.Anchor))
	}
	return out
}

func integer(t *testing.T, text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// seconds reads a time in whole seconds; none, first and max are the borders of event time.
func seconds(t *testing.T, text string) record.EventTime {
	switch text {
	case "none":
		return record.NoTime
	case "first":
		return record.NoTime + 1
	case "max":
		return record.MaxTime
	}
	return record.EventTime(integer(t, text)) * record.EventTime(time.Second)
}

func clock(at record.EventTime) string {
	switch at {
	case record.NoTime:
		return "none"
	case record.NoTime + 1:
		return "first"
	case record.MaxTime:
		return "max"
	}
	return time.Duration(at).String()
}
