package drill

import (
	"context"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// twins: two processes have the same owner id, so the store takes them for one. The journal's compare-and-set is what keeps them apart.
func (p *part) twins(ctx context.Context) error {
	same := []string{"WEIR_DRILL_OWNER=twin-" + p.id}
	t, a, _, err := p.begin(ctx, options{env: same})
	if err != nil {
		return err
	}
	defer t.close()
	b, err := p.weir("b", options{env: same})
	if err != nil {
		return err
	}
	err = p.begun(ctx, b)
	p.fault(Fault{Part: p.name, Kind: "TWIN", At: "owner id", Fired: err == nil})
	if err != nil {
		return err
	}
	if err := t.publish(ctx, goldenTimes-copiesBefore); err != nil {
		return err
	}
	return p.apart(ctx, a, b)
}

// apart: at most one of the twins finishes; a third owner, with an id of its own, finishes if none does.
func (p *part) apart(ctx context.Context, twins ...*process) error {
	var winner *process
	for _, twin := range twins {
		if err := twin.wait(ctx, patience); err != nil {
			return err
		}
		_, said, _ := twin.when("weir: ", "_")
		switch twin.code() {
		case 0:
			p.promise(winner == nil, "at most one of two processes with one owner id finishes", "%s: %s", twin.name, twin.how())
			winner = twin
		case codes.ExitFenced:
			_, conflict, ok := twin.when("JOURNAL_CONFLICT")
			if !ok {
				_, conflict, ok = twin.when("STREAM_FENCE_OBSOLETO")
			}
			p.promise(ok, "a twin that lost is told so", "%s", or(conflict, said))
		default:
			_, finished, ok := twin.when("RUN_FINISHED")
			p.promise(ok, "a twin that came too late is told so", "%s: %s", twin.how(), or(finished, said))
		}
	}
	token := control.FenceToken(1)
	if winner == nil {
		l, err := p.lease(ctx)
		if err != nil {
			return err
		}
		token = l.Token + 1
		if winner, err = p.weir("c", options{standby: true}); err != nil {
			return err
		}
	}
	if err := winner.wait(ctx, patience); err != nil {
		return err
	}
	s, _, err := p.state(ctx)
	if err != nil {
		return err
	}
	if s.Status == control.RunFinished && s.Fence < token {
		// A twin had finished the run, and lost the lease before it could write the document: C has written it.
		p.promise(true, "the run that a twin has finished is not run again", "fence %d, token of the document %d", s.Fence, token)
		return p.document(winner, token)
	}
	return p.golden(ctx, winner, token)
}

// reborn: an owner stands still, and its lease runs out; then a process of the same owner id starts, as one under a supervisor that gives
// names. It is another term of the lease, with a token of its own, and the old process is refused when it wakes.
func (p *part) reborn(ctx context.Context) error {
	same := []string{"WEIR_DRILL_OWNER=reborn-" + p.id}
	t, a, before, err := p.begin(ctx, options{env: same})
	if err != nil {
		return err
	}
	defer t.close()
	err = p.freeze(ctx, a)
	p.fault(Fault{Part: p.name, Kind: "SIGSTOP", At: "outside", Epoch: before.Epoch, Fired: err == nil})
	if err != nil {
		return err
	}
	expired := func() (bool, error) {
		l, err := p.lease(ctx)
		return !l.Valid, err
	}
	if err := poll(ctx, patience, expired, "the lease runs out"); err != nil {
		return err
	}
	b, err := p.weir("b", options{env: same})
	if err != nil {
		return err
	}
	if err := p.resumed(ctx, b, "the next process of that id", before); err != nil {
		return err
	}
	l, err := p.lease(ctx)
	if err != nil {
		return err
	}
	p.promise(l.Token == 2 && l.Owner == "reborn-"+p.id, "the same owner id in another process is another term", "token %d of %s", l.Token, l.Owner)
	if err := a.thaw(); err != nil {
		return err
	}
	if err := p.refused(ctx, a, "the old process, awake again,", "STREAM_FENCE_OBSOLETO"); err != nil {
		return err
	}
	if err := t.publish(ctx, goldenTimes-copiesBefore); err != nil {
		return err
	}
	return p.golden(ctx, b, 2)
}
