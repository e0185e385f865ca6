package record_test

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
)

func TestParseTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want record.EventTime
		err  error
	}{
		{"1970-01-01T00:00:00Z", 0, nil},
		{"2026-01-05T14:30:00Z", 1767623400e9, nil},
		{"2026-01-05t14:30:00z", 1767623400e9, nil},
		{"2026-01-05T14:30:00+00:00", 1767623400e9, nil},
		{"2026-01-05T14:30:00-00:00", 1767623400e9, nil},
		{"2026-01-05T15:30:00+01:00", 1767623400e9, nil},
		{"2026-01-05T00:00:00-14:30", 1767623400e9, nil},
		{"2026-01-06T14:29:00+23:59", 1767623400e9, nil},
		{"2026-01-05T14:30:00.5Z", 1767623400_500_000_000, nil},
		{"2026-01-05T14:30:00.000000001Z", 1767623400_000_000_001, nil},
		{"2026-01-05T14:30:00.120+00:00", 1767623400_120_000_000, nil},
		{"1969-12-31T23:59:59.999999999Z", -1, nil},
		{"2024-02-29T00:00:00Z", 1709164800e9, nil},
		{"2000-02-29T23:59:59Z", 951868799e9, nil},
		{"1677-09-21T00:12:43.145224193Z", math.MinInt64 + 1, nil},
		{"2262-04-11T23:47:16.854775806Z", math.MaxInt64 - 1, nil},

		{"2026-01-05T14:30:00", 0, record.ErrTimeZone},
		{"2026-01-05T14:30:00.123", 0, record.ErrTimeZone},
		{"2016-12-31T23:59:60Z", 0, record.ErrTimeLeapSecond},
		{"2026-01-05T14:30:61Z", 0, record.ErrTimeValue},
		{"2026-01-05T14:60:00Z", 0, record.ErrTimeValue},
		{"2026-01-05T24:00:00Z", 0, record.ErrTimeValue},
		{"2026-13-05T14:30:00Z", 0, record.ErrTimeValue},
		{"2026-00-05T14:30:00Z", 0, record.ErrTimeValue},
		{"2026-01-00T14:30:00Z", 0, record.ErrTimeValue},
		{"2026-01-32T14:30:00Z", 0, record.ErrTimeValue},
		{"2026-04-31T14:30:00Z", 0, record.ErrTimeValue},
		{"2023-02-29T00:00:00Z", 0, record.ErrTimeValue},
		{"1900-02-29T00:00:00Z", 0, record.ErrTimeValue},
		{"2026-01-05T14:30:00+24:00", 0, record.ErrTimeValue},
		{"2026-01-05T14:30:00+01:60", 0, record.ErrTimeValue},
		{"2026-01-05T14:30:00.1234567890Z", 0, record.ErrTimePrecision},
		{"2026-01-05T14:30:00." + strings.Repeat("9", 100) + "Z", 0, record.ErrTimePrecision},
		{"1677-09-21T00:12:43.145224192Z", 0, record.ErrTimeRange},
		{"2262-04-11T23:47:16.854775807Z", 0, record.ErrTimeRange},
		{"2262-04-11T23:47:17Z", 0, record.ErrTimeRange},
		{"2262-04-11T23:47:16.854775807-00:01", 0, record.ErrTimeRange},
		{"1677-09-21T00:12:43Z", 0, record.ErrTimeRange},
		{"9999-12-31T23:59:59Z", 0, record.ErrTimeRange},
		{"0000-01-01T00:00:00Z", 0, record.ErrTimeRange},
		{"0001-01-01T00:00:00Z", 0, record.ErrTimeRange},
		{"", 0, record.ErrTimeSyntax},
		{"2026-01-05", 0, record.ErrTimeSyntax},
		{"2026-01-05 14:30:00Z", 0, record.ErrTimeSyntax},
		{"2026-01-05T14:30Z", 0, record.ErrTimeSyntax},
		{"2026-01-05T14:30:00,5Z", 0, record.ErrTimeSyntax},
		{"2026-01-05T14:30:00.Z", 0, record.ErrTimeSyntax},
		{"2026-01-05T14:30:00.", 0, record.ErrTimeSyntax},
		{"2026-01-05T14:30:00ZZ", 0, record.ErrTimeSyntax},
		{"2026-01-05T14:30:00.5ZZ", 0, record.ErrTimeSyntax},
		{"2026-01-05T14:30:00+0100", 0, record.ErrTimeSyntax},
		{"2026-01-05T14:30:00+1:00", 0, record.ErrTimeSyntax},
		{"2026-01-05T14:30:00+aa:00", 0, record.ErrTimeSyntax},
		{"2026-01-05T14:30:00 01:00", 0, record.ErrTimeSyntax},
		{"2026-01-05T14:30:00CET", 0, record.ErrTimeSyntax},
		{" 2026-01-05T14:30:00Z", 0, record.ErrTimeSyntax},
		{"2026-01-05T14:30:00Z ", 0, record.ErrTimeSyntax},
		{"20260105T143000Z-------", 0, record.ErrTimeSyntax},
		{"2o26-01-05T14:30:00Z", 0, record.ErrTimeSyntax},
		{"+026-01-05T14:30:00Z", 0, record.ErrTimeSyntax},
	} {
		got, err := record.ParseTime([]byte(c.text))
		if c.err != nil {
			c.want = record.NoTime
		}
		if got != c.want || err != c.err {
			t.Errorf("ParseTime(%.60q) = %d, %v; want %d, %v", c.text, got, err, c.want, c.err)
		}
	}
}

