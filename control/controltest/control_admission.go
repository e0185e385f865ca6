package controltest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

var admissionChecks = []controlCheck{
	{"admission: the table", checkAdmission},
	{"admission: requests that cannot be served", checkBadRequests},
	{"admission: scopes do not run together", checkScopes},
	{"admission: 32 clients, one key, one body", checkSameBody},
	{"admission: 32 clients, one key, two bodies", checkTwoBodies},
	{"admission: 32 clients, 32 keys", checkManyKeys},
	{"admission: listing", checkRunListing},
	{"admission: lost answer", checkAdmissionLost},
}

// sameRun compares a run with what it should be; times are only compared with each other.
func sameRun(got, want control.BatchRun) error {
	if !got.Created.Equal(want.Created) || !got.Updated.Equal(want.Updated) {
		return fmt.Errorf("times %s and %s, want %s and %s", got.Created, got.Updated, want.Created, want.Updated)
	}
	got.Created, got.Updated = want.Created, want.Updated
	if len(got.ResultRefs) == 0 && len(want.ResultRefs) == 0 {
		got.ResultRefs, want.ResultRefs = nil, nil
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("got %+v, want %+v", got, want)
	}
	return nil
}

func checkAdmission(p *plane) error {
	s, other := p.open(), p.open()
	r := request(1)
	r.Body = []byte(`{"b":-0.0,"x":1e-05,"ключ":"é\"\\"}`)
	want := control.BatchRun{ID: control.RunIDOf(r), Principal: "alice", Operation: "batch.run", Body: slices.Clone(r.Body), Flow: "ema", Snapshot: "ticks", Phase: control.Queued}
	run, created, err := s.Admit(p.ctx, r)
	if err != nil || !created || run.Created.IsZero() || run.Updated.Before(run.Created) { // a server may look at its clock for each of the two
		return fmt.Errorf("admission: %+v, created %t, %v", run, created, err)
	}
	want.Created, want.Updated = run.Created, run.Updated
	if err := sameRun(run, want); err != nil {
		return fmt.Errorf("admitted: %w", err)
	}
	again := r
	again.Body = slices.Clone(r.Body)
	clear(r.Body) // nothing of a call is kept
	got, err := other.LookupRun(p.ctx, want.ID)
	if err != nil {
		return err
	}
	if err := sameRun(got, want); err != nil {
		return fmt.Errorf("looked up: %w", err)
	}
	events, err := s.ListEvents(p.ctx, false, 0)
	if err != nil || len(events) != 1 {
		return fmt.Errorf("events %+v, %v", events, err)
	}
	if e := events[0]; e.ID < 1 || e.Kind != control.EventRequested || e.RunID != want.ID || e.Attempt != 0 || e.Claimant != "" || e.Delivered || !e.ClaimedAt.IsZero() || e.Created.IsZero() {
		return fmt.Errorf("event %+v", e)
	}
	before, err := p.dump(s)
	if err != nil {
		return err
	}
	got, created, err = other.Admit(p.ctx, again)
	if err != nil || created {
		return fmt.Errorf("the same again: created %t, %v", created, err)
	}
	if err := sameRun(got, want); err != nil {
		return fmt.Errorf("the same again: %w", err)
	}
	if after, err := p.dump(s); err != nil || after != before {
		return fmt.Errorf("the same again changed something: %v\n%s\n%s", err, before, after)
	}
	changed := again
	changed.Body = []byte(`{"b":0.0,"x":1e-05,"ключ":"é\"\\"}`)
	err = p.unchanged(s, "the same key with another body", codes.IdempotencyConflict, func() error { _, _, err := other.Admit(p.ctx, changed); return err })
	if err != nil {
		return err
	}
	if _, err := s.LookupRun(p.ctx, control.RunIDOf(changed)); !codes.Has(err, codes.RunUnknown) {
		return fmt.Errorf("look-up of a run that was refused: %v", err)
	}
	return p.admittedAfterItsEnd(s, again)
}

// The same request after its run has ended gets the run as it is, and starts nothing.
func (p *plane) admittedAfterItsEnd(s control.ControlStore, r control.Request) error {
	id := control.RunIDOf(r)
	l, err := p.take(s, control.RunLease(id), "worker")
	if err != nil {
		return err
	}
	events, err := s.Claim(p.ctx, "worker", 1)
	if err != nil || len(events) != 1 {
		return fmt.Errorf("claim: %v, %v", events, err)
	}
	err = s.Fenced(p.ctx, l, control.StartRun{RunID: id}, control.FinishRun{RunID: id, Phase: control.Succeeded, ResultRefs: []string{"r"}}, control.Deliver{EventIDs: []int64{events[0].ID}})
	if err != nil {
		return err
	}
	run, created, err := s.Admit(p.ctx, r)
	if err != nil || created || run.Phase != control.Succeeded || !slices.Equal(run.ResultRefs, []string{"r"}) {
		return fmt.Errorf("admitted after its end: %+v, created %t, %v", run, created, err)
	}
	if events, err := s.ListEvents(p.ctx, false, 0); err != nil || len(events) > 0 {
		return fmt.Errorf("and its event came back: %+v, %v", events, err)
	}
	return nil
}

