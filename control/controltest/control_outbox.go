package controltest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

var outboxChecks = []controlCheck{
	{"outbox: order and batches", checkOutboxOrder},
	{"outbox: release", checkOutboxRelease},
	{"outbox: delivered", checkOutboxDelivered},
	{"outbox: claims are exclusive", checkClaimRace},
	{"outbox: wake", checkWake},
	{"outbox: claimants", checkClaimants},
	{"outbox: lost answers", checkOutboxLost},
}

func ids(events []control.OutboxEvent) []int64 {
	out := make([]int64, len(events))
	for i, e := range events {
		out[i] = e.ID
	}
	return out
}

func checkOutboxOrder(p *plane) error {
	const total = 120
	s, other := p.open(), p.open()
	if events, err := s.Claim(p.ctx, "a", 5); err != nil || len(events) > 0 {
		return fmt.Errorf("claim from an empty outbox: %+v, %v", events, err)
	}
	var runs []string
	for n := range total {
		run, err := p.admit(s, n)
		if err != nil {
			return err
		}
		runs = append(runs, run.ID)
	}
	listed, err := s.ListEvents(p.ctx, false, 0)
	if err != nil || len(listed) != total || !slices.IsSortedFunc(listed, func(a, b control.OutboxEvent) int { return int(a.ID - b.ID) }) {
		return fmt.Errorf("%d events listed, or not in order; %v", len(listed), err)
	}
	if some, err := s.ListEvents(p.ctx, false, 7); err != nil || !slices.Equal(ids(some), ids(listed[:7])) {
		return fmt.Errorf("the first 7 are %v, %v", ids(some), err)
	}
	at := 0
	for i, limit := range []int{1, 3, 0, 500, 10} {
		size := min(map[int]int{0: control.DefaultPage}[limit]+limit, total-at)
		claimant := []string{"a", "b"}[i%2]
		events, err := []control.ControlStore{s, other}[i%2].Claim(p.ctx, claimant, limit)
		if err != nil || len(events) != size {
			return fmt.Errorf("claim of %d: %d events, %v", limit, len(events), err)
		}
		for k, e := range events {
			if e.ID != listed[at+k].ID || e.RunID != runs[at+k] || e.Kind != control.EventRequested || e.Attempt != 1 || e.Claimant != claimant || e.ClaimedAt.IsZero() || e.Delivered {
				return fmt.Errorf("claimed %+v, want %+v", e, listed[at+k])
			}
		}
		at += size
	}
	all, err := s.ListEvents(p.ctx, false, 0)
	if err != nil || len(all) != total || all[0].Claimant != "a" || all[1].Claimant != "b" {
		return fmt.Errorf("%d claimed events listed, %v", len(all), err)
	}
	return nil
}

func checkOutboxRelease(p *plane) error {
	s := p.open()
	for n := range 6 {
		if _, err := p.admit(s, n); err != nil {
			return err
		}
	}
	mine, err := s.Claim(p.ctx, "a", 4)
	if err != nil {
		return err
	}
	theirs, err := s.Claim(p.ctx, "b", 1)
	if err != nil {
		return err
	}
	rest, err := s.ListEvents(p.ctx, false, 0)
	if err != nil || len(rest) != 6 {
		return fmt.Errorf("%d events, %v", len(rest), err)
	}
	pending := rest[5].ID
	for what, id := range map[string]int64{"another's": theirs[0].ID, "pending": pending, "missing": 1 << 40} {
		for _, ignored := range []bool{false, true} {
			before, err := p.dump(s)
			if err != nil {
				return err
			}
			if err := wants(what, s.ReleaseEvents(p.ctx, "a", []int64{id}, ignored), codes.EventNotClaimed); err != nil {
				return err
			}
			if after, err := p.dump(s); err != nil || after != before {
				return fmt.Errorf("release of one that is %s changed something: %v", what, err)
			}
		}
	}
	// The others of a call are released all the same.
	if err := wants("some", s.ReleaseEvents(p.ctx, "a", []int64{mine[0].ID, theirs[0].ID, mine[1].ID}, false), codes.EventNotClaimed); err != nil {
		return err
	}
	again, err := p.open().Claim(p.ctx, "c", 2)
	if err != nil || !slices.Equal(ids(again), ids(mine[:2])) || again[0].Attempt != 2 || again[1].Attempt != 2 || again[0].Claimant != "c" {
		return fmt.Errorf("released events come first again: %+v, %v", again, err)
	}
	if err := wants("the claimant before", s.ReleaseEvents(p.ctx, "a", []int64{mine[0].ID}, false), codes.EventNotClaimed); err != nil {
		return err
	}
	if err := s.ReleaseEvents(p.ctx, "", []int64{mine[0].ID, theirs[0].ID}, false); err != nil {
		return fmt.Errorf("by an operator: %w", err)
	}
	if err := s.ReleaseEvents(p.ctx, "a", []int64{mine[2].ID}, true); err != nil {
		return fmt.Errorf("ignored: %w", err)
	}
	if err := s.ReleaseEvents(p.ctx, "a", nil, false); err != nil {
		return fmt.Errorf("nothing: %w", err)
	}
	last, err := s.Claim(p.ctx, "d", 10)
	want := []int64{mine[0].ID, theirs[0].ID, pending}
	if err != nil || !slices.Equal(ids(last), want) || last[0].Attempt != 3 || last[1].Attempt != 2 || last[2].Attempt != 1 {
		return fmt.Errorf("claimed at last: %+v, %v, want %v", last, err, want)
	}
	return nil
}

