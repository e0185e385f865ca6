package flow_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weirstream/weir/flow"
)

// TestAnUnknownLateSinkAmongErrors: that late names no sink is told beside the errors of the sinks, unless one whose name cannot be read may be meant.
func TestAnUnknownLateSinkAmongErrors(t *testing.T) {
	t.Parallel()
	for sinks, want := range map[string][]string{
		"sinks: [{name: o, type: jsonl}, {name: p, type: csv}]\nlate: {sink: q}": {"sinks[0].folder", "sinks[1].folder", "late.sink"},
		"sinks: [{name: o, type: jsonl}, {name: p, type: csv}]\nlate: {sink: p}": {"sinks[0].folder", "sinks[1].folder"},
		"sinks: [{name: o, type: odd}]\nlate: {sink: q}":                         {"sinks[0].type", "late.sink"},
		"sinks: [{name: o, type: odd}]\nlate: {sink: o}":                         {"sinks[0].type"},
		"sinks: [{type: jsonl, folder: o}]\nlate: {sink: q}":                     {"sinks[0].name"},
		"sinks: [7]\nlate: {sink: q}":                                            {"sinks[0]"},
		"sinks: 7\nlate: {sink: q}":                                              {"sinks"},
	} {
		_, err := flow.Parse("f", []byte(fmt.Sprintf(sinkHead, "a")+sinks+"\n"), nil)
		var list *flow.Errors
		if !errors.As(err, &list) {
			t.Errorf("%s: %v", sinks, err)
			continue
		}
		var got []string
		for _, e := range list.List {
			got = append(got, e.Path)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: errors at %v, want %v", sinks, got, want)
		}
	}
}
