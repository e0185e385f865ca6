package parity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
)

// TestRevisionsAreExplained: a revision within the lateness, behind the watermark and beyond the horizon, of flows that publish what changes and that do not,
// whatever the number of partitions, the fetches and the crashes.
func TestRevisionsAreExplained(t *testing.T) {
	t.Parallel()
	numbered := strings.Replace(smallFlow, "lateness: 1m", "lateness: 10s\nrevision: revision", 1)
	grid := numbered + "clock: {every: 1m}\n"
	const publish, adopt = "revisions: {horizon: 5m}\n", "revisions: {horizon: 5m, publish: false}\n"
	var events strings.Builder
	for i := range 8 {
		fmt.Fprintf(&events, `{"close":%d,"event_id":"e%d","event_time":"2026-01-05T14:%02d:%02dZ","instrument":"1","venue":1}`+"\n", i, i, 30+i/2, 30*(i%2))
	}
	// Every revision has the close 99; e1 is at 14:30:30 and the only event of its interval that a clock takes.
	revised := func(delay int) string {
		return fmt.Sprintf(`{"event_id":"e1","kind":"REVISION","domain_ms":%d,"close":99}`, delay)
	}
	for _, test := range []struct {
		name, flow, fault string
		verdict           Verdict
		rows              int64
		values            string // of the stream: the results, and behind a colon the number of the revision
	}{
		{"within the lateness", numbered, revised(5_000), EqualExplained, 8, "0 99 2 3 4 5 6 7"},
		{"behind the watermark", numbered, revised(45_000), EqualToBatch, 8, "0 1 2 3 4 5 6 7"},
		{"before the tick", grid, revised(25_000), EqualExplained, 4, "99 3 5 7"},
		{"after the tick", grid, revised(65_000), EqualToBatch, 4, "1 3 5 7"},
		{"published", numbered + publish, revised(95_000), EqualExplained, 9, "0:0 1:0 2:0 3:0 99:1 4:0 5:0 6:0 7:0"},
		{"published by a clock", grid + publish, revised(95_000), EqualExplained, 5, "1:0 99:1 3:0 5:0 7:0"},
		{"adopted", strings.Replace(numbered, "type: last, input: close", "type: sma, input: close, period: 4", 1) + adopt, revised(95_000), EqualExplained, 8,
			"<nil> <nil> <nil> 1.5 27 3.5 4.5 5.5"},
		{"beyond the horizon", numbered + strings.Replace(publish, "5m", "20s", 1), revised(95_000), EqualToBatch, 8, "0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0"},
		{"no revision", numbered + publish, `{"event_id":"e1","kind":"DELAY","domain_ms":1000}`, EqualToBatch, 8, "0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0"},
	} {
		for _, crash := range []int64{0, 1, 3} {
			cfg := smallConfig(t, test.flow, events.String(), test.fault)
			cfg.CrashEvery, cfg.Fetch, cfg.Partitions = crash, 1+int(crash), 1+int32(crash)
			r, err := Run(context.Background(), cfg)
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			var values []string
			for _, v := range r.Stream.Values {
				if m, ok := v.(map[string]any); ok {
					v = fmt.Sprintf("%v:%v", m["l"], m["revision"])
				}
				values = append(values, fmt.Sprint(v))
			}
			if got := strings.Join(values, " "); r.Verdict != test.verdict || r.Stream.Rows != test.rows || got != test.values {
				t.Errorf("%s, crashes %d: %s %v, %d rows %s, want %s %d %s", test.name, crash, r.Verdict, r.Reasons, r.Stream.Rows, got, test.verdict, test.rows, test.values)
			}
			explained := slices.ContainsFunc(r.Explained, func(x Exception) bool { return x.Reason == partitions.ReasonRevised && x.EventID == "e1" })
			if explained != (test.verdict == EqualExplained) {
				t.Errorf("%s: explained by %v", test.name, r.Explained)
			}
		}
	}
}

// TestOtherStandingRowsDiffer: what the verdict goes by tells rows apart.
func TestOtherStandingRowsDiffer(t *testing.T) {
	t.Parallel()
	cfg := smallConfig(t, smallFlow+"revision: revision\nrevisions: {horizon: 5m}\n", "", "")
	type row struct {
		key    string
		value  float64
		number float64
	}
	collect := func(rows ...row) *standing {
		var s standing
		into := batch.Config{Plan: cfg.Plan}
		s.of(&into)
		for _, r := range rows {
			one := partitions.Row{ID: []byte("e"), Key: []byte(r.key), Values: []operators.Value{operators.Number(r.value), operators.Number(r.number)}}
			if err := into.Row(&one); err != nil {
				t.Fatal(err)
			}
		}
		return &s
	}
	want := collect(row{key: "k", value: 2})
	for name, c := range map[string]struct {
		rows []row
		says string
	}{
		"the same":          {[]row{{key: "k", value: 2}}, ""},
		"in the end":        {[]row{{key: "k", value: 1}, {key: "k", value: 2, number: 1}}, ""},
		"another value":     {[]row{{key: "k", value: 2}, {key: "k", value: 1, number: 1}}, `key "k"`},
		"a lower number":    {[]row{{key: "k", value: 1, number: 2}, {key: "k", value: 2, number: 1}}, "[2.0] in batch and [1.0] in the stream"},
		"one more":          {[]row{{key: "k", value: 2}, {key: "l", value: 2}}, `key "l"`},
		"none":              {nil, "absent in the stream"},
		"another zero sign": {[]row{{key: "k", value: 2.0000000000000004}}, "2.0000000000000004"},
	} {
		if got := want.difference(collect(c.rows...)); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
	if want.firstAre(collect(row{key: "k", value: 1}, row{key: "k", value: 2, number: 1})) || !want.firstAre(collect(row{key: "k", value: 2}, row{key: "k", value: 1, number: 1})) {
		t.Error("first rows are not told apart")
	}
}
