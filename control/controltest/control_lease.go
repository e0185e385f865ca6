package controltest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

var leaseChecks = []controlCheck{
	{"lease: the table", checkLeaseTable},
	{"lease: renewal", checkRenewal},
	{"lease: release", checkRelease},
	{"lease: one winner of eight", checkLeaseRace},
	{"lease: the token only grows", checkTokenGrows},
	{"lease: deadline from the sending", checkDeadline},
	{"lease: listing", checkLeaseListing},
	{"lease: names and terms", checkLeaseNames},
	{"lease: cancelled context", checkLeaseContext},
	{"lease: lost answers", checkLeaseLost},
}

func checkLeaseTable(p *plane) error {
	a, b := p.open(), p.open()
	first, err := p.take(a, "job", "a")
	if err != nil {
		return err
	}
	if first.Name != "job" || first.Owner != "a" || first.Token != 1 || first.TTL != term || first.Until.IsZero() {
		return fmt.Errorf("created: %+v", first)
	}
	_, err = b.Acquire(p.ctx, "job", "b", term)
	if err := refusal("valid, another owner", err, codes.LeaseHeld); err != nil {
		return err
	}
	if text := err.Error(); !strings.Contains(text, `"a"`) || !strings.Contains(text, first.Until.UTC().Format("2006-01-02T15:04:05")) {
		return fmt.Errorf("the refusal does not name the holder and the expiry: %s", text)
	}
	again, err := p.take(b, "job", "a") // mine, through whatever connection
	if err != nil || again.Token != 1 || again.Until.Before(first.Until) {
		return fmt.Errorf("valid, mine: %+v, %v", again, err)
	}
	for i, owner := range []string{"b", "b", "a"} { // another's, mine, another's
		if err := p.Expire("job"); err != nil {
			return err
		}
		l, err := p.take(a, "job", owner)
		if want := control.FenceToken(i + 2); err != nil || l.Token != want || l.Owner != owner {
			return fmt.Errorf("expired: %+v, %v, want token %d", l, err, want)
		}
	}
	return nil
}

// stale says whether a term can no longer do anything.
func (p *plane) stale(s control.ControlStore, what string, l control.Lease) error {
	_, err := s.Renew(p.ctx, l)
	if err := refusal(what+": renew", err, codes.StaleFence); err != nil {
		return err
	}
	if err := refusal(what+": release", s.Release(p.ctx, l), codes.StaleFence); err != nil {
		return err
	}
	return refusal(what+": effect", s.Fenced(p.ctx, l), codes.StaleFence)
}

func checkRenewal(p *plane) error {
	s := p.open()
	l, err := p.take(s, "job", "a")
	if err != nil {
		return err
	}
	renewed, err := s.Renew(p.ctx, l)
	if err != nil || renewed.Token != 1 || renewed.Owner != "a" || renewed.Until.Before(l.Until) || renewed.Deadline.Before(l.Deadline) {
		return fmt.Errorf("renewal of %+v: %+v, %v", l, renewed, err)
	}
	short := l
	short.TTL = term / 2
	if renewed, err = s.Renew(p.ctx, short); err != nil || renewed.TTL != term/2 {
		return fmt.Errorf("renewal for half the time: %+v, %v", renewed, err)
	}
	for what, change := range map[string]func(*control.Lease){
		"an older token":  func(l *control.Lease) { l.Token-- },
		"a newer token":   func(l *control.Lease) { l.Token++ },
		"another owner":   func(l *control.Lease) { l.Owner = "b" },
		"no owner":        func(l *control.Lease) { l.Owner = "" },
		"an unknown name": func(l *control.Lease) { l.Name = "other" },
	} {
		forged := renewed
		change(&forged)
		if err := p.stale(s, what, forged); err != nil {
			return err
		}
	}
	if err := p.Expire("job"); err != nil {
		return err
	}
	for range 3 { // nor does trying again revive it
		if err := p.stale(s, "expired", renewed); err != nil {
			return err
		}
	}
	if info, ok, err := s.LookupLease(p.ctx, "job"); err != nil || !ok || info.Valid || info.Token != 1 {
		return fmt.Errorf("after heartbeats of an expired lease: %+v, %t, %v", info, ok, err)
	}
	if _, err := p.take(s, "job", "a"); err != nil { // the same owner, a new term
		return err
	}
	return p.stale(s, "the owner's old term", renewed)
}

