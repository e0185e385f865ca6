package snapshot_test

import (
	"context"
	"fmt"
	"io"
	"log"

	"github.com/weirstream/weir/sources/snapshot"
)

// Rows come in the order of (event time, event id), whatever the order of the file.
func ExampleSource_Rows() {
	s := snapshot.New(snapshot.Config{Path: "testdata/snapshot.jsonl"})
	rows, err := s.Rows(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer rows.Close()
	var row snapshot.Row
	for range 3 {
		if err := rows.Next(&row); err == io.EOF {
			break
		} else if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %s key %s\n", row.Time, row.ID, row.Key)
	}
	// Output:
	// 2026-01-05T14:30:00Z fixture.event.0.0 key 1
	// 2026-01-05T14:30:00Z fixture.event.1.0 key 2
	// 2026-01-05T14:30:00Z fixture.event.2.0 key 3
}
