package replay_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/replay"
	"github.com/weirstream/weir/sources/snapshot"
)

// printer is a producer that prints what it is given.
type printer struct{}

func (printer) Produce(_ context.Context, r record.Record) error {
	fmt.Printf("%s %s", r.Arrival, r.Key)
	for _, h := range r.Headers {
		fmt.Printf(" %s=%s", h.Key, h.Value)
	}
	fmt.Println()
	return nil
}

func (printer) Flush(context.Context) error { return nil }

// A snapshot and a fault schedule become an arrival log, which is then published.
func Example() {
	dir, err := os.MkdirTemp("", "replay-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	events := filepath.Join(dir, "events.jsonl")
	err = os.WriteFile(events, []byte(`{"event_id":"e1","instrument":"A","event_time":"2026-01-05T14:30:00Z","close":10.0}
{"event_id":"e2","instrument":"A","event_time":"2026-01-05T14:30:01Z","close":10.5}
{"event_id":"e3","instrument":"B","event_time":"2026-01-05T14:30:01.5Z","close":7.0}
`), 0o600)
	if err != nil {
		log.Fatal(err)
	}
	schedule, err := replay.ParseSchedule("faults.json", []byte(`{"format":"fault-schedule/1","seed":7,"faults":[
		{"event_id":"e1","kind":"DELAY","domain_ms":1200},
		{"event_id":"e3","kind":"GAP"}
	]}`))
	if err != nil {
		log.Fatal(err)
	}
	ctx, arrivals := context.Background(), filepath.Join(dir, "arrivals.log")
	built, err := replay.Build(ctx, replay.BuildConfig{Snapshot: events, Fields: snapshot.DefaultFields(), Schedule: schedule, Seed: schedule.Seed, Out: arrivals})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(built.Arrivals, "arrivals,", built.FaultsApplied, "faults")
	if _, err := replay.Publish(ctx, replay.PublishConfig{Log: arrivals, Producer: printer{}}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 3 arrivals, 2 faults
	// 2026-01-05T14:30:01Z A event_id=e2 arrival=0
	// 2026-01-05T14:30:01.2Z A event_id=e1 arrival=1 faults=DELAY
	// 2026-01-05T14:30:01.5Z B event_id=e3 arrival=2 faults=GAP
}

// Every mistake of a schedule is reported with its place.
func ExampleParseSchedule() {
	_, err := replay.ParseSchedule("faults.json", []byte(`{"format":"fault-schedule/1","faults":[
{"event_id":"e1","kind":"DELAY","domain_ms":-5},
{"event_id":"e2","kind":"BURST"}]}`))
	fmt.Println(err)
	// Output:
	// faults.json:2:45: faults[0]: domain_ms must not be negative: -5
	// faults.json:3:1: faults[1]: BURST needs count
}
