package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirstream/weir/record"
)

// Words of sentences.

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}

// age is the time since a moment.
func age(now time.Time, from *time.Time) string {
	if from == nil {
		return "an unknown time"
	}
	return Age(now.Sub(*from))
}

// Age is a duration for people: no more digits than matter.
func Age(d time.Duration) string {
	switch {
	case d < time.Second:
		return max(d, 0).Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func since(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " since " + clock(*t)
}

func at(t *time.Time) string {
	if t == nil {
		return ""
	}
	return ", at " + clock(*t)
}

func until(t *time.Time) string {
	if t == nil {
		return ""
	}
	return " until " + clock(*t)
}

func cure(c *Cause) string {
	if c == nil || c.Cure == "" {
		return ""
	}
	return "; " + firstLower(c.Cure)
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

func firstLower(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

func firstUpper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func orSomebody(s string) string { return orText(s, "another process") }

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func orNone(s *string) string {
	if s == nil {
		return "unknown"
	}
	return *s
}

func records(n *int64) string {
	switch {
	case n == nil:
		return "some records"
	case *n == 1:
		return "1 record"
	}
	return fmt.Sprintf("%d records", *n)
}

func rows(n int64) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}

// before compares two positions written as decimals; false when one is none.
func before(a, b string) bool {
	x, errA := record.ParsePosition(a)
	y, errB := record.ParsePosition(b)
	return errA == nil && errB == nil && x.Cmp(y) < 0
}

// Distance is how many positions b is behind a, where positions are dense; ok is false when they are not, or one is none.
func Distance(a, b record.Position) (n int64, ok bool) {
	x, okA := a.Int64()
	y, okB := b.Int64()
	if !okA || !okB {
		return 0, false
	}
	return max(y-x, 0), true
}
