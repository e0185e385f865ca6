package drill

import (
	"context"
	"fmt"
	"time"

	"github.com/weirstream/weir/control"
)

// begin publishes the first copies to a new topic, and starts an owner that has committed them when it returns.
func (p *part) begin(ctx context.Context, o options) (t *topic, a *process, before control.RunState, err error) {
	if t, err = p.newTopic(ctx, p.name, goldenPartitions); err != nil {
		return nil, nil, before, err
	}
	p.on(t)
	if err = t.publish(ctx, copiesBefore); err == nil {
		if a, err = p.weir("a", o); err == nil {
			before, err = p.committed(ctx, a, copiesBefore*goldenArrivals)
		}
	}
	if err != nil {
		t.close()
	}
	return t, a, before, err
}

// handover: the owner is told to end, and the stand-by goes on at once.
func (p *part) handover(ctx context.Context) error {
	t, a, before, err := p.begin(ctx, options{daemon: true})
	if err != nil {
		return err
	}
	defer t.close()
	b, err := p.weir("b", options{standby: true})
	if err != nil {
		return err
	}
	if err := p.waiting(ctx, b); err != nil {
		return err
	}
	held, err := p.lease(ctx)
	if err != nil {
		return err
	}
	told := time.Now()
	err = a.signal(sigTerm)
	p.fault(Fault{Part: p.name, Kind: "SIGTERM", At: "outside", Epoch: before.Epoch, Fired: err == nil})
	if err != nil {
		return err
	}
	taken, err := p.owned(ctx, b, 2, p.ttl+patience)
	if err != nil {
		return err
	}
	took := time.Since(told)
	p.promise(took <= p.Grace, "B owns the run within "+p.Grace.String()+" of the owner being told to end", "%s", took.Round(time.Millisecond))
	p.promise(taken.Until.Add(-p.ttl).Before(held.Until), "B does not wait for the lease to run out", "it would have run out at %s, B's term began at %s", hms(held.Until), hms(taken.Until.Add(-p.ttl)))
	p.figure("planned_handover", took)
	if err := a.wait(ctx, patience); err != nil {
		return err
	}
	p.promise(a.code() == 0, "the owner that is told to end ends with exit code 0", "%s after %s", a.how(), a.ended.Sub(told).Round(time.Millisecond))
	_, said, ok := a.when("released")
	p.promise(ok, "it gives the lease back", "%s", or(said, tail(a.said())))
	if err := t.publish(ctx, goldenTimes-copiesBefore); err != nil {
		return err
	}
	if _, err := p.committed(ctx, b, goldenRecords); err != nil {
		return err
	}
	if err := p.resumed(ctx, b, "B", before); err != nil {
		return err
	}
	return p.golden(ctx, b, 2)
}

// clockAhead is how far the clock of the clock part is off.
const clockAhead = 2 * time.Minute

// clock: the clock of the second process is two minutes ahead. PostgreSQL judges leases by its own clock: nothing changes. SQLite has no clock
// but that of the processes: the second one takes a lease that has not run out, and the first is refused. Nothing is lost either way.
func (p *part) clock(ctx context.Context) error {
	t, a, before, err := p.begin(ctx, options{})
	if err != nil {
		return err
	}
	defer t.close()
	ahead := []string{fmt.Sprintf("WEIR_DRILL_CLOCK=%s", clockAhead)}
	b, err := p.weir("b", options{env: ahead})
	if err != nil {
		return err
	}
	p.fault(Fault{Part: p.name, Kind: "CLOCK", At: "+" + clockAhead.String(), Epoch: before.Epoch, Fired: true})
	if p.kind != control.StoreSQLite {
		if err := p.refused(ctx, b, "B, whose clock is two minutes ahead,", "STREAM_LEASE_OCUPADO"); err != nil {
			return err
		}
		if err := t.publish(ctx, goldenTimes-copiesBefore); err != nil {
			return err
		}
		return p.golden(ctx, a, 1)
	}
	if _, err := p.owned(ctx, b, 2, patience); err != nil {
		return err
	}
	if err := p.refused(ctx, a, "A, which is overtaken by a clock,", "STREAM_FENCE_OBSOLETO"); err != nil {
		return err
	}
	if err := t.publish(ctx, goldenTimes-copiesBefore); err != nil {
		return err
	}
	if _, err := p.committed(ctx, b, goldenRecords); err != nil {
		return err
	}
	if err := p.resumed(ctx, b, "B", before); err != nil {
		return err
	}
	return p.golden(ctx, b, 2)
}
