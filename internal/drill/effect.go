package drill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirstream/weir/control"
)

// zombie: an owner is stopped after it has made sure, by its own clock, that it holds the lease, and before the store is asked. When it wakes,
// the store refuses it: its own belief is not what keeps it from writing.
func (p *part) zombie(ctx context.Context) error { return p.stopped(ctx, "store:begin@2") }

// deaf: an owner is stopped when its epoch stands and it does not know.
func (p *part) deaf(ctx context.Context) error { return p.stopped(ctx, "after_commit@2") }

// stopped: the owner is stopped at a point where it holds nothing in the store; the next one takes over and commits; the owner wakes.
func (p *part) stopped(ctx context.Context, point string) error {
	a, before, rest, err := p.stopAt(ctx, point)
	if err != nil {
		return err
	}
	if err := rest(); err != nil {
		return err
	}
	b, err := p.weir("b", options{standby: true})
	if err != nil {
		return err
	}
	if _, err := p.owned(ctx, b, 2, p.ttl+patience); err != nil {
		return err
	}
	now, err := p.committed(ctx, b, goldenRecords)
	if err != nil {
		return err
	}
	if err := p.resumed(ctx, b, "B", before); err != nil {
		return err
	}
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
	p.promise(after.Fence == 2 && after.Epoch >= now.Epoch, "A, awake again, changes nothing in the journal", "epoch %d, fence %d", after.Epoch, after.Fence)
	return p.golden(ctx, b, 2)
}

// stopAt starts A, feeds it copy by copy until it stands still at a point, and returns the journal as it then is. The last copies are held back,
// so that the run cannot have finished; rest publishes them.
func (p *part) stopAt(ctx context.Context, point string) (a *process, before control.RunState, rest func() error, err error) {
	t, err := p.newTopic(ctx, p.name, goldenPartitions)
	if err != nil {
		return nil, before, nil, err
	}
	p.on(t)
	copies := 0
	rest = func() error {
		defer t.close()
		return t.publish(ctx, goldenTimes-copies)
	}
	if a, err = p.weir("a", options{points: point + "=stop"}); err != nil {
		return nil, before, rest, err
	}
	for ; copies < goldenTimes-copiesAfter; copies++ {
		if err := t.publish(ctx, 1); err != nil {
			return nil, before, rest, err
		}
		if p.taken(ctx, a, int64(copies+1)*goldenArrivals) {
			copies++
			break
		}
	}
	if err := p.fires(ctx, a, failpointOf(point), "stop"); err != nil {
		return nil, before, rest, err
	}
	before, _, err = p.state(ctx)
	p.promise(err == nil && before.Epoch >= 1 && before.Fence == 1 && records(before) < goldenRecords, "A has committed before it is stopped at "+point, "epoch %d, %d records, fence %d", before.Epoch, records(before), before.Fence)
	return a, before, rest, err
}

// taken waits until a process has committed so many records, or its failpoint has fired: then it is true.
func (p *part) taken(ctx context.Context, by *process, n int64) (is bool) {
	_ = p.await(ctx, by, patience, func() (bool, error) { // whoever waits for the failpoint says what went wrong
		if _, is = by.fault(); is {
			return true, nil
		}
		s, ok, err := p.state(ctx)
		return ok && records(s) >= n, err
	}, "%s commits", by.name)
	return is
}

// effect: A is stopped inside the transaction of its commit, with the lease locked. PostgreSQL ends the transaction, and B takes over. A SQLite
// file is locked as a whole by whoever writes: B has to wait until A wakes, whose commit then stands, since nobody can have come between; and A,
// whose lease has run out meanwhile, steps down.
func (p *part) effect(ctx context.Context) error {
	a, before, rest, err := p.stopAt(ctx, "store:commit@2")
	if err != nil {
		return err
	}
	if err := rest(); err != nil {
		return err
	}
	stopped := time.Now()
	b, err := p.weir("b", options{standby: true})
	if err != nil {
		return err
	}
	if p.kind == control.StoreSQLite {
		if err := p.heldUp(ctx, before); err != nil {
			return err
		}
		if err := a.thaw(); err != nil {
			return err
		}
	}
	if _, err := p.owned(ctx, b, 2, p.ttl+patience); err != nil {
		return err
	}
	if p.kind != control.StoreSQLite {
		took, most := time.Since(stopped), p.ttl+p.ttl/2+p.Grace
		p.promise(took <= most, "B takes over within ttl, the server's time-out for idle transactions and "+p.Grace.String(), "%s, at most %s", took.Round(time.Millisecond), most)
		p.figure("takeover_after_stop_in_transaction", took)
	}
	if _, err := p.committed(ctx, b, goldenRecords); err != nil {
		return err
	}
	if p.kind == control.StoreSQLite {
		if err := p.follows(ctx, b, before); err != nil {
			return err
		}
	} else if err := errors.Join(p.resumed(ctx, b, "B", before), a.thaw()); err != nil {
		return err
	}
	if err := p.refused(ctx, a, "A, awake again,", "STREAM_FENCE_OBSOLETO"); err != nil {
		return err
	}
	return p.golden(ctx, b, 2)
}

// follows: B goes on from A's last commit, be it the one in which A was stopped or the one before. Either may be: who wakes finds that his lease
// has run out, and gives up what he has not sent.
func (p *part) follows(ctx context.Context, b *process, before control.RunState) error {
	if err := p.begun(ctx, b); err != nil {
		return err
	}
	_, said, _ := b.when("msg=running")
	ok := strings.Contains(said+" ", fmt.Sprintf(" epoch=%d ", before.Epoch)) || strings.Contains(said+" ", fmt.Sprintf(" epoch=%d ", before.Epoch+1))
	p.promise(ok, "B resumes exactly from the last commit", "epoch %d or %d; %s", before.Epoch, before.Epoch+1, said)
	return nil
}

// heldUp: while A stands still with the file locked, nobody takes over and nothing is lost.
func (p *part) heldUp(ctx context.Context, before control.RunState) error {
	timer := time.NewTimer(p.ttl + time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	s, _, err := p.state(ctx)
	if err != nil {
		return err
	}
	l, err := p.lease(ctx)
	if err != nil {
		return err
	}
	p.promise(l.Token == 1 && s.Epoch == before.Epoch && s.Fence == 1, "SQLite: who stands still inside a transaction holds the file, so a take-over waits, and nothing is lost",
		"a second after the lease has run out: token %d, epoch %d", l.Token, s.Epoch)
	return nil
}

// shot: A is stopped inside the transaction, and killed there. Its epoch was never committed; the next owner makes it again.
func (p *part) shot(ctx context.Context) error {
	a, before, rest, err := p.stopAt(ctx, "store:commit@2")
	if err != nil {
		return err
	}
	if err := rest(); err != nil {
		return err
	}
	b, err := p.weir("b", options{standby: true})
	if err != nil {
		return err
	}
	err = a.cmd.Process.Kill()
	if err == nil {
		err = a.wait(ctx, patience)
	}
	p.fault(Fault{Part: p.name, Kind: "SIGKILL", At: "outside, inside the transaction", Epoch: before.Epoch + 1, Fired: err == nil && a.code() == -1})
	if err != nil {
		return err
	}
	if _, err := p.owned(ctx, b, 2, p.ttl+patience); err != nil {
		return err
	}
	if _, err := p.committed(ctx, b, goldenRecords); err != nil {
		return err
	}
	if err := p.resumed(ctx, b, "B", before); err != nil {
		return err
	}
	p.noEmit(a, "the killed A")
	return p.golden(ctx, b, 2)
}
