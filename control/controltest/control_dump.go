package controltest

import (
	"fmt"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// dump is everything that the plane shows, for comparisons before and after.
func (p *plane) dump(s control.ControlStore) (string, error) {
	var b strings.Builder
	leases, err := s.ListLeases(p.ctx)
	if err != nil {
		return "", err
	}
	for _, l := range leases {
		fmt.Fprintf(&b, "lease %q %q %d %d %t\n", l.Name, l.Owner, l.Token, l.Until.UnixNano(), l.Valid)
	}
	runs, _, err := s.ListRuns(p.ctx, control.RunFilter{Limit: control.MaxPage})
	if err != nil {
		return "", err
	}
	for _, r := range runs {
		fmt.Fprintf(&b, "run %s %s %s %q %q %q %s %d %q %q %t %d %d\n", r.ID, r.Principal, r.Operation, r.Body, r.Flow, r.Snapshot, r.Phase, r.Revision, r.ResultRefs, r.Error, r.CancelRequested,
			r.Created.UnixNano(), r.Updated.UnixNano())
	}
	events, err := s.ListEvents(p.ctx, true, 0)
	if err != nil {
		return "", err
	}
	for _, e := range events {
		fmt.Fprintf(&b, "event %d %s %s %d %q %t %t %d\n", e.ID, e.Kind, e.RunID, e.Attempt, e.Claimant, e.ClaimedAt.IsZero(), e.Delivered, e.Created.UnixNano())
	}
	err = s.Publications(p.ctx, "", func(pub control.Publication, digest string) error {
		fmt.Fprintf(&b, "publication %q %s %q %s\n", pub.Key, digest, pub.RunID, record.Hash(pub.Value))
		return nil
	})
	if err != nil {
		return "", err
	}
	err = p.dumpStreams(s, &b)
	return b.String(), err
}

// dumpStreams adds stream runs and their checkpoints.
func (p *plane) dumpStreams(s control.ControlStore, b *strings.Builder) error {
	runs, err := s.Runs(p.ctx)
	if err != nil {
		return err
	}
	for _, r := range runs {
		var fence control.FenceToken
		err := s.Snapshot(p.ctx, r.Header.RunID, func(v control.JournalView) error { fence = v.State().Fence; return nil })
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "stream %+v %s %d %s %+v fence %d %d\n", r.Header, r.Status, r.Epoch, r.Watermark, r.Counts, fence, r.Committed.UnixNano())
	}
	pointers, err := s.ListPointers(p.ctx, "")
	for _, c := range pointers {
		fmt.Fprintf(b, "checkpoint %+v %d\n", c, c.Created.UnixNano())
	}
	if err != nil {
		return err
	}
	for _, r := range runs {
		all, err := s.ListInterventions(p.ctx, r.Header.RunID, false)
		if err != nil {
			return err
		}
		for _, i := range all {
			fmt.Fprintf(b, "intervention %+v\n", i)
		}
	}
	return nil
}

// unchanged runs a call that must be refused with the code and must leave everything as it was.
func (p *plane) unchanged(s control.ControlStore, what string, code *codes.Code, call func() error) error {
	before, err := p.dump(s)
	if err != nil {
		return err
	}
	if err := refusal(what, call(), code); err != nil {
		return err
	}
	after, err := p.dump(s)
	if err != nil {
		return err
	}
	if before != after {
		return fmt.Errorf("%s: something stands of it\nbefore:\n%s\nafter:\n%s", what, before, after)
	}
	return nil
}