// TestEveryDay reads every day of the range, which visits every rule of the calendar.
func TestEveryDay(t *testing.T) {
	t.Parallel()
	last := time.Date(2262, 4, 11, 0, 0, 0, 0, time.UTC)
	var text []byte
	for day := time.Date(1677, 9, 22, 0, 0, 0, 0, time.UTC); !day.After(last); day = day.AddDate(0, 0, 1) {
		text = day.AppendFormat(text[:0], time.RFC3339)
		got, err := record.ParseTime(text)
		if err != nil || int64(got) != day.UnixNano() {
			t.Fatalf("ParseTime(%s) = %d, %v; want %d", text, got, err, day.UnixNano())
		}
	}
}

// TestTimeRoundTrip writes random instants and reads them back, and compares with the time package.
func TestTimeRoundTrip(t *testing.T) {
	t.Parallel()
	const seed = 3339
	r := rand.New(rand.NewPCG(seed, seed))
	for range 20_000 {
		want := record.EventTime(r.Uint64())
		if r.IntN(2) == 0 {
			want -= want % 1e9
		}
		text := want.String()
		if std := time.Unix(0, int64(want)).UTC().Format(time.RFC3339Nano); text != std {
			t.Fatalf("seed %d: String() = %s, want %s", seed, text, std)
		}
		if got, err := record.ParseTime([]byte(text)); got != want || err != nil {
			t.Fatalf("seed %d: ParseTime(%s) = %d, %v; want %d", seed, text, got, err, want)
		}
		zone := time.FixedZone("", (r.IntN(2*1439+1)-1439)*60)
		local := time.Unix(0, int64(want)).In(zone).Format(time.RFC3339Nano)
		if got, err := record.ParseTime([]byte(local)); got != want || err != nil {
			t.Fatalf("seed %d: ParseTime(%s) = %d, %v; want %d", seed, local, got, err, want)
		}
	}
}

func TestTimeEnds(t *testing.T) {
	t.Parallel()
	if got := record.NoTime.String() + " " + record.MaxTime.String(); got != "none end" {
		t.Errorf("the ends of time print as %q", got)
	}
	if got := string(record.AppendTime([]byte("at "), 0)); got != "at 1970-01-01T00:00:00Z" {
		t.Errorf("AppendTime gives %q", got)
	}
}