func checkRelease(p *plane) error {
	s := p.open()
	l, err := p.take(s, "job", "a")
	if err != nil {
		return err
	}
	if err := s.Release(p.ctx, l); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if info, ok, err := s.LookupLease(p.ctx, "job"); err != nil || !ok || info.Valid || info.Token != 1 || info.Owner != "a" {
		return fmt.Errorf("after the release: %+v, %t, %v", info, ok, err)
	}
	if err := p.stale(s, "released", l); err != nil {
		return err
	}
	next, err := p.take(p.open(), "job", "b")
	if err != nil || next.Token != 2 {
		return fmt.Errorf("after the release: %+v, %v", next, err)
	}
	if err := p.stale(s, "taken over", l); err != nil {
		return err
	}
	if _, err := s.Renew(p.ctx, next); err != nil {
		return fmt.Errorf("a stale release ended the term of the next owner: %w", err)
	}
	return nil
}

// together runs n functions at once and returns their errors.
func together(n int, fn func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = fn(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

func checkLeaseRace(p *plane) error {
	const owners, rounds = 8, 6
	stores := p.opens(owners)
	for round := 1; round <= rounds; round++ {
		leases := make([]control.Lease, owners)
		errs := together(owners, func(i int) (err error) {
			leases[i], err = stores[i].Acquire(p.ctx, "job", fmt.Sprintf("owner-%d", i), term)
			return err
		})
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				return fmt.Errorf("round %d: %+v and %+v both won", round, leases[winner], leases[i])
			case err == nil:
				winner = i
			default:
				if err := refusal("a loser", err, codes.LeaseHeld); err != nil {
					return err
				}
			}
		}
		if winner < 0 {
			return fmt.Errorf("round %d: nobody won", round)
		}
		if leases[winner].Token != control.FenceToken(round) {
			return fmt.Errorf("round %d: token %d", round, leases[winner].Token)
		}
		end := p.Expire
		if round%2 == 0 {
			end = func(string) error { return stores[winner].Release(p.ctx, leases[winner]) }
		}
		if err := end("job"); err != nil {
			return err
		}
	}
	return nil
}

func checkTokenGrows(p *plane) error {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, 0))
	stores := p.opens(3)
	last := control.Lease{}
	for i := range 60 {
		s, owner := stores[rng.IntN(3)], fmt.Sprintf("owner-%d", rng.IntN(3))
		l, err := s.Acquire(p.ctx, "job", owner, term)
		info, _, lerr := s.LookupLease(p.ctx, "job")
		if lerr != nil {
			return lerr
		}
		switch {
		case err == nil && l.Token != last.Token && l.Token != last.Token+1, err == nil && l.Token == last.Token && l.Owner != last.Owner:
			return fmt.Errorf("seed %d, step %d: %+v after %+v", seed, i, l, last)
		case err != nil && !codes.Has(err, codes.LeaseHeld):
			return err
		case err == nil:
			last = l
		}
		if info.Token != last.Token {
			return fmt.Errorf("seed %d, step %d: the listing has token %d, the holder %d", seed, i, info.Token, last.Token)
		}
		switch rng.IntN(3) {
		case 0:
			err = p.Expire("job")
		case 1:
			err = s.Release(p.ctx, last)
		default:
			err = nil
		}
		if err != nil && !codes.Has(err, codes.StaleFence) {
			return err
		}
	}
	if last.Token < 10 {
		return fmt.Errorf("seed %d: only %d terms", seed, last.Token)
	}
	return nil
}

// An answer may come late: the holder counts from when it asked.
func checkDeadline(p *plane) error {
	s := p.open()
	var l control.Lease
	for what, call := range map[string]func() (control.Lease, error){
		"acquire": func() (control.Lease, error) { return s.Acquire(p.ctx, "job", "a", term) },
		"renew":   func() (control.Lease, error) { return s.Renew(p.ctx, l) },
	} {
		if what == "renew" && l.Token == 0 {
			var err error
			if l, err = p.take(s, "job", "a"); err != nil {
				return err
			}
		}
		var committed time.Time
		p.AfterCommit(s, func() error {
			committed = time.Now()
			for time.Since(committed) < 5*time.Millisecond { // the answer is under way
			}
			return nil
		})
		sent := time.Now()
		got, err := call()
		if err != nil {
			return err
		}
		if got.Deadline.Before(sent.Add(term)) || got.Deadline.After(committed.Add(term)) {
			return fmt.Errorf("%s: the deadline is %s after the sending and the ttl, the answer came %s after it", what, got.Deadline.Sub(sent)-term, time.Since(sent))
		}
		l = got
	}
	return nil
}

