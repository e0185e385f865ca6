package main

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// listed is a store that knows these runs, two a page.
type listed struct {
	control.Admission
	ids []string
}

func (l listed) LookupRun(_ context.Context, id string) (control.BatchRun, error) {
	for _, known := range l.ids {
		if known == id {
			return control.BatchRun{ID: id}, nil
		}
	}
	return control.BatchRun{}, codes.New(codes.RunUnknown, "no run %q", id)
}

func (l listed) ListRuns(_ context.Context, f control.RunFilter) (runs []control.BatchRun, next string, err error) {
	at, _ := strconv.Atoi(f.Cursor) // "" is 0
	for _, id := range l.ids[at:min(at+2, len(l.ids))] {
		runs = append(runs, control.BatchRun{ID: id})
	}
	if at+2 < len(l.ids) {
		next = strconv.Itoa(at + 2)
	}
	return runs, next, nil
}

func TestFindRun(t *testing.T) {
	t.Parallel()
	store := listed{ids: []string{"run_aaaa1", "run_bbbb1", "run_aaaa2", "run_aaaa22", "run_cccc1"}}
	for given, want := range map[string]string{"run_bbbb1": "run_bbbb1", "run_bbbb": "run_bbbb1", "cccc": "run_cccc1", "cccc1": "run_cccc1", "run_aaaa1": "run_aaaa1", "aaaa1": "run_aaaa1", "run_aaaa2": "run_aaaa2", "aaaa22": "run_aaaa22"} {
		if r, err := findRun(t.Context(), store, given); err != nil || r.ID != want {
			t.Errorf("%s: %q, %v, want %q", given, r.ID, err, want)
		}
	}
	for given, want := range map[string]*codes.Code{"aaaa": codes.RequestInvalid, "run_aaaa": codes.RequestInvalid, "aaaa2": codes.RequestInvalid, "dddd": codes.RunUnknown, "ccc": codes.RunUnknown, "": codes.RunUnknown, "run_": codes.RunUnknown, "bbbb11": codes.RunUnknown} {
		if r, err := findRun(t.Context(), store, given); !codes.Has(err, want) || r.ID != "" {
			t.Errorf("%q: %q, %v, want %s", given, r.ID, err, want.Name)
		}
	}
}

// What people read has whole seconds; what machines read has all there is.
func TestListsAreForPeople(t *testing.T) {
	t.Parallel()
	dir := planeDir(t)
	run := parse(t, must(t, dir, args("runs submit --flow ema --snapshot fixture --json", onStore)...))
	id := run["id"].(string)
	shown := must(t, dir, args("runs show "+id[:12], onStore)...)
	list := must(t, dir, args("runs list", onStore)...)
	second := regexp.MustCompile(`\d\d:\d\d:\d\dZ`)
	for _, text := range []string{shown, list} {
		if !strings.Contains(text, id) || !second.MatchString(text) || regexp.MustCompile(`:\d\d\.\d`).MatchString(text) {
			t.Errorf("%s", text)
		}
	}
	if created := run["created"].(string); !regexp.MustCompile(`\.\d+Z$`).MatchString(created) {
		t.Errorf("--json says %s", created)
	}
}
