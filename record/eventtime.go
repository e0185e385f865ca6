package record

import (
	"errors"
	"math"
	"time"
)

// EventTime is an instant in nanoseconds since the Unix epoch, UTC. The representable range is 1677-09-21 to 2262-04-11.
type EventTime int64

const (
	// NoTime marks an absent instant. It sorts before every real one.
	NoTime EventTime = math.MinInt64
	// MaxTime is the end of event time: a closed, finished input.
	MaxTime EventTime = math.MaxInt64
)

// Why a time could not be read. They carry no text of the record, so that reading allocates nothing; callers name the field.
var (
	// ErrTimeSyntax: the text is not an RFC 3339 date and time.
	ErrTimeSyntax = errors.New("not an RFC 3339 time such as 2026-01-05T14:30:00Z")
	// ErrTimeZone: the text is an RFC 3339 date and time, but for the zone that is missing at its end.
	ErrTimeZone = errors.New("time without zone; append Z or an offset such as +01:00")
	// ErrTimeValue: a part of the time is out of its range: month 13, 30 February, hour 24, offset +24:00.
	ErrTimeValue = errors.New("no such date or time of day")
	// ErrTimeLeapSecond: second 60 has no place in Unix time.
	ErrTimeLeapSecond = errors.New("leap second (second 60) has no place in Unix time")
	// ErrTimePrecision: more than nine digits of a second.
	ErrTimePrecision = errors.New("time finer than nanoseconds (more than 9 fraction digits)")
	// ErrTimeRange: the instant does not fit nanoseconds in 64 bits.
	ErrTimeRange = errors.New("time outside 1677-09-21 to 2262-04-11")
	// ErrTimeInteger: a Unix time that is not a whole number.
	ErrTimeInteger = errors.New("not an integer count of time units")
)

const (
	nanosPerSecond = 1_000_000_000
	secondsPerDay  = 86_400
	// epochDays is the number of days from 0000-03-01 to 1970-01-01.
	epochDays = 719_468
)

// ParseTime reads an RFC 3339 date and time with its zone, with at most 9 fraction digits. T and Z may be lower case, as RFC 3339
// allows; a space instead of the T is not. -00:00 is UTC. It does not allocate. The errors are ErrTimeSyntax, ErrTimeZone,
// ErrTimeValue, ErrTimeLeapSecond, ErrTimePrecision and ErrTimeRange. The instants of NoTime and MaxTime are out of range.
func ParseTime(s []byte) (EventTime, error) {
	if len(s) < len("2006-01-02T15:04:05") {
		return NoTime, ErrTimeSyntax
	}
	year, ok0 := digits2(s[0], s[1])
	yy, ok1 := digits2(s[2], s[3])
	month, ok2 := digits2(s[5], s[6])
	day, ok3 := digits2(s[8], s[9])
	hour, ok4 := digits2(s[11], s[12])
	minute, ok5 := digits2(s[14], s[15])
	second, ok6 := digits2(s[17], s[18])
	if !(ok0 && ok1 && ok2 && ok3 && ok4 && ok5 && ok6) ||
		s[4] != '-' || s[7] != '-' || s[10]|0x20 != 't' || s[13] != ':' || s[16] != ':' {
		return NoTime, ErrTimeSyntax
	}
	nanos, offset, err := fractionAndZone(s[19:])
	if err != nil {
		return NoTime, err
	}
	year = year*100 + yy
	if month-1 > 11 || day-1 >= daysIn(year, month) || hour > 23 || minute > 59 || second > 59 {
		if second == 60 {
			return NoTime, ErrTimeLeapSecond
		}
		return NoTime, ErrTimeValue
	}
	seconds := daysSinceEpoch(year, month, day)*secondsPerDay + int64(hour*3600+minute*60+second) - offset
	return timeOf(seconds, nanos)
}

// digits2 reads two decimal digits.
func digits2(a, b byte) (n uint32, ok bool) {
	a, b = a-'0', b-'0'
	return uint32(a)*10 + uint32(b), a <= 9 && b <= 9
}

// fractionAndZone reads what follows the seconds: ".123Z", "Z", "+01:00". The offset is in seconds east of UTC.
func fractionAndZone(s []byte) (nanos, offset int64, err error) {
	if len(s) == 1 && s[0]|0x20 == 'z' {
		return 0, 0, nil
	}
	if len(s) > 0 && s[0] == '.' {
		n := 1
		for ; n < len(s) && s[n]-'0' <= 9; n++ {
			if n <= 9 {
				nanos = nanos*10 + int64(s[n]-'0')
			}
		}
		if n == 1 {
			return 0, 0, ErrTimeSyntax
		}
		if n > 10 {
			return 0, 0, ErrTimePrecision
		}
		for i := n; i < 10; i++ {
			nanos *= 10
		}
		s = s[n:]
	}
	switch {
	case len(s) == 0:
		return 0, 0, ErrTimeZone
	case len(s) == 1 && s[0]|0x20 == 'z':
		return nanos, 0, nil
	}
	offset, err = numericZone(s)
	return nanos, offset, err
}

