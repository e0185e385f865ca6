package logfile_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
)

// A log is written arrival by arrival and read back the same way. The reader answers io.EOF only when the whole log is sound.
func Example() {
	var file bytes.Buffer
	w, err := logfile.NewWriter(&file, logfile.Header{
		Fields:       logfile.Fields{ID: "event_id", Key: "instrument", Time: "event_time", Unit: "rfc3339"},
		SnapshotHash: record.Hash([]byte("the snapshot's bytes")),
	})
	if err != nil {
		log.Fatal(err)
	}
	start, err := record.ParseTime([]byte("2026-01-05T14:30:00Z"))
	if err != nil {
		log.Fatal(err)
	}
	arrival := logfile.Arrival{Time: start, EventID: []byte("e.1"), Key: []byte("1"), Value: []byte(`{"close":2.0}`)}
	if err := w.Arrival(&arrival); err != nil {
		log.Fatal(err)
	}
	if err := w.Fault(&logfile.Fault{EventID: "e.2", Kind: logfile.Gap}); err != nil {
		log.Fatal(err)
	}
	gap := logfile.Arrival{Time: start + record.EventTime(time.Minute), EventID: []byte("e.2"), Key: []byte("1"), Faults: logfile.SetOf(logfile.Gap)}
	if err := w.Arrival(&gap); err != nil {
		log.Fatal(err)
	}
	if _, err := w.Finish(); err != nil {
		log.Fatal(err)
	}

	r, err := logfile.NewReader(&file, "example")
	if err != nil {
		log.Fatal(err)
	}
	var a logfile.Arrival
	for err = r.Next(&a); err == nil; err = r.Next(&a) {
		fmt.Printf("%d %s key %s: %q\n", a.N, a.Time, a.Key, a.Value)
	}
	if err != io.EOF {
		log.Fatal(err)
	}
	fmt.Println(r.End().Arrivals, "arrivals,", r.End().FaultsApplied, "fault")
	// Output:
	// 0 2026-01-05T14:30:00Z key 1: "{\"close\":2.0}"
	// 1 2026-01-05T14:31:00Z key 1: ""
	// 2 arrivals, 1 fault
}
