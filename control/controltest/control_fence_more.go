package controltest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// cancels cancels a call at every step of its write in turn, until one gets through. A call that says nothing stands, a call that is refused does not,
// and one whose outcome is unknown is there or not, as stands says.
func (p *plane) cancels(s control.ControlStore, what string, call func(ctx context.Context) error, stands func() (bool, error)) error {
	for n := 1; ; n++ {
		ctx, cancel := context.WithCancel(p.ctx)
		var mu sync.Mutex
		count, at := 0, ""
		p.Hook(s, func(step string) error {
			mu.Lock()
			defer mu.Unlock()
			if count++; count == n {
				at = step
				cancel()
			}
			return nil
		})
		err := call(ctx)
		p.Hook(s, nil)
		cancel()
		there, serr := stands()
		switch {
		case serr != nil:
			return fmt.Errorf("%s: cancelled at step %d (%s): %w", what, n, at, serr)
		case err == nil && !there, err != nil && there && control.Refused(err):
			return fmt.Errorf("%s: cancelled at step %d (%s): the call says %v, and it stands: %t", what, n, at, err, there)
		case err != nil && !control.Refused(err) && (!errors.Is(err, context.Canceled) || codes.Of(err) != nil):
			return fmt.Errorf("%s: cancelled at step %d (%s): the call says %v", what, n, at, err)
		case there && n == 1:
			return fmt.Errorf("%s: cancelled before anything was done, and it stands", what)
		case there:
			return nil
		case at == "":
			return fmt.Errorf("%s: after %d steps it does not stand: %v", what, n-1, err)
		}
	}
}

func checkFenceCancelled(p *plane) error {
	s := p.open()
	l, err := p.take(s, control.StreamLease(streamed.RunID), "a")
	if err != nil {
		return err
	}
	j := s.Under(l)
	err = p.cancels(s, "open", func(ctx context.Context) error { _, err := j.OpenRun(ctx, streamed.Header()); return err },
		func() (bool, error) { return p.known(s, streamed.RunID) })
	if err != nil {
		return err
	}
	for epoch := uint64(1); epoch <= 3; epoch++ {
		err := p.cancels(s, "commit", func(ctx context.Context) error { return j.Commit(ctx, streamed.Commit(epoch)) }, func() (bool, error) {
			there, err := p.at(s, streamed, epoch)
			if err == nil && !there {
				err = p.holds(s, streamed, epoch-1, l.Token)
			}
			return there, err
		})
		if err != nil {
			return err
		}
		if err := p.holds(s, streamed, epoch, l.Token); err != nil {
			return err
		}
	}
	return nil
}

func checkForkCancelled(p *plane) error {
	s := p.open()
	_, c, err := p.parent(s, 5, 7)
	if err != nil {
		return err
	}
	w := renamed(streamed, "fork")
	l, err := p.child(s, w.RunID)
	if err != nil {
		return err
	}
	err = p.cancels(s, "fork", func(ctx context.Context) error { return s.ForkRun(ctx, l, c.fork(w.RunID)) }, func() (bool, error) { return p.known(s, w.RunID) })
	if err != nil {
		return err
	}
	return p.holds(s, w, 5, l.Token)
}

// Two processes have one owner id by mistake, and so the same lease and token. Each epoch is committed by one of them: the compare-and-set decides.
func checkOneOwnerTwice(p *plane) error {
	const clients, until = 3, 8
	stores := p.opens(clients)
	l, err := p.stream(stores[0], streamed, "twin", 0)
	if err != nil {
		return err
	}
	for _, s := range stores[1:] {
		twin, err := p.take(s, l.Name, "twin")
		if err != nil || twin.Token != l.Token {
			return fmt.Errorf("the same owner again: token %d, %v; want %d", twin.Token, err, l.Token)
		}
		if _, err := s.Under(twin).OpenRun(p.ctx, streamed.Header()); err != nil {
			return err
		}
	}
	for epoch := uint64(1); epoch <= until; epoch++ {
		errs := together(clients, func(i int) error { return stores[i].Under(l).Commit(p.ctx, streamed.Commit(epoch)) })
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if err := refusal("the slower one", err, codes.JournalConflict); err != nil {
				return err
			}
		}
		if won != 1 {
			return fmt.Errorf("epoch %d was committed by %d", epoch, won)
		}
	}
	return p.holds(stores[1], streamed, until, l.Token)
}
