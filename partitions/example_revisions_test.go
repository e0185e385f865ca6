package partitions_test

import (
	"fmt"
	"log"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// A revision that comes behind the watermark corrects the results that it reaches: they are published again, under the next number.
func ExampleMachine_revisions() {
	plan, err := flow.Parse("prices.yaml", []byte(`
flow: weir/1
name: prices
id: id
key: instrument
time: {field: at, unit: s}
revision: rev
revisions: {horizon: 1m}
operators: [{name: mean, type: sma, input: price, period: 2}]
outputs: [mean]
`), nil)
	if err != nil {
		log.Fatal(err)
	}
	m := partitions.New(plan, 0)
	batch := record.Batch{}
	for i, value := range []string{
		`{"id":"a","instrument":"X","at":0,"price":10}`,
		`{"id":"b","instrument":"X","at":10,"price":20}`,
		`{"id":"c","instrument":"X","at":20,"price":30}`,
		`{"id":"d","instrument":"X","at":30,"price":40}`,
		`{"id":"b","instrument":"X","at":10,"price":26,"rev":1}`,
	} {
		batch.Records = append(batch.Records, record.Record{Position: record.Offset(int64(i)), Arrival: record.NoTime, Value: []byte(value)})
		batch.Next = record.Offset(int64(i) + 1)
	}
	var effects partitions.Effects
	if err := m.Step(partitions.Deliver{Batch: &batch}, &effects); err != nil {
		log.Fatal(err)
	}
	if err := m.Step(partitions.EndOfSource{Through: record.NoTime}, &effects); err != nil {
		log.Fatal(err)
	}
	var row partitions.Row
	for rest := effects.Rows.Data; len(rest) > 0; {
		if rest, err = partitions.DecodeRow(rest, len(plan.Outputs), &row); err != nil {
			log.Fatal(err)
		}
		mean := "null"
		if row.Values[0].OK {
			mean = fmt.Sprint(row.Values[0].F)
		}
		fmt.Printf("%s %s %s, revision %v\n", row.Time, row.ID, mean, row.Values[1].F)
	}
	// Output:
	// 1970-01-01T00:00:00Z a null, revision 0
	// 1970-01-01T00:00:10Z b 15, revision 0
	// 1970-01-01T00:00:20Z c 25, revision 0
	// 1970-01-01T00:00:10Z b 18, revision 1
	// 1970-01-01T00:00:20Z c 28, revision 1
	// 1970-01-01T00:00:30Z d 35, revision 0
}
