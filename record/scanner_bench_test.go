package record_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
)

// tick is the 132-byte record that the figures are quoted for.
const tick = `{"close":101.25,"event_id":"fixture.event.2.1","event_time":"2026-01-05T14:31:00Z","instrument":"3","volume":1234,"venue":"XNAS"}`

// spaced is tick as Python's json.dumps writes it.
const spaced = `{"close": 101.25, "event_id": "fixture.event.2.1", "event_time": "2026-01-05T14:31:00Z", "instrument": "3", "volume": 1234, "venue": "XNAS"}`

var tickFields = []string{"instrument", "event_id", "event_time", "close"}

type tickStruct struct {
	Close      float64 `json:"close"`
	EventID    string  `json:"event_id"`
	EventTime  string  `json:"event_time"`
	Instrument string  `json:"instrument"`
}

// BenchmarkScan reads four fields of a tick. Its metric x-json is how many times longer encoding/json takes for the same fields,
// measured in the same run.
func BenchmarkScan(b *testing.B) {
	for _, doc := range []struct{ name, text string }{{"compact", tick}, {"spaced", spaced}} {
		b.Run(doc.name, func(b *testing.B) {
			s := record.NewScanner(tickFields)
			out := make([]record.Field, len(tickFields))
			text := []byte(doc.text)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			scan := func() {
				if err := s.Scan(text, out); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				scan()
			}
			reportRatio(b, scan, func() {
				var v tickStruct
				if err := json.Unmarshal(text, &v); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

// reportRatio reports how many times longer a baseline takes than the code of the benchmark: the median of interleaved pairs, so that
// a busy machine slows both down.
func reportRatio(b *testing.B, own, baseline func()) {
	const pairs, calls = 31, 300
	timed := func(f func()) float64 {
		from := time.Now()
		for range calls {
			f()
		}
		return float64(time.Since(from))
	}
	ratios := make([]float64, pairs)
	for i := range ratios {
		ratios[i] = 1 / timed(own)
		ratios[i] *= timed(baseline)
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[pairs/2], "x-json")
}

func BenchmarkParseFloat(b *testing.B) {
	for _, raw := range []string{"101.25", "1234", "0.1234567890123456789", "1.5e300"} {
		b.Run(raw, func(b *testing.B) {
			text := []byte(raw)
			for b.Loop() {
				record.ParseFloat(text)
			}
		})
	}
}

func BenchmarkParseTime(b *testing.B) {
	for _, raw := range []string{"2026-01-05T14:31:00Z", "2026-01-05T14:31:00.123456789+01:00"} {
		b.Run(raw, func(b *testing.B) {
			text := []byte(raw)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := record.ParseTime(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkAppendTime(b *testing.B) {
	t, err := record.ParseTime([]byte("2026-01-05T14:31:00.5Z"))
	if err != nil {
		b.Fatal(err)
	}
	var buf []byte
	for b.Loop() {
		buf = record.AppendTime(buf[:0], t)
	}
}

// BenchmarkCanonical canonicalises a tick; x-json is encoding/json's time for decoding and encoding it.
func BenchmarkCanonical(b *testing.B) {
	for _, doc := range []struct{ name, text string }{
		{"sorted", `{"close":101.25,"event_id":"fixture.event.2.1","event_time":"2026-01-05T14:31:00Z","instrument":"3","venue":"XNAS","volume":1234}`},
		{"unsorted", `{"venue":"XNAS","volume":1234,"instrument":"3","event_time":"2026-01-05T14:31:00Z","event_id":"fixture.event.2.1","close":101.25}`},
	} {
		b.Run(doc.name, func(b *testing.B) {
			text := []byte(doc.text)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			canonical := func() {
				if _, err := record.Canonical(text); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				canonical()
			}
			reportRatio(b, canonical, func() {
				var v any
				if err := json.Unmarshal(text, &v); err != nil {
					b.Fatal(err)
				}
				if _, err := json.Marshal(v); err != nil {
					b.Fatal(err)
				}
			})
		})
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	values := make([]any, 1000)
	for i := range values {
		values[i] = float64(i) / 8
	}
	var buf []byte
	for b.Loop() {
		var err error
		if buf, err = record.AppendJSON(buf[:0], values); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed())/float64(b.N)/1000, "ns/value")
}

func BenchmarkPartitionOf(b *testing.B) {
	for _, n := range []int{1, 17, 64} {
		key := []byte(fmt.Sprintf("%0*d", n, 7))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				record.PartitionOf(key, 8)
			}
		})
	}
}
