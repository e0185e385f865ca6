package actors

import (
	"github.com/weirstream/weir/actors/shell"
	"github.com/weirstream/weir/codes"
)

// What the run actor does with its lease.

// askLease asks for the lease, with a new lease actor when there is none.
func (s *supervisor) askLease(c *shell.Context) {
	s.phase = leasing
	if s.lease.IsZero() {
		s.gen++
		var err error
		if s.lease, err = spawnLease(c, s.e, s.gen); err != nil {
			s.fail(Failure{Incarnation: s.number(), Actor: leaseName, Partition: -1, Cause: err})
			return
		}
	}
	shell.Send(s.lease, toLease(askLease{}))
}

func (s *supervisor) leaseNews(m leaseNews) {
	switch {
	case m.ended:
		if m.err != nil {
			s.e.log.Warn("the lease was not given back; it ends by itself", "run", s.e.cfg.RunID, "until", m.lease.Until, "code", codeName(m.err), "cause", m.err.Error())
		}
		if m.change != "" {
			s.tellLease(m)
		}
		if s.phase == releasing {
			s.close()
		}
	case m.change == LeaseWaiting:
		// The store answers.
		s.standing = nil
		s.forgive(func(int32) bool { return true })
		s.tellLease(m)
	case m.change == LeaseAcquired:
		s.granted(m)
	case m.change == LeaseLost:
		s.lose(m.err)
		s.stepDown()
	case s.phase == leasing:
		s.refused(m.err)
	}
}

func (s *supervisor) granted(m leaseNews) {
	if s.phase != leasing {
		return // the run ends, and gives it back
	}
	s.held = &m.lease
	s.e.log.Info("the lease is ours", "run", s.e.cfg.RunID, "owner", m.lease.Owner, "token", m.lease.Token, "ttl", m.lease.TTL)
	s.tellLease(m)
	s.watchOrders()
	s.incarnate()
}

// refused ends a run whose lease another owner holds, and is a failure like any other otherwise.
func (s *supervisor) refused(err error) {
	if codes.Has(err, codes.LeaseHeld) && s.e.lease.Load() != nil {
		s.lose(err) // it was ours before
		s.quiet()
		return
	}
	if codes.Has(err, codes.LeaseHeld) {
		err = codes.New(codes.StreamLeaseHeld, "run %q has an owner: %w", s.e.cfg.RunID, err)
	}
	s.fail(Failure{Incarnation: s.number(), Actor: leaseName, Partition: -1, Cause: err})
}

// lose notes that the lease is lost: nothing may be written any more, and the run is over.
func (s *supervisor) lose(cause error) {
	if s.gone {
		return
	}
	s.gone = true
	err := codes.New(codes.StreamFenceStale, "run %q is no longer ours; it stands at epoch %d as far as this owner knows, and nothing was written after the lease was lost: %w", s.e.cfg.RunID, s.state.Epoch, cause)
	s.e.revoke(err)
	shell.Send(s.lease, toLease(dropLease{}))
	s.e.log.Warn("the lease is lost; the run ends", "run", s.e.cfg.RunID, "epoch", s.state.Epoch, "cause", cause.Error())
	m := leaseNews{change: LeaseLost, err: cause}
	if s.held != nil {
		m.lease = *s.held
	}
	s.over(err)
	s.tellLease(m)
}

// stepDown ends what is under way after the lease is lost.
func (s *supervisor) stepDown() {
	switch s.phase {
	case opening:
		s.cur.cancel()
	case running:
		s.end()
	case leasing, waiting, halted:
		s.quiet()
	case sweeping, saving, releasing:
		s.close()
	case idle, ending, over:
	}
}

// leaseFailed is a failure of the lease actor itself. The lease is asked for again; the same owner gets it under the same token, unless it has
// run out meanwhile.
func (s *supervisor) leaseFailed(cause error) {
	f := Failure{Incarnation: s.number(), Actor: leaseName, Partition: -1, Cause: cause}
	s.held, s.lease = nil, shell.Ref[toLease]{}
	switch s.phase {
	case opening:
		s.broken = &f
		s.cur.cancel()
	case leasing, running:
		s.fail(f)
	case halted:
		s.phase = waiting
		s.timer = after(s.pause(), s.e.run, toRun(retry{stamp{s.number()}}))
	case releasing:
		s.close()
	case idle, ending, waiting, sweeping, saving, over:
		s.e.log.Warn("the lease actor failed", "cause", cause.Error())
	}
}

func (s *supervisor) tellLease(m leaseNews) {
	if f := s.e.cfg.Fencing.OnLease; f != nil {
		f(LeaseEvent{Change: m.change, Lease: m.lease, Cause: m.err})
	}
}
