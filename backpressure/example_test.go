package backpressure_test

import (
	"fmt"
	"time"

	"github.com/weirstream/weir/backpressure"
)

// A run whose disk fills up, and then loses input to the retention of its source.
func ExampleMachine() {
	m, err := backpressure.New(backpressure.Config{FreeDisk: backpressure.Band{High: 2000, Low: 1000}, History: 16})
	if err != nil {
		fmt.Println(err)
		return
	}
	at := time.Date(2026, 1, 5, 14, 30, 0, 0, time.UTC)
	m.Measure(backpressure.FreeDisk, 900, at)
	fmt.Println(m.State(), "reads:", m.State().Reads(), "processes:", m.State().Processes())
	m.Measure(backpressure.FreeDisk, 1500, at.Add(time.Second))
	fmt.Println(m.State(), m.Causes()[0].Release)
	m.Measure(backpressure.FreeDisk, 2500, at.Add(2*time.Second))
	fmt.Println(m.State())

	if _, _, err := m.Block(backpressure.RetentionLost, 7, 3, "ticks/1", at.Add(time.Minute)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.State(), m.Causes()[0].Release)
	choice := backpressure.Choice{
		Settles: backpressure.RetentionLost, Kind: backpressure.AcceptLoss, Who: "ann", Why: "four records, known and archived",
	}
	if _, err := m.Recover(choice, at.Add(time.Hour)); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.State())
	// Output:
	// SOURCE_PAUSED reads: false processes: true
	// SOURCE_PAUSED when free disk is at or above 2000 bytes
	// FLOWING
	// RECOVERY_BLOCKED by an operator's choice on RETENTION_LOST: RESTORED or ACCEPT_LOSS
	// FLOWING
}

func ExampleCredits() {
	c := backpressure.NewCredits(1000, 1<<20)
	fmt.Println(c.Take(600, 500_000), c.Take(600, 100_000))
	c.Give(600, 500_000)
	fmt.Println(c.Take(600, 100_000), "and alone even", c.Give(600, 100_000) && c.Take(1, 10<<20))
	// Output:
	// true false
	// true and alone even true
}