func TestTimeFromUnix(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		raw  string
		unit int64
		want record.EventTime
		err  error
	}{
		{"0", 1, 0, nil}, {"-0", 1e9, 0, nil}, {"1767623400", 1e9, 1767623400e9, nil}, {"1767623400123", 1e6, 1767623400_123_000_000, nil},
		{"-1", 1e3, -1000, nil}, {"9223372036854775806", 1, math.MaxInt64 - 1, nil}, {"-9223372036854775807", 1, -math.MaxInt64, nil},
		{"9223372036", 1e9, 9223372036e9, nil}, {"-9223372036", 1e9, -9223372036e9, nil}, {"9223372036854775", 1e3, 9223372036854775e3, nil},
		{"9223372036854775807", 1, 0, record.ErrTimeRange}, {"-9223372036854775808", 1, 0, record.ErrTimeRange},
		{"9223372037", 1e9, 0, record.ErrTimeRange}, {"-9223372037", 1e9, 0, record.ErrTimeRange}, {"9223372036855", 1e6, 0, record.ErrTimeRange},
		{"9223372036854775808", 1, 0, record.ErrTimeRange}, {"99999999999999999999999999", 1, 0, record.ErrTimeRange},
		{"18446744073709551616", 1, 0, record.ErrTimeRange}, {"-99999999999999999999999999", 1e9, 0, record.ErrTimeRange},
		{"1.5", 1e9, 0, record.ErrTimeInteger}, {"1e9", 1e9, 0, record.ErrTimeInteger}, {"", 1, 0, record.ErrTimeInteger},
		{"-", 1, 0, record.ErrTimeInteger}, {"99999999999999999999999999.5", 1, 0, record.ErrTimeInteger}, {"NaN", 1, 0, record.ErrTimeInteger},
	} {
		got, err := record.TimeFromUnix([]byte(c.raw), c.unit)
		if c.err != nil {
			c.want = record.NoTime
		}
		if got != c.want || err != c.err {
			t.Errorf("TimeFromUnix(%s, %d) = %d, %v; want %d, %v", c.raw, c.unit, got, err, c.want, c.err)
		}
	}
}

func TestTimesAllocateNothing(t *testing.T) {
	good, bad, unix := []byte("2026-01-05T14:30:00.123+01:00"), []byte("2026-01-05T14:30:00"), []byte("1767623400")
	buf := make([]byte, 0, 64)
	allocs := testing.AllocsPerRun(100, func() {
		at, err := record.ParseTime(good)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := record.ParseTime(bad); err == nil {
			t.Fatal("a time without zone was read")
		}
		if _, err := record.TimeFromUnix(unix, 1e9); err != nil {
			t.Fatal(err)
		}
		buf = record.AppendTime(buf[:0], at)
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// FuzzParseTime compares with time.Parse. Known differences, where ParseTime refuses what time.Parse reads: a comma before the
// fraction, more than nine fraction digits, hours of one digit, and instants outside EventTime. The other way round: T and Z in lower case,
// and offset hours up to 23 on every day.
func FuzzParseTime(f *testing.F) {
	for _, s := range []string{"2026-01-05T14:30:00Z", "2026-01-05T14:30:00.123456789+01:00", "2026-01-05T14:30:00", "2024-02-29T23:59:60Z",
		"1677-09-21T00:12:43.145224192Z", "2262-04-11T23:47:16.854775807Z", "2026-01-05T4:30:00Z", "2026-01-05T14:30:00,5Z"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := record.ParseTime(text)
		std, stdErr := time.Parse(time.RFC3339Nano, string(bytes.ToUpper(text)))
		switch {
		case err == nil && (stdErr != nil || std.UnixNano() != int64(got)):
			t.Fatalf("ParseTime(%q) = %d; time.Parse gives %v, %v", text, got, std, stdErr)
		case err == nil:
			if again, err := record.ParseTime([]byte(got.String())); again != got || err != nil {
				t.Fatalf("%q is %s, which reads as %d, %v", text, got, again, err)
			}
		case stdErr == nil && !knownTimeDifference(text, std, err):
			t.Fatalf("ParseTime(%q): %v; time.Parse gives %v", text, err, std)
		}
	})
}

func knownTimeDifference(text []byte, std time.Time, err error) bool {
	switch {
	case errors.Is(err, record.ErrTimeRange):
		return std.Before(time.Unix(0, math.MinInt64+1)) || std.After(time.Unix(0, math.MaxInt64-1))
	case errors.Is(err, record.ErrTimePrecision):
		return true
	case errors.Is(err, record.ErrTimeSyntax):
		return bytes.ContainsRune(text, ',') || len(text) > 12 && text[12] == ':'
	case errors.Is(err, record.ErrTimeValue):
		return std.Location() != time.UTC // time.Parse takes offsets of 24 hours
	}
	return false
}
