package partitions_test

import (
	"fmt"
	"log"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

const prices = `
flow: weir/1
name: prices
id: id
key: stock
time: {field: at, unit: rfc3339}
lateness: 1m
operators: [{name: mean, type: sma, input: price, period: 2}]
outputs: [mean]
`

// A machine takes records in log order and gives rows in the order of event time. Its state goes into a journal as named blobs, from
// which another machine goes on where it was.
func Example() {
	plan, err := flow.Parse("prices.yaml", []byte(prices), nil)
	if err != nil {
		log.Fatal(err)
	}
	values := []string{
		`{"id":"a","stock":"X","at":"2026-01-05T14:30:00Z","price":10}`,
		`{"id":"c","stock":"X","at":"2026-01-05T14:32:00Z","price":30}`,
		`{"id":"b","stock":"X","at":"2026-01-05T14:31:00Z","price":20}`, // a minute behind, in time
		`{"id":"b","stock":"X","at":"2026-01-05T14:31:00Z","price":20}`, // once more
		`{"id":"x","stock":"X","at":"2026-01-05T14:30:59Z","price":99}`, // too late
	}
	batch := &record.Batch{}
	for i, v := range values {
		batch.Records = append(batch.Records, record.Record{Position: record.Offset(int64(i)), Arrival: record.NoTime, Value: []byte(v)})
	}
	batch.Next = record.Offset(int64(len(values)))

	var effects partitions.Effects
	m := partitions.New(plan, 0)
	if err := m.Step(partitions.Deliver{Batch: batch}, &effects); err != nil {
		log.Fatal(err)
	}
	fmt.Println("watermark", m.Watermark())

	journal := map[string][]byte{}
	for _, blob := range m.Cut().Put {
		journal[blob.Name] = blob.Data
	}
	m, err = partitions.Restore(plan, 0, func(yield func(partitions.StateBlob) error) error {
		for name, data := range journal {
			if err := yield(partitions.StateBlob{Name: name, Data: data}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := m.Step(partitions.EndOfSource{Through: m.MaxEventTime()}, &effects); err != nil {
		log.Fatal(err)
	}

	var row partitions.Row
	for data := effects.Rows.Data; len(data) > 0; {
		if data, err = partitions.DecodeRow(data, len(plan.Outputs), &row); err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %s %v\n", row.Time, row.ID, row.Values[0])
	}
	for _, q := range effects.Quarantine {
		fmt.Println(q.Reason, q.EventID+":", q.Detail)
	}
	c := m.Counts()
	fmt.Println(c.Consumed, "accepted,", c.Duplicates, "duplicate,", c.Late, "late")
	// Output:
	// watermark 2026-01-05T14:31:00Z
	// 2026-01-05T14:30:00Z a {0 false}
	// 2026-01-05T14:31:00Z b {15 true}
	// 2026-01-05T14:32:00Z c {25 true}
	// LATE x: event time is 1s older than the watermark 2026-01-05T14:31:00Z, which the record at 1 holds, with the event time 2026-01-05T14:32:00Z
	// 3 accepted, 1 duplicate, 1 late
}
