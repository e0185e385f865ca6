package partitions

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/weirstream/weir/record"
)

// TestScripts runs testdata/scripts/*.txt. Event times and watermarks are whole milliseconds. Commands:
//
//	flow        makes a machine of the flow in the input (id, key, time and operators are given unless it names its own)
//	deliver     delivers each line in a batch of its own and shows the verdict, what was set aside, decisions, rows and W
//	batch       delivers all lines in one batch
//	poll n=N    N empty polls
//	idle        IDLE_CONFIRMED with the input as its reason
//	close-gap key=K seq=N
//	end [through=T]
//	cut         takes a cut and shows what it puts and deletes
//	restore     gives the machine up and restores the last cut
//	state       shows status, counts and what is held
//
// A record is "ID KEY TIME X [rev=N] [seq=N] [arrival=T]" (X is a JSON value), or "raw TEXT", or "tombstone [ID]".
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "flow" {
				return s.flow(t, d)
			}
			return s.run(t, d)
		})
	})
}

type script struct {
	*harness
	// shown are the numbers of lines that were shown before.
	rowsShown, asideShown, decisionsShown int
}

func (s *script) flow(t *testing.T, d *datadriven.TestData) string {
	text := d.Input + "\n"
	if !strings.Contains(text, "operators:") {
		text += "operators: [{name: v, type: last, input: x}]\noutputs: [v]\n"
	}
	*s = script{harness: newHarness(planOf(t, text), 0)}
	return "ready\n"
}

func (s *script) run(t *testing.T, d *datadriven.TestData) string {
	var b strings.Builder
	show := func(err error) {
		if err != nil {
			fmt.Fprintf(&b, "%v\n", err)
		}
		s.show(&b)
	}
	switch d.Cmd {
	case "deliver":
		for line := range strings.Lines(d.Input) {
			before := s.m.Counts()
			err := s.tryDeliver(t, []record.Record{s.record(t, line, 0)})
			fmt.Fprintf(&b, "%s: %s\n", strings.TrimSpace(line), verdict(before, s.m.Counts()))
			show(err)
		}
	case "batch":
		var records []record.Record
		for line := range strings.Lines(d.Input) {
			records = append(records, s.record(t, line, int64(len(records))))
		}
		show(s.tryDeliver(t, records))
	case "poll":
		n := 1
		d.MaybeScanArgs(t, "n", &n)
		for range n {
			show(s.try(t, EmptyPoll{}))
		}
	case "idle":
		show(s.try(t, IdleConfirmed{Reason: strings.TrimSpace(d.Input)}))
	case "close-gap":
		var ev CloseGap
		d.ScanArgs(t, "key", &ev.Key)
		d.ScanArgs(t, "seq", &ev.Sequence)
		ev.Reason = strings.TrimSpace(d.Input)
		show(s.try(t, ev))
	case "end":
		ev := EndOfSource{Through: record.NoTime}
		if d.HasArg("through") {
			var n int64
			d.ScanArgs(t, "through", &n)
			ev.Through = millis(n)
		}
		show(s.try(t, ev))
	case "cut":
		s.showCut(&b, s.cut(t))
	case "restore":
		before := s.m
		s.crash(t)
		sameState(t, d.Pos, s.m.FullState(), before.FullState())
		b.WriteString("same\n")
	case "state":
		c := s.m.Counts()
		fmt.Fprintf(&b, "%s next=%s %s waiting=%d ids=%d keys=%d\n", s.m.Status(), s.m.Next(), s.w(), s.m.Waiting(), s.m.IDs(), s.m.Keys())
		fmt.Fprintf(&b, "records=%d consumed=%d filtered=%d omitted=%d duplicates=%d late=%d future=%d outputs=%d\n",
			c.Records, c.Consumed, c.Filtered, c.Omitted, c.Duplicates, c.Late, c.Future, c.Outputs)
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	return b.String()
}

func (s *script) w() string {
	if s.m.Watermark() == record.NoTime {
		return "W=none"
	}
	return fmt.Sprintf("W=%d", int64(s.m.Watermark())/1_000_000)
}

// show writes what is new since it was called last.
func (s *script) show(b *strings.Builder) {
	for _, x := range s.quarantine[s.asideShown:] {
		fmt.Fprintf(b, "  aside %s\n", x)
	}
	for _, x := range s.decisions[s.decisionsShown:] {
		fmt.Fprintf(b, "  decided %s\n", x)
	}
	for _, x := range s.rows[s.rowsShown:] {
		fmt.Fprintf(b, "  row %s\n", x)
	}
	s.asideShown, s.decisionsShown, s.rowsShown = len(s.quarantine), len(s.decisions), len(s.rows)
	fmt.Fprintf(b, "  %s\n", s.w())
}

func (s *script) showCut(b *strings.Builder, c Cut) {
	var put []string
	for _, x := range c.Put {
		put = append(put, x.Name)
	}
	slices.Sort(c.Delete)
	fmt.Fprintf(b, "next=%s finished=%v put=%v delete=%v\n", c.Next, c.Finished, put, c.Delete)
}

// verdict says which count a record raised.
func verdict(before, after Counts) string {
	names := []string{"records", "accepted", "filtered", "omitted", "duplicate", "late", "future"}
	for i, n := range after.fields() {
		if i > 0 && i < len(names) && *n > *before.fields()[i] {
			return names[i]
		}
	}
	return "not counted"
}

// record reads a line of a script; it stands n records after the machine's position.
func (s *script) record(t *testing.T, line string, n int64) record.Record {
	t.Helper()
	next, _ := s.m.Next().Int64()
	r := record.Record{Position: record.Offset(next + n), Arrival: record.NoTime, Key: []byte("k")}
	line = strings.TrimSpace(line)
	if text, ok := strings.CutPrefix(line, "raw"); ok {
		r.Value = []byte(strings.TrimPrefix(text, " "))
		return r
	}
	f := strings.Fields(line)
	if f[0] == "tombstone" {
		if len(f) > 1 {
			r.Headers = []record.Header{{Key: record.HeaderEventID, Value: []byte(f[1])}}
		}
		return r
	}
	value := fmt.Sprintf(`{"id":%q,"key":%q,"at":%s,"x":%s`, f[0], f[1], f[2], f[3])
	for _, extra := range f[4:] {
		name, v, _ := strings.Cut(extra, "=")
		if name == "arrival" {
			ms, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			r.Arrival = millis(ms)
			continue
		}
		value += fmt.Sprintf(`,%q:%s`, name, v)
	}
	r.Value = []byte(value + "}")
	return r
}