func checkBadRequests(p *plane) error {
	s := p.open()
	for what, change := range map[string]func(r *control.Request){
		"no principal":        func(r *control.Request) { r.Principal = "" },
		"no operation":        func(r *control.Request) { r.Operation = "" },
		"no key":              func(r *control.Request) { r.Key = "" },
		"NUL in the key":      func(r *control.Request) { r.Key = "a\x00b" },
		"invalid key":         func(r *control.Request) { r.Key = "\xff" },
		"long key":            func(r *control.Request) { r.Key = strings.Repeat("k", control.MaxRequestName+1) },
		"control in the flow": func(r *control.Request) { r.Flow = "a\n" },
		"no body":             func(r *control.Request) { r.Body = nil },
		"not JSON":            func(r *control.Request) { r.Body = []byte(`{"a":`) },
		"not canonical":       func(r *control.Request) { r.Body = []byte(`{"b":1, "a":2}`) },
		"a repeated name":     func(r *control.Request) { r.Body = []byte(`{"a":1,"a":1}`) },
		"large body":          func(r *control.Request) { r.Body = []byte(`"` + strings.Repeat("x", control.MaxBody) + `"`) },
	} {
		r := request(1)
		change(&r)
		err := p.unchanged(s, what, codes.RequestInvalid, func() error { _, _, err := s.Admit(p.ctx, r); return err })
		if err != nil {
			return err
		}
	}
	for _, name := range oddNames {
		if len(name) > control.MaxRequestName {
			continue
		}
		r := request(1)
		r.Principal, r.Operation, r.Key, r.Flow = name, name, name, name
		run, created, err := s.Admit(p.ctx, r)
		if err != nil || !created || run.Principal != name || run.Operation != name || run.Flow != name {
			return fmt.Errorf("%q: %+v, %v", name, run, err)
		}
		if runs, _, err := s.ListRuns(p.ctx, control.RunFilter{Principal: name}); err != nil || len(runs) != 1 {
			return fmt.Errorf("listing for %q: %d, %v", name, len(runs), err)
		}
	}
	return nil
}

func checkScopes(p *plane) error {
	s := p.open()
	ids := map[string]bool{}
	for _, c := range [][3]string{{"a", "b", "c"}, {"ab", "c", "c"}, {"a", "bc", "c"}, {"a", "b", "cc"}, {"b", "a", "c"}, {"A", "b", "c"}, {"a", "b", "c "}, {"a", "b", "ç"}} {
		r := request(1)
		r.Principal, r.Operation, r.Key = c[0], c[1], c[2]
		run, created, err := s.Admit(p.ctx, r)
		if err != nil || !created || ids[run.ID] {
			return fmt.Errorf("%q: %+v, created %t, %v", c, run, created, err)
		}
		ids[run.ID] = true
	}
	events, err := p.events(s)
	if err == nil && len(events) != len(ids) {
		err = fmt.Errorf("%d events", len(events))
	}
	return err
}

// clients runs 32 admissions at once over 8 handles.
func (p *plane) clients(request func(i int) control.Request) (runs []control.BatchRun, created int, errs []error) {
	const clients = 32
	stores := p.opens(8)
	runs = make([]control.BatchRun, clients)
	var n atomic.Int32
	errs = together(clients, func(i int) error {
		run, isNew, err := stores[i%len(stores)].Admit(p.ctx, request(i))
		if isNew {
			n.Add(1)
		}
		runs[i] = run
		return err
	})
	return runs, int(n.Load()), errs
}

// stand says whether so many runs and events stand.
func (p *plane) stand(n int) error {
	s := p.open()
	runs, _, err := s.ListRuns(p.ctx, control.RunFilter{Limit: control.MaxPage})
	if err != nil {
		return err
	}
	events, err := p.events(s)
	if err != nil {
		return err
	}
	if len(runs) != n || len(events) != n {
		return fmt.Errorf("%d runs and %d events stand, want %d", len(runs), len(events), n)
	}
	return nil
}

func checkSameBody(p *plane) error {
	runs, created, errs := p.clients(func(int) control.Request { return request(1) })
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, run := range runs {
		if err := sameRun(run, runs[0]); err != nil {
			return err
		}
	}
	if created != 1 {
		return fmt.Errorf("%d clients were told that they created the run", created)
	}
	return p.stand(1)
}

