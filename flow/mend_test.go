package flow_test

import (
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
)

// A mended flow reads records otherwise, and computes the same of them.
func TestMends(t *testing.T) {
	t.Parallel()
	const was = `flow: weir/1
name: was
id: id
key: key
time: {field: at, unit: ms}
select: {field: kind, equals: trade}
revision: rev
lateness: 1m
operators: [{name: e, type: ema, input: x, period: 3}]
outputs: [e]
`
	plan := func(text string) *flow.Plan {
		p, err := flow.Parse("f.yaml", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct{ from, to, wrong string }{
		{"name: was", "name: is", ""},
		{"select: {field: kind, equals: trade}\n", "", ""},
		{"equals: trade", "in: [trade, 7]", ""},
		{"revision: rev\n", "", ""},
		{"revision: rev\n", "hold_key: true\n", ""},
		{"{field: at, unit: ms}", "{field: time, unit: s}", ""},
		{"id: id\nkey: key", "id: ident\nkey: symbol", ""},
		{"input: x", "input: price", ""},
		{"lateness: 1m", "lateness: 1m\nmax_future_skew: off", ""},
		{"lateness: 1m", "lateness: 2m", "lateness"},
		{"lateness: 1m", "lateness: 1m\ndedupe: {horizon: 5m}", "dedupe"},
		{"lateness: 1m", "lateness: 1m\nclock: {every: 5m}", "clock"},
		{"lateness: 1m", "lateness: 1m\nsequence: {field: n, gap_hold: 1m}", "sequence"},
		{"lateness: 1m", "lateness: 1m\nidle: {after_polls: 7}", "idle"},
		{"lateness: 1m", "lateness: 1m\nrevisions: {horizon: 7m}", "revisions, outputs"},
		{"period: 3", "period: 4", "operators"},
		{"type: ema", "type: sma", "operators"},
		{"name: e,", "name: f,", ""},
		{"outputs: [e]", "outputs: [{name: other, from: e}]", "outputs"},
	} {
		text := strings.Replace(was, c.from, c.to, 1)
		if c.from == "name: e," {
			text, c.wrong = strings.Replace(text, "outputs: [e]", "outputs: [{name: e, from: f}]", 1), "operators"
		}
		err := plan(text).Mends(plan(was))
		if c.wrong == "" && err != nil || c.wrong != "" && (!codes.Has(err, codes.ConfigInvalid) || !strings.Contains(err.Error(), "differ in "+c.wrong+".")) {
			t.Errorf("%s: %v, want %q", c.to, err, c.wrong)
		}
	}
	for _, c := range []struct{ was, is string }{{"revision: rev", "hold_key: true"}, {"revision: rev", "hold_key: {records: 50}"}} {
		held := strings.Replace(was, c.was, c.is, 1)
		if err := plan(was).Mends(plan(held)); err == nil || !strings.Contains(err.Error(), "revision, hold_key") {
			t.Errorf("%s given up: %v", c.is, err)
		}
	}
}
