package drill

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// The test binary is a process of a drill when this variable is set: it says its value and waits until it is ended.
const asChild = "WEIR_TEST_DRILL_CHILD"

func TestMain(m *testing.M) {
	if text := os.Getenv(asChild); text != "" {
		fmt.Fprintln(os.Stderr, text)
		select {}
	}
	os.Exit(m.Run())
}

func child(t *testing.T, f *fleet, text string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f.self = self
	p, err := f.start("child", []string{asChild + "=" + text})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.end)
	err = poll(t.Context(), patience, func() (bool, error) {
		_, _, ok := p.when(strings.Split(text, "\n")[0])
		return ok, nil
	}, "the child speaks")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRepeats: what processes say that they publish again is counted, by their names.
func TestRepeats(t *testing.T) {
	t.Parallel()
	f := &fleet{}
	p := child(t, f, "a sink is down; the run waits for it\nfailed; the run goes on from its last commit\nthe end")
	err := poll(t.Context(), patience, func() (bool, error) { _, _, ok := p.when("the end"); return ok, nil }, "all is said")
	if err != nil {
		t.Fatal(err)
	}
	if n, others := f.repeats("chi"), f.repeats("x-"); n != 2 || others != 0 {
		t.Errorf("%d epochs are published again, and %d of others", n, others)
	}
}

// TestProcesses: a process stands still, goes on and is ended by its id; its faults are read from what it says.
func TestProcesses(t *testing.T) {
	t.Parallel()
	if err := Supported(); err != nil {
		t.Skip(err)
	}
	f := &fleet{}
	p := child(t, f, `{"action":"stop","epoch":7,"failpoint":"store:commit"}`)
	if got, ok := p.fault(); !ok || got.Failpoint != "store:commit" || got.Action != "stop" || got.Epoch != 7 {
		t.Errorf("fault %+v, %v", got, ok)
	}
	if err := p.freeze(t.Context()); err != nil || !isStopped(p.pid) {
		t.Errorf("it does not stand still: %v", err)
	}
	if err := p.thaw(); err != nil {
		t.Fatal(err)
	}
	err := poll(t.Context(), patience, func() (bool, error) { return !isStopped(p.pid), nil }, "it goes on")
	if err != nil {
		t.Error(err)
	}
	f.end()
	if p.running() || p.code() != -1 || !strings.Contains(p.how(), "killed") {
		t.Errorf("after the end: %s", p.how())
	}
	if _, err := f.start("late", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a fleet that has ended starts a process: %v", err)
	}
}

// TestAStoppedProcessIsEndedToo: SIGKILL reaches one that stands still.
func TestAStoppedProcessIsEndedToo(t *testing.T) {
	t.Parallel()
	if err := Supported(); err != nil {
		t.Skip(err)
	}
	f := &fleet{}
	p := child(t, f, "hello")
	if err := p.freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.end()
	if p.running() {
		t.Error("it still runs")
	}
}

func TestEveryFailpointHasItsTurn(t *testing.T) {
	t.Parallel()
	for _, kind := range []control.StoreKind{control.StoreSQLite, control.StorePostgres} {
		d := &drill{Config: Config{Faults: 12}, kind: kind}
		points := d.points()
		for _, f := range actors.Failpoints() {
			if !slices.ContainsFunc(points, func(p string) bool { return failpointOf(p) == string(f) }) {
				t.Errorf("%s: %s is never killed", kind, f)
			}
		}
		in := map[string]int{}
		for _, one := range d.planned() {
			in[one.name]++
		}
		if len(in) != 12+lanes {
			t.Errorf("%s: the parts %v", kind, in)
		}
		kills, stops := map[string]bool{}, 0
		for _, m := range d.mishaps() {
			if m.action == "stop" {
				stops++
				continue
			}
			kills[failpointOf(m.point)] = true
		}
		if len(kills) != 12 || stops != 6 || !kills["store:commit"] || !kills["store:committed"] {
			t.Errorf("%s: kills %v, %d stops", kind, kills, stops)
		}
	}
}

// TestTheReaderSeesWhatGoesWrong: each wrong step of a journal is noted under the promise that it breaks.
func TestTheReaderSeesWhatGoesWrong(t *testing.T) {
	t.Parallel()
	at := func(epoch uint64, fence control.FenceToken, mark record.EventTime, next int64) control.RunState {
		s := control.RunState{Epoch: epoch, Fence: fence, Watermark: mark}
		s.Cuts = cutsAt(next)
		return s
	}
	for _, c := range []struct {
		name  string
		state control.RunState
		token control.FenceToken
		wrong string
	}{
		{"it advances", at(6, 2, 11, 51), 2, ""},
		{"it stands", at(5, 2, 10, 50), 2, ""},
		{"the epoch goes back", at(4, 2, 10, 50), 2, seeEpochs},
		{"the journal's token goes back", at(6, 1, 10, 50), 2, seeTokens},
		{"the lease's token goes back", at(6, 2, 10, 50), 1, seeTokens},
		{"the journal's token is ahead", at(6, 3, 10, 50), 2, seeTokens},
		{"the watermark goes back", at(6, 2, 9, 50), 2, seeNext},
		{"a position goes back", at(6, 2, 10, 49), 2, seeNext},
		{"a position is gone", control.RunState{Epoch: 6, Fence: 2, Watermark: 10}, 2, seeNext},
	} {
		w := &watcher{wrong: map[string][]string{}}
		s := &seen{next: map[int32]record.Position{}, watermark: record.NoTime}
		w.compare("r", s, at(5, 2, 10, 50), 2)
		w.compare("r", s, c.state, c.token)
		for _, kind := range seeing {
			if got := len(w.wrong[kind]) > 0; got != (kind == c.wrong) {
				t.Errorf("%s: %s: %v", c.name, kind, w.wrong[kind])
			}
		}
	}
}

func TestReports(t *testing.T) {
	t.Parallel()
	r := &Report{Store: "sqlite:x", Brokers: "b", Records: 299, TTL: 6 * time.Second, Figures: map[string]float64{"x_ms": 1.5},
		Checks:  []Check{{ID: "a.01", What: "w", Evidence: "e", Passed: true}, {ID: "a.02", What: "v", Evidence: "f"}},
		Planned: []Fault{{Part: "a", Kind: "SIGKILL", At: "outside", Epoch: 1, Fired: true}, {Part: "a", Kind: "SIGSTOP", At: "x"}}}
	text, err := record.AppendJSON(nil, r.Document())
	want := `{"brokers":"b","checks":[{"check":"w","evidence":"e","id":"a.01","passed":true},{"check":"v","evidence":"f","id":"a.02","passed":false}],"failed":1,` +
		`"faults":[{"at":"outside","epoch":1,"fired":true,"kind":"SIGKILL","part":"a"},{"at":"x","epoch":0,"fired":false,"kind":"SIGSTOP","part":"a"}],` +
		`"faults_fired":1,"faults_planned":2,"figures":{"x_ms":1.5},"format":"weir-drill/1","logs":null,"passed":1,"records":299,"store":"sqlite:x","took_ms":0,"ttl_ms":6000}`
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, text, want)
	}
	if got := r.Checks[1].String(); got != "FAIL  a.02         v: f" {
		t.Errorf("%q", got)
	}
}

func cutsAt(next int64) map[int32]partitions.Cut {
	return map[int32]partitions.Cut{0: {Partition: 0, Next: record.Offset(next)}}
}
