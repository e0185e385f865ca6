package main

import (
	"context"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// shortestPrefix is how many letters of an id's hexadecimal part are needed to look for runs that begin so.
const shortestPrefix = 4

// findRun finds a run by its id, or by the beginning of its id, with or without "run_", when no other run begins so. Without a run it is
// RunUnknown, with several RequestInvalid.
func findRun(ctx context.Context, store control.Admission, id string) (control.BatchRun, error) {
	r, unknown := store.LookupRun(ctx, id)
	if !codes.Has(unknown, codes.RunUnknown) {
		return r, unknown
	}
	const always = "run_"
	prefix := always + strings.TrimPrefix(id, always)
	if len(prefix) < len(always)+shortestPrefix {
		return r, unknown
	}
	var found []control.BatchRun
	for f := (control.RunFilter{Limit: control.MaxPage}); len(found) < 3; {
		runs, next, err := store.ListRuns(ctx, f)
		if err != nil {
			return r, err
		}
		for _, run := range runs {
			if strings.HasPrefix(run.ID, prefix) {
				found = append(found, run)
			}
		}
		if f.Cursor = next; next == "" {
			break
		}
	}
	switch len(found) {
	case 0:
		return r, unknown
	case 1:
		return found[0], nil
	}
	return r, codes.New(codes.RequestInvalid, "several runs begin with %q, among them %s and %s; give more of the id", id, found[0].ID, found[1].ID)
}
