package backpressure

import (
	"strings"
	"testing"
	"time"
)

func TestRetention(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 5, 14, 0, 0, 0, time.UTC)
	type seen struct{ start, next, end int64 }
	for name, c := range map[string]struct {
		looks []seen // a minute apart
		risk  []bool
		want  Risk // of the last look
	}{
		"nothing is removed":     {[]seen{{0, 0, 1000}, {0, 10, 2000}, {0, 20, 3000}}, []bool{false, false, false}, Risk{}},
		"the run is at the end":  {[]seen{{0, 90, 90}, {60, 90, 90}, {89, 95, 95}}, []bool{false, false, false}, Risk{}},
		"the run reads faster":   {[]seen{{0, 1000, 9000}, {100, 2000, 9000}, {200, 3000, 9000}}, []bool{false, false, false}, Risk{}},
		"the log is faster":      {[]seen{{0, 10_000, 90_000}, {600, 10_060, 90_000}, {1200, 10_120, 90_000}}, []bool{false, false, true}, Risk{Start: 1200, Next: 10_120, End: 90_000, Left: 8920, Removed: 10, Read: 1, Step: 600, Window: time.Minute, In: 991_111_111_111}},
		"it is far away":         {[]seen{{0, 10_000_000, 90_000_000}, {600, 10_000_060, 90_000_000}}, []bool{false, false}, Risk{}},
		"the next removal is it": {[]seen{{0, 1500, 9000}, {1000, 1990, 9000}}, []bool{false, true}, Risk{Start: 1000, Next: 1990, End: 9000, Left: 990, Step: 1000}},
		"seldom and much":        {[]seen{{0, 5000, 90_000}, {1000, 5060, 90_000}, {1000, 5120, 90_000}}, []bool{false, false, false}, Risk{}},
		"lost already":           {[]seen{{0, 10, 9000}, {1000, 10, 9000}}, []bool{false, true}, Risk{Start: 1000, Next: 10, End: 9000, Left: -990, Step: 1000}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := NewRetention(time.Hour, time.Hour)
			for i, s := range c.looks {
				risk, is := r.Look(at.Add(time.Duration(i)*time.Minute), s.start, s.next, s.end)
				if is != c.risk[i] {
					t.Errorf("look %d: %v, %+v", i, is, risk)
				}
				if i == len(c.looks)-1 && risk != c.want {
					t.Errorf("%+v, want %+v", risk, c.want)
				}
			}
		})
	}
	text := Risk{Start: 1200, Next: 10_120, End: 90_000, Left: 8920, Removed: 10, Read: 1, Step: 600, In: 991 * time.Second}.String()
	for _, words := range []string{"begins at 1200", "needs 10120", "79880 behind", "8920 positions are left", "10.0 a second", "at most 600", "reads 1.0", "in about 16m31s"} {
		if !strings.Contains(text, words) {
			t.Errorf("%q lacks %q", text, words)
		}
	}
}

// What is remembered is bounded, and what is long past counts no more.
func TestRetentionForgets(t *testing.T) {
	t.Parallel()
	r, at := NewRetention(time.Hour, time.Hour), time.Unix(0, 0)
	for i := range int64(10_000) {
		at = at.Add(10 * time.Second)
		r.Look(at, i, i+100_000, i+200_000)
		if len(r.steps) > 2*maxSteps+3 {
			t.Fatalf("%d removals are kept", len(r.steps))
		}
	}
	if w := at.Sub(r.steps[0].at); w < 58*time.Minute || w > time.Hour {
		t.Errorf("the window is %s", w)
	}
	if _, is := r.Look(at.Add(2*time.Hour), 9_999, 10_001, 300_000); is {
		t.Error("a removal of two hours ago makes a risk")
	}
}
