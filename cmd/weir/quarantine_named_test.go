package main

import (
	"strings"
	"testing"
)

// TestNamingWhatWasSetAside: an entry is shown by its position and by its number, and whoever names what is not there, to look at it or to decide about it, is
// told so: it is not taken for a choice of nothing.
func TestNamingWhatWasSetAside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	asideStore(t, dir)
	for _, by := range []string{"5", "--entries 2"} {
		if text := must(t, dir, args("quarantine show r-1 0 "+by, onStore)...); !strings.Contains(text, "position 5") || !strings.Contains(text, "TOMBSTONE") {
			t.Errorf("%s shows\n%s", by, text)
		}
	}
	several := parse(t, must(t, dir, args("quarantine show r-1 0 --entries 0-1 --json", onStore)...))["records"].([]any)
	if len(several) != 2 || several[1].(map[string]any)["position"] != "4" {
		t.Errorf("%v", several)
	}
	for command, words := range map[string][]string{
		"show r-1 0 --entries 1-7":           {"entries 3-7", "partition 0", "quarantine list"},
		"show r-1 1 4":                       {"position 4", "partition 1"},
		"show r-1 2 4":                       {"no partition 2"},
		"drop r-1 --partition 0 --entries 9": {"entries 9", "partition 0", "quarantine list"},
		"drop r-1 --partition 0 --entries 2,4 --kinds TOMBSTONE --apply --reason x": {"entries 4"},
		"replay r-1 --partition 1 --position 4":                                     {"position 4", "partition 1"},
		"replay r-1 --position 99 --apply --reason x":                               {"position 99"},
		"drop r-1 --partition 7 --apply --reason x":                                 {"no partition 7"},
		"redrive r-1 --brokers 127.0.0.1:1 --topic t --partition 0 --position 99":   {"position 99"},
	} {
		refused(t, dir, 3, append(words, "REQUEST_INVALID"), args("quarantine "+command, onStore)...)
	}
	for _, command := range []string{"show r-1 0", "show r-1 0 5 --entries 2", "show r-1 0 --entries x"} {
		refused(t, dir, 2, []string{"USAGE"}, args("quarantine "+command, onStore)...)
	}
	// What is there and is not chosen is no mistake.
	for _, command := range []string{"drop r-1 --partition 0 --entries 0 --kinds TOMBSTONE", "replay r-1 --partition 1 --position 7", "replay r-1 --partition 0 --states DROPPED"} {
		if text := must(t, dir, args("quarantine "+command, onStore)...); !strings.Contains(text, "nothing to decide about") {
			t.Errorf("%s:\n%s", command, text)
		}
	}
}
