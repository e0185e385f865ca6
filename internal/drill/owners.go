package drill

import (
	"context"
	"time"

	"github.com/weirstream/weir/control"
)

// What is published before, during and after a stall, in copies of the log.
const (
	copiesBefore = 5
	copiesDuring = 7
	copiesAfter  = goldenTimes - copiesBefore - copiesDuring
)

// owners: an intruder is refused; the owner stalls, its lease runs out, the next one goes on from its last commit; it wakes and is refused.
func (p *part) owners(ctx context.Context) error {
	t, err := p.newTopic(ctx, p.name, goldenPartitions)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.publish(ctx, copiesBefore); err != nil {
		return err
	}
	p.on(t)
	a, err := p.weir("a", options{})
	if err != nil {
		return err
	}
	before, err := p.committed(ctx, a, copiesBefore*goldenArrivals)
	if err != nil {
		return err
	}
	held, err := p.lease(ctx)
	if err != nil {
		return err
	}
	p.promise(held.Valid && held.Token == 1, "A owns the run under token 1", "token %d, owner %s", held.Token, held.Owner)
	p.promise(before.Fence == 1, "A's journal is written under its token", "fence %d", before.Fence)
	p.promise(records(before) == copiesBefore*goldenArrivals && before.Epoch > 0, "A consumes and advances the journal", "%d records, epoch %d", records(before), before.Epoch)
	if err := p.intruder(ctx, before, held); err != nil {
		return err
	}
	return p.stall(ctx, t, a, before)
}

// intruder: with A healthy, B0 gets nothing and changes nothing.
func (p *part) intruder(ctx context.Context, before control.RunState, held control.LeaseInfo) error {
	b0, err := p.weir("b0", options{})
	if err != nil {
		return err
	}
	if err := p.refused(ctx, b0, "the intruder B0", "STREAM_LEASE_OCUPADO"); err != nil {
		return err
	}
	_, said, named := b0.when("STREAM_LEASE_OCUPADO", held.Owner)
	p.promise(named, "the refusal names the holder", "%s", said)
	after, _, err := p.state(ctx)
	if err != nil {
		return err
	}
	l, err := p.lease(ctx)
	if err != nil {
		return err
	}
	p.promise(after.Epoch == before.Epoch && records(after) == records(before), "the intruder leaves the journal as it is", "epoch %d and %d records before and %d and %d after", before.Epoch, records(before), after.Epoch, records(after))
	p.promise(l.Token == 1 && l.Owner == held.Owner && l.Valid, "the lease stays A's under token 1", "token %d, owner %s", l.Token, l.Owner)
	return nil
}

// stall: A stands still, B takes over after the expiry, A wakes and is refused, B ends.
func (p *part) stall(ctx context.Context, t *topic, a *process, before control.RunState) error {
	err := p.freeze(ctx, a)
	p.fault(Fault{Part: p.name, Kind: "SIGSTOP", At: "outside", Epoch: before.Epoch, Fired: err == nil})
	if err != nil {
		return err
	}
	stalled, err := p.lease(ctx)
	if err != nil {
		return err
	}
	if err := t.publish(ctx, copiesDuring); err != nil {
		return err
	}
	b, err := p.weir("b", options{standby: true})
	if err != nil {
		return err
	}
	taken, err := p.owned(ctx, b, 2, p.ttl+patience)
	if err != nil {
		return err
	}
	began := taken.Until.Add(-p.ttl)
	p.promise(taken.Token == 2 && taken.Owner != stalled.Owner, "the lease goes from A to B, token 1 to 2", "token %d to %d", stalled.Token, taken.Token)
	p.promise(!began.Before(stalled.Until), "B does not take the lease before it has run out", "it ran out at %s, B's term began at %s, by the store's clock", hms(stalled.Until), hms(began))
	p.promise(began.Sub(stalled.Until) <= p.Grace, "B takes over within "+p.Grace.String()+" of the expiry", "%s after it", began.Sub(stalled.Until).Round(time.Millisecond))
	p.figure("takeover_after_stall", began.Sub(stalled.Until))
	now, err := p.committed(ctx, b, (copiesBefore+copiesDuring)*goldenArrivals)
	if err != nil {
		return err
	}
	if err := p.resumed(ctx, b, "B", before); err != nil {
		return err
	}
	return p.wake(ctx, t, a, b, now)
}

