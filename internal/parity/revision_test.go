package parity

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/replay"
)

// smallFlow names no field of a revision number.
const smallFlow = `flow: weir/1
name: small
id: event_id
key: instrument
time: {field: event_time, unit: rfc3339}
lateness: 1m
dedupe: {horizon: 1h}
operators: [{name: l, type: last, input: close}]
outputs: [l]
`

const smallEvent = `{"close":1.0,"event_id":"a","event_time":"2026-01-05T14:30:00Z","instrument":"1","venue":1}
`

func smallConfig(t *testing.T, flowSrc, events, schedule string) Config {
	t.Helper()
	dir := t.TempDir()
	plan, err := flow.Parse("flow.yaml", []byte(flowSrc), nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "events")
	if err := os.WriteFile(path, []byte(events), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Plan: plan, Snapshot: path, Partitions: 3, Dir: dir, Stream: ViaLog}
	if schedule != "" {
		if cfg.Schedule, err = replay.ParseSchedule("faults.json", []byte(`{"format":"fault-schedule/1","seed":7,"faults":[`+schedule+`]}`)); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

// TestARevisionInThePlaceOfItsEventExplains: also where the flow names no revision number, so that the stream cannot record that it
// took in a revision.
func TestARevisionInThePlaceOfItsEventExplains(t *testing.T) {
	t.Parallel()
	const (
		delay      = `{"event_id":"a","kind":"DELAY","domain_ms":2000}`
		gap        = `{"event_id":"a","kind":"GAP"}`
		revision   = `{"event_id":"a","kind":"REVISION","domain_ms":1000,"close":9}`
		elsewhere  = `{"event_id":"a","kind":"REVISION","domain_ms":1000,"close":9,"venue":2}`
		unreadable = `{"event_id":"a","kind":"REVISION","domain_ms":1000,"venue":2.5}`
	)
	numbered := smallFlow + "revision: revision\n"
	chosen := smallFlow + "select: {field: venue, in: [\"1\"]}\n"
	revised, lost := partitions.ReasonRevised, partitions.ReasonTombstone
	for _, test := range []struct {
		name, flow string
		faults     []string
		verdict    Verdict
		value      any // of the stream
		explained  []string
	}{
		{"before the event", smallFlow, []string{delay, revision}, EqualExplained, 9.0, []string{revised}},
		{"before the event, numbered", numbered, []string{delay, revision}, EqualExplained, 9.0, []string{revised}},
		{"of a lost event", smallFlow, []string{gap, revision}, EqualExplained, 9.0, []string{lost, revised}},
		{"of a lost event, numbered", numbered, []string{gap, revision}, EqualExplained, 9.0, []string{lost, revised}},
		{"after the event", smallFlow, []string{revision}, EqualToBatch, 1.0, nil},
		{"not selected, so that the event counts", chosen, []string{delay, elsewhere}, EqualToBatch, 1.0, nil},
		{"not selected, of a lost event", chosen, []string{gap, elsewhere}, EqualExplained, nil, []string{lost}},
		{"unreadable, so that the event counts", chosen, []string{delay, unreadable}, EqualToBatch, 1.0, nil},
	} {
		// A second event is lost, so that batch differs and every fate has to be found out.
		for _, other := range []bool{false, true} {
			events, faults, verdict, explained := smallEvent, test.faults, test.verdict, test.explained
			if other {
				events += `{"close":5.0,"event_id":"b","event_time":"2026-01-05T14:30:30Z","instrument":"2","venue":1}` + "\n"
				faults, verdict = append(slices.Clone(faults), `{"event_id":"b","kind":"GAP"}`), EqualExplained
				explained = append(slices.Clone(explained), lost)
				if test.name == "unreadable, so that the event counts" {
					explained = append(explained, partitions.ReasonUnreadable)
				}
				if strings.HasPrefix(test.name, "after the event") {
					explained = []string{lost}
				}
			}
			r, err := Run(context.Background(), smallConfig(t, test.flow, events, strings.Join(faults, ",")))
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			var reasons []string
			for _, x := range r.Explained {
				reasons = append(reasons, x.Reason)
				if x.Reason == revised && (x.EventID != "a" || x.Detail == "") {
					t.Errorf("%s: %+v", test.name, x)
				}
			}
			slices.Sort(reasons)
			slices.Sort(explained)
			var value any
			if len(r.Stream.Values) > 0 {
				value = r.Stream.Values[0]
			}
			if r.Verdict != verdict || value != test.value || !slices.Equal(reasons, explained) {
				t.Errorf("%s, other %v: %s %v, value %v, explained by %v, want %s, %v, %v", test.name, other, r.Verdict, r.Reasons, value, reasons, verdict, test.value, explained)
			}
		}
	}
}

// TestALateRevisionOfALostEventIsNoReplacement: the first delivery that could be taken part in was late, so that the event is dropped.
func TestALateRevisionOfALostEventIsNoReplacement(t *testing.T) {
	t.Parallel()
	events := smallEvent + `{"close":5.0,"event_id":"b","event_time":"2026-01-05T14:40:00Z","instrument":"1","venue":1}` + "\n"
	faults := `{"event_id":"a","kind":"GAP"},{"event_id":"a","kind":"REVISION","domain_ms":700000,"close":9}`
	r, err := Run(context.Background(), smallConfig(t, smallFlow, events, faults))
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict != EqualExplained || r.Stream.Counts.Late != 1 || len(r.Explained) != 2 || r.Explained[1].Reason != partitions.ReasonLate {
		t.Errorf("%s %v, %+v", r.Verdict, r.Reasons, r.Explained)
	}
}

// TestNoEvents: a comparison of nothing comes to an end, over the broker too.
func TestNoEvents(t *testing.T) {
	t.Parallel()
	for name, events := range map[string]string{"empty": "", "header only": "event_id,instrument,event_time,close\n"} {
		for _, crash := range []int64{0, 1} {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			cfg := smallConfig(t, smallFlow, "", "")
			cfg.Stream, cfg.CrashEvery = nil, crash // the broker's is the default
			cfg.Snapshot = filepath.Join(cfg.Dir, "events.jsonl")
			if events != "" {
				cfg.Snapshot = filepath.Join(cfg.Dir, "events.csv")
			}
			if err := os.WriteFile(cfg.Snapshot, []byte(events), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := Run(ctx, cfg)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if r.Verdict != EqualToBatch || r.Arrivals != 0 || r.Stream.Rows != 0 || len(r.Stream.Values) != 0 {
				t.Errorf("%s: %s, %d arrivals, %d rows", name, r.Verdict, r.Arrivals, r.Stream.Rows)
			}
		}
	}
}