func checkLeaseListing(p *plane) error {
	s := p.open()
	if all, err := s.ListLeases(p.ctx); err != nil || len(all) > 0 {
		return fmt.Errorf("an empty store lists %v, %v", all, err)
	}
	if info, ok, err := s.LookupLease(p.ctx, "b"); err != nil || ok || info != (control.LeaseInfo{}) {
		return fmt.Errorf("an unknown lease: %+v, %t, %v", info, ok, err)
	}
	names := []string{"b", "B", "a_1", "a-1", "é", "run/1", "Z"}
	for _, name := range names {
		if _, err := p.take(s, name, "owner of "+name); err != nil {
			return err
		}
	}
	if err := p.Expire("Z"); err != nil {
		return err
	}
	slices.Sort(names)
	all, err := p.open().ListLeases(p.ctx)
	if err != nil || len(all) != len(names) {
		return fmt.Errorf("%d leases, %v", len(all), err)
	}
	for i, info := range all {
		if info.Name != names[i] || info.Owner != "owner of "+names[i] || info.Token != 1 || info.Valid != (info.Name != "Z") {
			return fmt.Errorf("line %d is %+v, want %q", i, info, names[i])
		}
		one, ok, err := s.LookupLease(p.ctx, names[i])
		if err != nil || !ok || !one.Until.Equal(info.Until) || one.Name != info.Name || one.Valid != info.Valid {
			return fmt.Errorf("looked up %+v, listed %+v, %v", one, info, err)
		}
	}
	return nil
}

// oddNames are possible and tempt whoever builds statements or files from names.
var oddNames = []string{`x"; DROP TABLE leases; --`, `it's 100 % \ _ sure`, "ключ/钥匙/🔑", strings.Repeat("n", control.MaxName), " ", "$1 ? :a @b"}

func checkLeaseNames(p *plane) error {
	s := p.open()
	for _, name := range oddNames {
		l, err := p.take(s, name, name)
		if err != nil {
			return err
		}
		if l, err = s.Renew(p.ctx, l); err != nil || l.Name != name || l.Owner != name {
			return fmt.Errorf("%q: %+v, %v", name, l, err)
		}
	}
	for _, bad := range []string{"", "a\x00b", "a\nb", "\xff", strings.Repeat("n", control.MaxName+1)} {
		_, err := s.Acquire(p.ctx, bad, "a", term)
		if err := refusal(fmt.Sprintf("name %.10q", bad), err, codes.Internal); err != nil {
			return err
		}
		_, err = s.Acquire(p.ctx, "job", bad, term)
		if err := refusal(fmt.Sprintf("owner %.10q", bad), err, codes.Internal); err != nil {
			return err
		}
	}
	for _, ttl := range []time.Duration{0, -time.Second, control.MinTTL - 1, control.MaxTTL + 1} {
		_, err := s.Acquire(p.ctx, "job", "a", ttl)
		if err := refusal(ttl.String(), err, codes.ConfigInvalid); err != nil {
			return err
		}
	}
	if all, err := s.ListLeases(p.ctx); err != nil || len(all) != len(oddNames) {
		return fmt.Errorf("refusals left leases: %v, %v", all, err)
	}
	return nil
}

func checkLeaseContext(p *plane) error {
	s := p.open()
	l, err := p.take(s, "job", "a")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(p.ctx)
	cancel()
	_, aerr := s.Acquire(ctx, "other", "a", term)
	_, rerr := s.Renew(ctx, l)
	_, merr := s.ListLeases(ctx)
	_, _, cerr := s.Admit(ctx, request(1))
	_, oerr := s.Claim(ctx, "a", 1)
	_, derr := s.Reconcile(ctx, true, 0)
	for i, err := range []error{aerr, rerr, merr, cerr, oerr, derr, s.Release(ctx, l), s.Fenced(ctx, l, control.Publish{Publications: []control.Publication{{Key: "k", Value: []byte("1")}}})} {
		if !errors.Is(err, context.Canceled) || codes.Of(err) != nil {
			return fmt.Errorf("call %d under a cancelled context: %v", i, err)
		}
	}
	if all, err := s.ListLeases(p.ctx); err != nil || len(all) != 1 || !all[0].Valid {
		return fmt.Errorf("after cancelled calls: %+v, %v", all, err)
	}
	_, err = s.Renew(p.ctx, l) // and the store goes on
	return err
}

func checkLeaseLost(p *plane) error {
	s := p.open()
	err := p.lost(s, "acquire", func() error { _, err := s.Acquire(p.ctx, "job", "a", term); return err })
	if err != nil {
		return err
	}
	l, err := p.take(s, "job", "a")
	if err != nil || l.Token != 1 {
		return fmt.Errorf("asked again after the lost answer: %+v, %v", l, err)
	}
	if err := p.lost(s, "renew", func() error { _, err := s.Renew(p.ctx, l); return err }); err != nil {
		return err
	}
	if l, err = s.Renew(p.ctx, l); err != nil {
		return err
	}
	if err := p.lost(s, "release", func() error { return s.Release(p.ctx, l) }); err != nil {
		return err
	}
	return p.stale(s, "released without an answer", l)
}
