package record_test

import (
	"math"
	"testing"

	"github.com/weirstream/weir/record"
)

func TestParseFloat(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]float64{
		"0": 0, "-0": math.Copysign(0, -1), "-0.0": math.Copysign(0, -1), "101.25": 101.25, "-7": -7, "1e3": 1000, "1E-3": 0.001,
		"9007199254740993": 9007199254740992, "9007199254740993.5": 9007199254740994, "0.1": 0.1, "0.30000000000000004": 0.30000000000000004,
		"18446744073709551617": 18446744073709551616, "123456789012345678901234567890": 123456789012345680000000000000,
		"0.000000000000000000000000000001": 1e-30, "5e-324": 5e-324, "1e-400": 0, "-1e-400": math.Copysign(0, -1),
		"1e400": math.Inf(1), "-1e400": math.Inf(-1), "1.7976931348623159e308": math.Inf(1),
		"Infinity": math.Inf(1), "-Infinity": math.Inf(-1), "NaN": math.NaN(), "": math.NaN(), "-": math.NaN(), "x": math.NaN(),
		"1.2.3": math.NaN(), ".": math.NaN(),
	} {
		got := record.ParseFloat([]byte(raw))
		if math.Float64bits(got) != math.Float64bits(want) && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("ParseFloat(%s) = %v, want %v", raw, got, want)
		}
	}
}