func (p *part) wake(ctx context.Context, t *topic, a, b *process, now control.RunState) error {
	if err := a.thaw(); err != nil {
		return err
	}
	if err := p.refused(ctx, a, "A, awake again,", "STREAM_FENCE_OBSOLETO"); err != nil {
		return err
	}
	after, _, err := p.state(ctx)
	if err != nil {
		return err
	}
	p.promise(after.Fence == 2 && after.Epoch >= now.Epoch && records(after) == records(now), "A, awake again, writes nothing to the journal", "%d records before and %d after, fence %d", records(now), records(after), after.Fence)
	l, err := p.lease(ctx)
	if err != nil {
		return err
	}
	p.promise(l.Token == 2 && l.Valid, "B keeps the lease", "token %d, valid %v", l.Token, l.Valid)
	if err := t.publish(ctx, copiesAfter); err != nil {
		return err
	}
	return p.golden(ctx, b, 2)
}

func hms(t time.Time) string { return t.UTC().Format("15:04:05.000Z") }

// kill: the owner gets SIGKILL. One that does not wait is refused, since the lease is fresh; a stand-by waits and goes on.
func (p *part) kill(ctx context.Context) error {
	t, err := p.newTopic(ctx, p.name, goldenPartitions)
	if err != nil {
		return err
	}
	defer t.close()
	if err := t.publish(ctx, copiesBefore); err != nil {
		return err
	}
	p.on(t)
	b2, err := p.weir("b2", options{})
	if err != nil {
		return err
	}
	before, err := p.committed(ctx, b2, copiesBefore*goldenArrivals)
	if err != nil {
		return err
	}
	p.promise(before.Epoch > 0, "B2 advances the journal", "epoch %d, %d records", before.Epoch, records(before))
	if err := t.publish(ctx, copiesDuring); err != nil {
		return err
	}
	err = b2.cmd.Process.Kill()
	killed := time.Now()
	if err == nil {
		err = b2.wait(ctx, patience)
	}
	p.fault(Fault{Part: p.name, Kind: "SIGKILL", At: "outside", Epoch: before.Epoch, Fired: err == nil && b2.code() == -1})
	if err != nil {
		return err
	}
	if err := t.publish(ctx, copiesAfter); err != nil {
		return err
	}
	return p.after(ctx, b2, killed)
}

// after: what comes after the kill of b2.
func (p *part) after(ctx context.Context, b2 *process, killed time.Time) error {
	left, _, err := p.state(ctx)
	if err != nil {
		return err
	}
	fresh, err := p.lease(ctx)
	if err != nil {
		return err
	}
	p.noEmit(b2, "the killed B2")
	c0, err := p.weir("c0", options{})
	if err != nil {
		return err
	}
	c, err := p.weir("c", options{standby: true})
	if err != nil {
		return err
	}
	if err := p.refused(ctx, c0, "C0, which does not wait,", "STREAM_LEASE_OCUPADO"); err != nil {
		return err
	}
	if err := p.waiting(ctx, c); err != nil {
		return err
	}
	if left, _, err = p.state(ctx); err != nil { // a commit that was sent before the kill may have come through after it
		return err
	}
	at, said, _ := c.when("standing by")
	p.promise(true, "C respects the fresh lease and waits", "%s at %s", said, hms(at))
	taken, err := p.owned(ctx, c, 2, p.ttl+patience)
	if err != nil {
		return err
	}
	began := taken.Until.Add(-p.ttl)
	p.promise(taken.Token == 2, "C takes over with a higher token", "token 1 to %d", taken.Token)
	p.promise(!began.Before(fresh.Until), "C does not take the lease before it has run out", "it ran out at %s, C's term began at %s, by the store's clock", hms(fresh.Until), hms(began))
	err = poll(ctx, patience, func() (bool, error) {
		s, _, err := p.state(ctx)
		return s.Epoch > left.Epoch, err
	}, "C commits")
	if err != nil {
		return err
	}
	took := time.Since(killed)
	p.promise(took <= p.ttl+p.Grace, "the first commit comes at most ttl + "+p.Grace.String()+" after the kill", "%s after it, ttl %s", took.Round(time.Millisecond), p.ttl)
	p.figure("first_commit_after_kill", took)
	if err := p.resumed(ctx, c, "C", left); err != nil {
		return err
	}
	return p.golden(ctx, c, 2)
}
