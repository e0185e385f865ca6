package actors_test

import (
	"context"
	"fmt"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/sourcetest"
)

const prices = `flow: weir/1
name: prices
id: id
key: instrument
time: {field: t, unit: s}
operators:
  - {name: ema3, type: ema, input: close, period: 3}
outputs: [ema3]
`

// A run over a log in memory, with a journal in memory: no broker, no store. It is stopped after four records and goes on another time.
func Example() {
	plan, err := flow.Parse("prices.yaml", []byte(prices), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	log := sourcetest.New(sourcetest.Config{Bounded: true})
	for i := range 6 {
		value := fmt.Sprintf(`{"id":"tick-%d","instrument":"A","t":%d,"close":%d}`, i, 1_700_000_000+i, i+1)
		log.Append(0, record.Record{Key: []byte("A"), Value: []byte(value), Arrival: record.NoTime})
	}
	config := actors.Config{Plan: plan, Source: log, Journal: controltest.NewMemory(), RunID: "prices-1"}

	config.UntilRecords = 4
	result, err := actors.Run(context.Background(), config)
	fmt.Println(result.Status, result.Counts.Records, result.Partitions[0].Next, err)

	config.UntilRecords = 0
	result, err = actors.Run(context.Background(), config)
	fmt.Println(result.Status, result.Counts.Records, result.Partitions[0].Next, err)

	err = config.Journal.Outputs(context.Background(), "prices-1", 0, func(rows partitions.Rows) error {
		for data := rows.Data; len(data) > 0; {
			var row partitions.Row
			var err error
			if data, err = partitions.DecodeRow(data, 1, &row); err != nil {
				return err
			}
			fmt.Println(row.Time, string(row.ID), row.Values[0].OK, row.Values[0].F)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// OPEN 4 4 <nil>
	// FINISHED 6 6 <nil>
	// 2023-11-14T22:13:20Z tick-0 false 0
	// 2023-11-14T22:13:21Z tick-1 false 0
	// 2023-11-14T22:13:22Z tick-2 true 2
	// 2023-11-14T22:13:23Z tick-3 true 3
	// 2023-11-14T22:13:24Z tick-4 true 4
	// 2023-11-14T22:13:25Z tick-5 true 5
}
