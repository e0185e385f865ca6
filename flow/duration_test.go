package flow_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirstream/weir/flow"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]time.Duration{
		"0s": 0, "0d0h": 0, "1ns": 1, "1us": 1000, "1µs": 1000, "1ms": 1e6, "1s": 1e9, "1m": time.Minute, "1h": time.Hour, "1d": 24 * time.Hour,
		"60s": time.Minute, "1h30m": 90 * time.Minute, "90m": 90 * time.Minute, "1.5h": 90 * time.Minute, "0.5d": 12 * time.Hour, "1m1h1m": 62 * time.Minute,
		"0.000000001s": 1, "000.50ms": 500 * time.Microsecond, "0.5ns0.5ns": 1, "36500d": 36500 * 24 * time.Hour,
		"9223372036854775807ns": 0, "36500d1ns": 0, "1": 0, "": 0, "s": 0, "-1s": 0, "+1s": 0, "1 s": 0, " 1s": 0, "1s ": 0, "1.s": 0, ".1s": 0, "1e3s": 0, "1S": 0, "1w": 0, "1y": 0, "1s1": 0,
		"1..5s": 0, "0.1ns": 0, "1_0s": 0, "١s": 0, "1s\n": 0, "99999999999999999999d": 0,
		"1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s": 0,
	} {
		got, err := flow.ParseDuration(s)
		zero := s == "0s" || s == "0d0h"
		if got != want || (err != nil) != (want == 0 && !zero) {
			t.Errorf("%q: %d, %v; want %d", s, got, err, want)
		}
	}
}

// What is printed is read back, and it agrees with Go on what Go prints.
func TestFormatDuration(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{0: "0s", 1: "1ns", 1500 * time.Millisecond: "1s500ms", 25 * time.Hour: "1d1h", 36500 * 24 * time.Hour: "36500d", 1001: "1us1ns"} {
		if got := flow.FormatDuration(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
	const seed = 9
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		d := time.Duration(rng.Int64N(1 << (1 + rng.IntN(61))))
		d = min(d, 36500*24*time.Hour)
		for _, s := range []string{flow.FormatDuration(d), d.String()} {
			if back, err := flow.ParseDuration(s); back != d || err != nil {
				t.Fatalf("seed %d: %d is written %s and read %d, %v", seed, d, s, back, err)
			}
		}
	}
}