func checkOutboxDelivered(p *plane) error {
	s := p.open()
	for n := range 4 {
		if _, err := p.admit(s, n); err != nil {
			return err
		}
	}
	l, err := p.take(s, "job", "a")
	if err != nil {
		return err
	}
	events, err := s.Claim(p.ctx, "a", 2)
	if err != nil {
		return err
	}
	for range 2 { // also once more
		if err := s.Fenced(p.ctx, l, control.Deliver{EventIDs: ids(events)}); err != nil {
			return err
		}
	}
	open, err := s.ListEvents(p.ctx, false, 0)
	if err != nil || len(open) != 2 || slices.Contains(ids(open), events[0].ID) {
		return fmt.Errorf("not delivered: %+v, %v", open, err)
	}
	all, err := s.ListEvents(p.ctx, true, 0)
	if err != nil || len(all) != 4 || !all[0].Delivered || !all[1].Delivered || all[2].Delivered {
		return fmt.Errorf("all: %+v, %v", all, err)
	}
	for _, claimant := range []string{"a", ""} {
		err := p.untouched(s, func() error {
			return wants("release of delivered events", s.ReleaseEvents(p.ctx, claimant, ids(events), false), codes.EventNotClaimed)
		})
		if err != nil {
			return err
		}
	}
	rest, err := s.Claim(p.ctx, "b", 10)
	if err != nil || !slices.Equal(ids(rest), ids(open)) {
		return fmt.Errorf("claimed after the delivery: %+v, %v", rest, err)
	}
	return nil
}

// untouched runs a call that must succeed and leave everything as it was.
func (p *plane) untouched(s control.ControlStore, call func() error) error {
	before, err := p.dump(s)
	if err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	after, err := p.dump(s)
	if err == nil && before != after {
		err = fmt.Errorf("something has changed\nbefore:\n%s\nafter:\n%s", before, after)
	}
	return err
}

