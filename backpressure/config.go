package backpressure

import (
	"fmt"
	"strings"

	"github.com/weirstream/weir/codes"
)

// Gauge is something that is measured.
type Gauge uint8

// The gauges. All but ProcessBuffer, which pauses the process, pause the source.
const (
	// UnfinishedLag is the number of records handed out by a source and not yet settled.
	UnfinishedLag Gauge = iota
	// BytesInFlight is the memory of batches that were read and not yet released.
	BytesInFlight
	// FreeDisk is the number of free bytes where the run writes. It is the only gauge that is bad when low.
	FreeDisk
	// ProcessBuffer is the number of bytes of results that wait to be written.
	ProcessBuffer
	// EventTimeLead is how many milliseconds of event time a partition is ahead of the slowest (see Skew).
	EventTimeLead
	gauges
)

// gaugeTable says of each gauge what it is called and how it acts.
var gaugeTable = [gauges]struct {
	name, unit string
	// falling is true when a low value is the bad one.
	falling      bool
	on, off      event
	enter, leave Reason
}{
	UnfinishedLag: {"unfinished lag", "records", false, over, back, LagHigh, LagDrained},
	BytesInFlight: {"bytes in flight", "bytes", false, over, back, BytesHigh, BytesDrained},
	FreeDisk:      {"free disk", "bytes", true, over, back, DiskLow, DiskFreed},
	ProcessBuffer: {"process buffer", "bytes", false, full, drained, BufferFull, BufferDrained},
	EventTimeLead: {"event-time lead", "ms", false, over, back, TimeAhead, TimeAligned},
}

func (g Gauge) String() string {
	if g < gauges {
		return gaugeTable[g].name
	}
	return "unknown gauge"
}

// Band is a pair of thresholds. A rising gauge pauses at High or above and is back at Low or below; FreeDisk pauses at Low or below
// and is back at High or above. In between nothing changes. The zero Band switches the gauge off.
type Band struct{ High, Low int64 }

func (b Band) off() bool { return b == Band{} }

// Config sets the thresholds of a Machine.
type Config struct {
	// UnfinishedLag in records. Defaults to off: credits bound the lag of a run already.
	UnfinishedLag Band
	// BytesInFlight in bytes. Defaults to off, for the same reason.
	BytesInFlight Band
	// FreeDisk in bytes. Defaults to {High: 512 MiB, Low: 256 MiB}.
	FreeDisk Band
	// ProcessBuffer in bytes of results. Defaults to {High: 8 MiB, Low: 4 MiB}.
	ProcessBuffer Band
	// EventTimeLead in milliseconds. Defaults to off.
	EventTimeLead Band
	// History is the number of transitions kept; older ones are dropped. Defaults to 256, about 64 KiB.
	History int
}

// Defaults returns the configuration that a run gets when nothing is said.
func Defaults() Config {
	return Config{
		FreeDisk:      Band{High: 512 << 20, Low: 256 << 20},
		ProcessBuffer: Band{High: 8 << 20, Low: 4 << 20},
		History:       256,
	}
}

const maxHistory = 1 << 16

func (c *Config) bands() [gauges]Band {
	return [gauges]Band{
		UnfinishedLag: c.UnfinishedLag, BytesInFlight: c.BytesInFlight, FreeDisk: c.FreeDisk, ProcessBuffer: c.ProcessBuffer,
		EventTimeLead: c.EventTimeLead,
	}
}

// Validate returns nil or a CONFIG_INVALID error that lists everything that is wrong.
func (c Config) Validate() error {
	var wrong []string
	for g, b := range c.bands() {
		name, unit := gaugeTable[g].name, gaugeTable[g].unit
		switch {
		case b.off():
		case b.Low < 0:
			wrong = append(wrong, fmt.Sprintf("The low threshold of %s is %d %s. It must be 0 or more.", name, b.Low, unit))
		case b.High <= b.Low:
			wrong = append(wrong, fmt.Sprintf("The high threshold of %s is %d %s and the low one %d. The high one must be greater, or the run would pause and go on at the same value for ever; leave both out to switch the gauge off.", name, b.High, unit, b.Low))
		}
	}
	if c.History < 1 || c.History > maxHistory {
		wrong = append(wrong, fmt.Sprintf("The history is %d transitions long. It must be from 1 to %d.", c.History, maxHistory))
	}
	if len(wrong) == 0 {
		return nil
	}
	return codes.New(codes.ConfigInvalid, "%s", strings.Join(wrong, " "))
}