func checkTwoBodies(p *plane) error {
	requests := [2]control.Request{request(1), request(2)}
	requests[1].Key = requests[0].Key
	runs, created, errs := p.clients(func(i int) control.Request { return requests[i%2] })
	winner := ""
	for i, err := range errs {
		switch {
		case err == nil && winner != "" && runs[i].ID != winner:
			return fmt.Errorf("runs %s and %s of one key", winner, runs[i].ID)
		case err == nil:
			winner = runs[i].ID
		default:
			if err := refusal("the other body", err, codes.IdempotencyConflict); err != nil {
				return err
			}
		}
	}
	for i, err := range errs {
		if wins := control.RunIDOf(requests[i%2]) == winner; wins != (err == nil) {
			return fmt.Errorf("client %d: %v, and its body wins: %t", i, err, wins)
		}
	}
	if created != 1 {
		return fmt.Errorf("%d clients were told that they created the run", created)
	}
	return p.stand(1)
}

func checkManyKeys(p *plane) error {
	_, created, errs := p.clients(func(i int) control.Request {
		r := request(1)
		r.Key = fmt.Sprintf("key-%d", i)
		return r
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if created != 32 {
		return fmt.Errorf("%d runs created", created)
	}
	return p.stand(32)
}

func checkRunListing(p *plane) error {
	const total = 120
	s := p.open()
	if runs, next, err := s.ListRuns(p.ctx, control.RunFilter{}); err != nil || len(runs) > 0 || next != "" {
		return fmt.Errorf("an empty store: %v, %q, %v", runs, next, err)
	}
	var all []control.BatchRun // newest first
	for n := range total {
		r := request(n)
		if n%3 == 0 {
			r.Principal = "bob"
		}
		run, _, err := s.Admit(p.ctx, r)
		if err != nil {
			return err
		}
		if n%10 == 0 {
			if err := p.SetPhase(run.ID, control.Failed); err != nil {
				return err
			}
			run.Phase = control.Failed
		}
		all = append([]control.BatchRun{run}, all...)
	}
	for _, f := range []control.RunFilter{{}, {Limit: 1}, {Limit: 40}, {Limit: 120}, {Limit: 119}, {Limit: 1000}, {Limit: -1}, {Principal: "bob", Limit: 7}, {Phase: control.Failed, Limit: 5}, {Phase: control.Failed, Principal: "bob"}, {Principal: "nobody"}, {Phase: control.Running}} {
		var want []string
		for _, run := range all {
			if (f.Principal == "" || f.Principal == run.Principal) && (f.Phase == "" || f.Phase == run.Phase) {
				want = append(want, run.ID)
			}
		}
		if err := p.pages(s, f, want); err != nil {
			return fmt.Errorf("%+v: %w", f, err)
		}
	}
	for _, cursor := range []string{"x", "-1", "0", "1.5", "99999999999999999999", "1 OR 1=1"} {
		_, _, err := s.ListRuns(p.ctx, control.RunFilter{Cursor: cursor})
		if err := refusal("cursor "+cursor, err, codes.RequestInvalid); err != nil {
			return err
		}
	}
	_, err := s.LookupRun(p.ctx, "run_0")
	return refusal("look-up of an unknown run", err, codes.RunUnknown)
}

// pages reads a listing page by page; runs that come meanwhile are newer and do not disturb it.
func (p *plane) pages(s control.ControlStore, f control.RunFilter, want []string) error {
	var got []string
	for {
		runs, next, err := s.ListRuns(p.ctx, f)
		if err != nil {
			return err
		}
		for _, run := range runs {
			got = append(got, run.ID)
		}
		if full := len(runs) == f.PageSize(); len(runs) > f.PageSize() || next != "" && !full || next == "" && len(got) < len(want) || len(got) > len(want) {
			return fmt.Errorf("a page of %d runs, next %q, after %d of %d", len(runs), next, len(got), len(want))
		}
		if f.Cursor = next; next == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%d runs, want %d: other ones, or in another order", len(got), len(want))
	}
	return nil
}

func checkAdmissionLost(p *plane) error {
	s := p.open()
	if err := p.lost(s, "admit", func() error { _, _, err := s.Admit(p.ctx, request(1)); return err }); err != nil {
		return err
	}
	run, created, err := s.Admit(p.ctx, request(1))
	if err != nil || created || run.ID != control.RunIDOf(request(1)) {
		return fmt.Errorf("asked again after the lost answer: %+v, created %t, %v", run, created, err)
	}
	if err := p.lost(s, "cancel", func() error { _, err := s.CancelRun(p.ctx, run.ID); return err }); err != nil {
		return err
	}
	if run, err = s.CancelRun(p.ctx, run.ID); err != nil || !run.CancelRequested {
		return fmt.Errorf("cancelled again after the lost answer: %+v, %v", run, err)
	}
	return p.stand(1)
}