// Admitters and claimants at once: every event is given once, each claimant's in order, and none is lost because a smaller id was committed
// later.
func checkClaimRace(p *plane) error {
	const admitters, each, claimants = 4, 20, 4
	stores := p.opens(admitters + claimants)
	var mu sync.Mutex
	given := map[int64]string{}
	admitted := make(chan struct{})
	var left sync.WaitGroup
	left.Add(admitters)
	go func() { left.Wait(); close(admitted) }()
	errs := together(admitters+claimants, func(i int) error {
		if i < admitters {
			defer left.Done()
			for n := range each {
				if _, err := p.admit(stores[i], i*each+n); err != nil {
					return err
				}
			}
			return nil
		}
		name := fmt.Sprintf("claimant-%d", i)
		for {
			last := false
			select {
			case <-admitted:
				last = true
			default:
			}
			events, err := stores[i].Claim(p.ctx, name, 3)
			if err != nil {
				return err
			}
			mu.Lock()
			for k, e := range events {
				if before, twice := given[e.ID]; twice {
					err = fmt.Errorf("event %d was given to %s and to %s", e.ID, before, name)
				}
				if given[e.ID] = name; k > 0 && e.ID <= events[k-1].ID {
					err = fmt.Errorf("events out of order: %v", ids(events))
				}
			}
			mu.Unlock()
			if err != nil || last && len(events) == 0 {
				return err
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// A claimant may see none while another one is claiming the last ones; what is left after all of them is lost.
	if rest, err := stores[0].Claim(p.ctx, "late", 500); err != nil || len(given)+len(rest) != admitters*each {
		return fmt.Errorf("%d events given and %d left of %d, %v", len(given), len(rest), admitters*each, err)
	}
	events, err := stores[0].ListEvents(p.ctx, true, 0)
	if err != nil || len(events) != admitters*each {
		return fmt.Errorf("%d events, %v", len(events), err)
	}
	for _, e := range events {
		if by, ok := given[e.ID]; ok && (e.Claimant != by || e.Attempt != 1) {
			return fmt.Errorf("event %+v was given to %s", e, by)
		}
	}
	return nil
}

func checkWake(p *plane) error {
	s, other := p.open(), p.open()
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	wake := s.Wake(ctx)
	timeout := time.After(p.waits())
	woken := func(what string) error {
		select {
		case _, ok := <-wake:
			if !ok {
				return fmt.Errorf("%s: the channel was closed", what)
			}
			return nil
		case <-timeout:
			return fmt.Errorf("%s: nobody woke up", what)
		}
	}
	if _, err := p.admit(s, 1); err != nil {
		return err
	}
	if err := woken("an admission here"); err != nil {
		return err
	}
	// A store may wake for more than new events, and not yet listen to others when Wake returns: admit until it is heard.
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		for n := 2; ; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := p.admit(other, n); err != nil {
				done <- err
				return
			}
		}
	}()
	werr := woken("an admission elsewhere")
	close(stop)
	if err := errors.Join(werr, <-done); err != nil {
		return err
	}
	cancel()
	for {
		select {
		case _, ok := <-wake:
			if !ok {
				return nil
			}
		case <-timeout:
			return errors.New("the channel is still open after its context")
		}
	}
}

func checkClaimants(p *plane) error {
	s := p.open()
	if _, err := p.admit(s, 1); err != nil {
		return err
	}
	for _, bad := range []string{"", "a\x00", "\xff", "a\n"} {
		err := p.unchanged(s, fmt.Sprintf("claimant %q", bad), codes.Internal, func() error { _, err := s.Claim(p.ctx, bad, 1); return err })
		if err != nil {
			return err
		}
	}
	for _, name := range oddNames {
		events, err := s.Claim(p.ctx, name, 1)
		if err != nil || len(events) != 1 || events[0].Claimant != name {
			return fmt.Errorf("claimant %q: %+v, %v", name, events, err)
		}
		if err := s.ReleaseEvents(p.ctx, name, ids(events), false); err != nil {
			return err
		}
	}
	return nil
}

func checkOutboxLost(p *plane) error {
	s := p.open()
	for n := range 3 {
		if _, err := p.admit(s, n); err != nil {
			return err
		}
	}
	if err := p.lost(s, "claim", func() error { _, err := s.Claim(p.ctx, "a", 2); return err }); err != nil {
		return err
	}
	// What was claimed without an answer is there to be found, by the claimant or by the reconciler.
	events, err := s.ListEvents(p.ctx, false, 0)
	if err != nil || len(events) != 3 || events[0].Claimant != "a" || events[1].Claimant != "a" || events[2].Claimant != "" {
		return fmt.Errorf("after the lost answer: %+v, %v", events, err)
	}
	release := func() error { return s.ReleaseEvents(p.ctx, "a", ids(events[:2]), false) }
	if err := p.lost(s, "release", release); err != nil {
		return err
	}
	if err := wants("release again", release(), codes.EventNotClaimed); err != nil {
		return err
	}
	again, err := s.Claim(p.ctx, "b", 3)
	if err != nil || len(again) != 3 || again[0].Attempt != 2 || again[2].Attempt != 1 {
		return fmt.Errorf("claimed again: %+v, %v", again, err)
	}
	return nil
}
