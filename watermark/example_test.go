package watermark_test

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/watermark"
)

func at(s int64) record.EventTime { return record.EventTime(s * int64(time.Second)) }

// One partition: the watermark follows the highest event time at the allowed lateness, and waits for an event known to be missing.
func ExamplePartition() {
	p := watermark.NewPartition(5*time.Second, time.Minute)
	for _, e := range []struct{ number, second int64 }{{1, 100}, {2, 101}, {4, 120}, {3, 102}} {
		late := p.IsLate(at(e.second))
		for _, c := range p.Sequence("meter-7", e.number, at(e.second)) {
			fmt.Printf("  %s %d to %d\n", c.Kind, c.First, c.Last)
		}
		p.Observe(at(e.second))
		p.Record()
		fmt.Printf("number %d: late %v, closed before %s\n", e.number, late, time.Duration(p.Watermark()))
	}
	// Output:
	// number 1: late false, closed before 1m35s
	// number 2: late false, closed before 1m36s
	//   OPENED 3 to 3
	// number 4: late false, closed before 1m41s
	//   FILLED 3 to 3
	// number 3: late false, closed before 1m55s
}

// Many partitions: the minimum over those that are not confirmed idle and not finished.
func ExampleMerge() {
	m := watermark.NewMerge([]int32{0, 1})
	m.Update(0, watermark.Active, at(100))
	fmt.Println(m.Watermark() == record.NoTime, "while partition 1 is silent")
	w, _ := m.Update(1, watermark.Idle, record.NoTime)
	fmt.Println(time.Duration(w), "once it is confirmed idle")
	m.Update(0, watermark.Finished, at(100))
	w, _ = m.Update(1, watermark.Finished, record.NoTime)
	fmt.Println(w == record.MaxTime, "when both have ended")
	// Output:
	// true while partition 1 is silent
	// 1m40s once it is confirmed idle
	// true when both have ended
}
