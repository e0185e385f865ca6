package flow

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"time"
)

// maxDurationText is how long the spelling of a duration may be, in bytes.
const maxDurationText = 64

// maxDuration bounds every duration of a flow, so that sums with event times stay meaningful: a hundred years.
const maxDuration = 36500 * day

const day = 24 * time.Hour

// units of a duration, largest first: the order in which FormatDuration writes them.
var units = []struct {
	name string
	size time.Duration
}{
	{"d", day}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", 1},
}

// durationPattern is the spelling of a duration, in the JSON Schema too.
const durationPattern = `^([0-9]+(\.[0-9]+)?(d|h|ms|m|s|us|µs|ns))+$`

var (
	durationText = regexp.MustCompile(durationPattern)
	durationPart = regexp.MustCompile(`([0-9.]+)([a-zµ]+)`)
)

// ParseDuration reads a duration as a flow file writes it: one or more decimal numbers, each with a unit of d, h, m, s, ms, us
// (or µs) and ns, as in "1h30m" or "1.5s". A day has 24 hours. It must be a whole number of nanoseconds, of at most 36500d.
func ParseDuration(s string) (time.Duration, error) {
	if len(s) > maxDurationText || !durationText.MatchString(s) {
		return 0, errors.New("is not a duration")
	}
	sum := new(big.Rat)
	for _, part := range durationPart.FindAllStringSubmatch(s, -1) {
		n, ok := new(big.Rat).SetString(part[1])
		if !ok {
			return 0, errors.New("is not a duration")
		}
		sum.Add(sum, n.Mul(n, new(big.Rat).SetInt64(int64(unitSize(part[2])))))
	}
	if sum.Cmp(new(big.Rat).SetInt64(int64(maxDuration))) > 0 {
		return 0, fmt.Errorf("is longer than %s, the longest there is", FormatDuration(maxDuration))
	}
	if !sum.IsInt() {
		return 0, errors.New("is not a whole number of nanoseconds")
	}
	return time.Duration(sum.Num().Int64()), nil
}

func unitSize(name string) time.Duration {
	name = strings.Replace(name, "µ", "u", 1)
	for _, u := range units {
		if u.name == name {
			return u.size
		}
	}
	return 0
}

// FormatDuration writes a duration that is not negative in the one spelling that weir prints: whole units, largest first, as in
// "1d12h". ParseDuration reads it back.
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	var b strings.Builder
	for _, u := range units {
		if n := d / u.size; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.size
		}
	}
	return b.String()
}
