package bench

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// message is a record as a client library hands it over: what both contestants start from.
type message struct {
	offset, timestamp int64
	key, value        []byte
}

// The log of ticks: 1,000 a second of event time, one in eight of another venue (filtered), one in fifty delivered twice, one in ten
// late in the log by up to the allowed lateness.
const (
	ticksPerSecond = 1000
	tickLateness   = 2 * time.Second
	tickHorizon    = 2 * time.Minute
	tickSkew       = 24 * time.Hour
	tickEMA        = 12
	tickKeys       = 100
	tickVenue      = "XNAS"
)

// tickFlow is the flow that the hand-written loop spells out.
const tickFlow = `
flow: weir/1
name: ticks
select: {field: venue, equals: XNAS}
id: event_id
key: instrument
time: {field: event_time, unit: rfc3339}
lateness: 2s
dedupe: {horizon: 2m}
operators:
  - {name: ema12, type: ema, input: close, period: 12}
outputs: [ema12]
`

// ticks makes a log of at least n messages of about 132 bytes. Equal seeds give equal logs.
func ticks(n int, seed uint64) []message {
	r := rand.New(rand.NewPCG(seed, 1))
	from := time.Date(2026, 1, 5, 14, 30, 0, 0, time.UTC)
	due := make([][]message, n+int(tickLateness/time.Millisecond)+1)
	var log []message
	for i := range n {
		at := from.Add(time.Duration(i) * time.Second / ticksPerSecond)
		venue := tickVenue
		if r.IntN(8) == 0 {
			venue = "XLON"
		}
		key := fmt.Sprint(1 + r.IntN(tickKeys))
		m := message{timestamp: at.UnixNano(), key: []byte(key), value: fmt.Appendf(nil,
			`{"close":%d.%02d,"event_id":"ticks.event.%09d","event_time":"%s","instrument":"%s","volume":%d,"venue":"%s"}`,
			90+r.IntN(20), r.IntN(100), i, at.Format("2006-01-02T15:04:05.000Z"), key, 1+r.IntN(5000), venue)}
		place := i
		if r.IntN(10) == 0 {
			place += r.IntN(int(tickLateness / time.Millisecond))
		}
		due[place] = append(due[place], m)
		if r.IntN(50) == 0 {
			again := place + r.IntN(200)
			due[min(again, len(due)-1)] = append(due[min(again, len(due)-1)], m)
		}
		log = append(log, due[i]...)
	}
	for i := range log {
		log[i].offset = int64(i)
	}
	return log
}
