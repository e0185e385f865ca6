package parity

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/weirstream/weir/replay"
)

// sweepFlow writes a flow by chance: lateness from none to more than any delay, one or all instruments, both clocks, every operator and
// gap policy, chains, with and without a horizon that ids leave during the run, with and without revision numbers, and with revisions behind
// the watermark, published again or not.
func sweepFlow(rng *rand.Rand) string {
	pick := func(options ...string) string { return options[rng.IntN(len(options))] }
	var b strings.Builder
	b.WriteString("flow: weir/1\nname: sweep\nid: event_id\nkey: instrument\ntime: {field: event_time, unit: rfc3339}\n")
	horizon := pick("10s", "5m", "1h")
	if rng.IntN(3) > 0 {
		b.WriteString("revision: revision\n")
		if rng.IntN(2) == 0 {
			fmt.Fprintf(&b, "revisions: {horizon: %s, publish: %s}\n", pick("1s", "7s", horizon), pick("true", "true", "false"))
		}
	}
	if rng.IntN(3) == 0 {
		b.WriteString("select: {field: instrument, in: [\"1\", \"2\"]}\n")
	}
	fmt.Fprintf(&b, "lateness: %s\n", pick("0s", "1s", "5s", "1m", "10m"))
	fmt.Fprintf(&b, "dedupe: {horizon: %s}\n", horizon)
	if rng.IntN(3) == 0 {
		fmt.Fprintf(&b, "clock: {every: %s}\n", pick("10s", "1m", "5m"))
	}
	period := 1 + rng.IntN(5)
	fmt.Fprintf(&b, "operators:\n  - {name: a, type: ema, input: close, period: %d, gap: %s}\n", period, pick("reject", "hold"))
	fmt.Fprintf(&b, "  - {name: b, type: sma, input: %s, period: %d, gap: %s}\n", pick("close", "volume", "{operator: a}"), 1+rng.IntN(4), pick("reject", "hold"))
	b.WriteString("  - {name: c, type: last, input: close}\noutputs: [a, b, c]\n")
	b.WriteString("limits: {ids: 100000, keys: 1000, reorder: 100000, ticks: 100000}\n")
	return b.String()
}

// sweepRates chooses how many faults of each kind a schedule has.
func sweepRates(rng *rand.Rand) replay.Rates {
	rate := func(most float64) float64 {
		if rng.IntN(3) == 0 {
			return 0
		}
		return most * rng.Float64()
	}
	return replay.Rates{
		Duplicate: rate(0.2), Delay: rate(0.3), Gap: rate(0.1), Revision: rate(0.1), Pause: rate(0.02), Burst: rate(0.05), SourceFailure: rate(0.02),
	}
}