// numericZone reads "+01:00".
func numericZone(s []byte) (seconds int64, err error) {
	if len(s) != len("+00:00") || s[0] != '+' && s[0] != '-' || s[3] != ':' {
		return 0, ErrTimeSyntax
	}
	hour, ok0 := digits2(s[1], s[2])
	minute, ok1 := digits2(s[4], s[5])
	if !ok0 || !ok1 {
		return 0, ErrTimeSyntax
	}
	if hour > 23 || minute > 59 {
		return 0, ErrTimeValue
	}
	seconds = int64(hour*3600 + minute*60)
	if s[0] == '-' {
		seconds = -seconds
	}
	return seconds, nil
}

var monthDays = [13]uint8{0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// daysIn is the number of days of a month from 1 to 12.
func daysIn(year, month uint32) uint32 {
	if month == 2 && year%4 == 0 && (year%100 != 0 || year%400 == 0) {
		return 29
	}
	return uint32(monthDays[month])
}

// daysSinceEpoch counts the days from 1970-01-01 in the proleptic Gregorian calendar. Years start in March here, so that the leap
// day is the last of its year and the months before it have a fixed pattern of 153 days in five.
func daysSinceEpoch(year, month, day uint32) int64 {
	y, m := int64(year), int64(month)
	if m <= 2 {
		y, m = y-1, m+12 // y is -1 at the start of year 0, which is out of range by centuries whatever the divisions below give
	}
	return 365*y + y/4 - y/100 + y/400 + (153*(m-3)+2)/5 + int64(day) - 1 - epochDays
}

// timeOf joins seconds and nanoseconds, or returns ErrTimeRange.
func timeOf(seconds, nanos int64) (EventTime, error) {
	const limit = math.MaxInt64/nanosPerSecond - 1
	if seconds < -limit || seconds > limit {
		return timeAtBorder(seconds, nanos)
	}
	return EventTime(seconds*nanosPerSecond + nanos), nil
}

// timeAtBorder decides the few instants near the ends of the range, where the product alone may overflow.
func timeAtBorder(seconds, nanos int64) (EventTime, error) {
	const limit = math.MaxInt64/nanosPerSecond + 1
	if seconds < -limit || seconds > limit {
		return NoTime, ErrTimeRange
	}
	// Half the seconds are safe; the sum is tested by its sign.
	half := seconds / 2 * nanosPerSecond
	rest := (seconds-seconds/2)*nanosPerSecond + nanos
	sum := half + rest
	if (half < 0) == (rest < 0) && (sum < 0) != (half < 0) || sum == math.MinInt64 || sum == math.MaxInt64 {
		return NoTime, ErrTimeRange
	}
	return EventTime(sum), nil
}

// TimeFromUnix reads an integer count of units since the Unix epoch, as JSON writes it; unitNanos is the unit's length in
// nanoseconds: 1e9 for seconds, 1e6, 1e3 or 1. A number with a point or an exponent is ErrTimeInteger, one outside the range of
// EventTime is ErrTimeRange.
func TimeFromUnix(raw []byte, unitNanos int64) (EventTime, error) {
	digits := raw
	if len(raw) > 0 && raw[0] == '-' {
		digits = raw[1:]
	}
	if len(digits) == 0 {
		return NoTime, ErrTimeInteger
	}
	var n uint64
	overflow := false
	for _, c := range digits {
		c -= '0'
		if c > 9 {
			return NoTime, ErrTimeInteger
		}
		if n > math.MaxInt64/10 {
			overflow = true // keep reading: 99999999999999999999.5 is no integer
			continue
		}
		n = n*10 + uint64(c)
	}
	if overflow || n > uint64(math.MaxInt64/unitNanos) {
		return NoTime, ErrTimeRange
	}
	t := EventTime(n) * EventTime(unitNanos)
	if len(digits) != len(raw) {
		t = -t
	}
	if t == MaxTime {
		return NoTime, ErrTimeRange
	}
	return t, nil
}

// String is the time as RFC 3339 in UTC with as many fraction digits as needed, "2026-01-05T14:30:00Z"; "none" for NoTime and "end"
// for MaxTime.
func (t EventTime) String() string {
	var buf [len("2006-01-02T15:04:05.999999999Z")]byte
	return string(AppendTime(buf[:0], t))
}

// AppendTime appends what String returns.
func AppendTime(dst []byte, t EventTime) []byte {
	switch t {
	case NoTime:
		return append(dst, "none"...)
	case MaxTime:
		return append(dst, "end"...)
	}
	return time.Unix(0, int64(t)).UTC().AppendFormat(dst, time.RFC3339Nano)
}
