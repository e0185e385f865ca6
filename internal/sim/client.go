package sim

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/internal/sim/invariant"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// client is the store as a process reaches it: over a network that is slow and loses requests and answers, and through the gate of the
// process. It is a control.Journal, Fencer and Leases.
type client struct {
	p *process
	s *server
}

// fate is what happens to one call.
type fate struct {
	to, back                time.Duration
	lostRequest, lostAnswer bool
	// goesOn: a request whose sender has gone arrives all the same.
	goesOn bool
	// fails: the process fails while the request is on its way.
	fails bool
	// stop is how long the process is stopped when it has decided to write and not yet sent it.
	stop time.Duration
	// sent is how long it is stopped when it has sent it, while the request is on its way for nearly as long.
	sent time.Duration
	// inside is how long the process is stopped in the middle of its transaction.
	inside time.Duration
}

func unavailable(what string) error {
	return codes.New(codes.StoreUnavailable, "injected: %s", what)
}

// request sends a request and waits for its answer, for as long as ctx lasts. What serve does happens even when nobody waits any more,
// if the fate of the call says so.
func request[T any](ctx context.Context, c *client, op string, serve func(ctx context.Context, k *call) (T, error)) (T, error) {
	var none T
	if err := c.p.gate.pass(); err != nil {
		return none, err
	}
	f := c.p.fate(op)
	if f.stop > 0 {
		c.p.halt(f.stop, "about to "+op)
		if err := c.p.gate.pass(); err != nil {
			return none, err
		}
	}
	if f.fails {
		c.p.mu.Lock()
		c.p.fails = true
		c.p.mu.Unlock()
	}
	t := &trip[T]{c: c, op: op, fate: f, serve: serve, answers: make(chan answer[T], 1)}
	go t.travel()
	if f.sent > 0 {
		c.p.halt(f.sent, "having sent "+op)
	}
	var a answer[T]
	select {
	case a = <-t.answers:
	case <-ctx.Done():
		t.gone.Store(true)
		a.err = ctx.Err()
	}
	if err := c.p.gate.pass(); err != nil {
		return none, err
	}
	return a.v, a.err
}

// trip is a request on its way. It lives as long as the network needs, whatever becomes of its sender.
type trip[T any] struct {
	c       *client
	op      string
	fate    fate
	serve   func(ctx context.Context, k *call) (T, error)
	answers chan answer[T]
	// gone: nobody waits for the answer.
	gone atomic.Bool
}

type answer[T any] struct {
	v   T
	err error
}

func (t *trip[T]) travel() {
	p, f := t.c.p, t.fate
	k := &call{process: p.name, begun: t.c.s.clock()}
	if f.inside > 0 {
		k.inside = func() error { return p.stopInside(f.inside) }
	}
	pause(context.Background(), f.to)
	if t.gone.Load() {
		if !f.goesOn {
			return
		}
		p.injected(lateArrival, t.op)
	}
	if f.lostRequest {
		p.injected(lostRequest(t.op), "")
	}
	if f.lostRequest || p.w.out(p) {
		t.answers <- answer[T]{err: unavailable("the store is not reached")}
		return
	}
	// The store does not know whether somebody still waits.
	v, err := t.serve(context.Background(), k)
	pause(context.Background(), f.back)
	if f.lostAnswer {
		p.injected(lostAnswer(t.op), "")
		err = unavailable("the answer is lost")
	}
	t.answers <- answer[T]{v, err}
}

// pause lets virtual time pass, or ctx end.
func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

type nothing struct{}

// Acquire is control.Leases'. What the owner's own clock makes of the answer is part of its fate.
func (c *client) Acquire(ctx context.Context, name, owner string, ttl time.Duration) (control.Lease, error) {
	l, err := request(ctx, c, opAcquire, func(ctx context.Context, k *call) (control.Lease, error) {
		return c.s.acquire(ctx, k, name, owner, ttl)
	})
	return c.p.skew(l), err
}

// Renew is control.Leases'.
func (c *client) Renew(ctx context.Context, l control.Lease) (control.Lease, error) {
	next, err := request(ctx, c, opRenew, func(ctx context.Context, k *call) (control.Lease, error) { return c.s.renew(ctx, k, l) })
	return c.p.skew(next), err
}

// Release is control.Leases'.
func (c *client) Release(ctx context.Context, l control.Lease) error {
	_, err := request(ctx, c, opRelease, func(ctx context.Context, k *call) (nothing, error) { return nothing{}, c.s.release(ctx, k, l) })
	return err
}

// ListLeases is control.Leases'.
func (c *client) ListLeases(ctx context.Context) ([]control.LeaseInfo, error) {
	return request(ctx, c, opRead, func(ctx context.Context, k *call) (all []control.LeaseInfo, err error) {
		err = c.s.read(k, func(m *controltest.Memory) error {
			all, err = m.ListLeases(ctx)
			return err
		})
		return all, err
	})
}

// LookupLease is control.Leases'.
func (c *client) LookupLease(ctx context.Context, name string) (info control.LeaseInfo, ok bool, err error) {
	info, err = request(ctx, c, opRead, func(ctx context.Context, k *call) (info control.LeaseInfo, err error) {
		err = c.s.read(k, func(m *controltest.Memory) (err error) {
			info, _, err = m.LookupLease(ctx, name)
			return err
		})
		return info, err
	})
	return info, info.Name != "", err
}

// held is the journal under a lease.
type held struct {
	*client
	lease control.Lease
}

// Under is control.Fencer's.
func (c *client) Under(l control.Lease) control.Journal { return &held{c, l} }

// OpenRun is control.Journal's.
func (h *held) OpenRun(ctx context.Context, header control.RunHeader) (control.RunState, error) {
	type opened struct {
		state control.RunState
		err   error
	}
	o, err := request(ctx, h.client, opOpen, func(ctx context.Context, k *call) (opened, error) {
		s, err := h.s.openRun(ctx, k, h.lease, header)
		return opened{s, err}, nil
	})
	if err != nil {
		return control.RunState{}, err
	}
	return o.state, o.err
}

// Commit is control.Journal's.
func (h *held) Commit(ctx context.Context, m control.Commit) error {
	m = cloneCommit(m)
	if h.s.mutant == Ahead && m.Watermark > record.NoTime && m.Watermark < record.MaxTime {
		m.Watermark += record.EventTime(time.Hour)
	}
	err := h.attempt(ctx, m)
	switch {
	case h.s.mutant == BlindRetry && err != nil && invariant.OutcomeOf(err) == invariant.Unknown:
		m.Epoch++
		return h.attempt(ctx, m)
	case h.s.mutant == JournalFirst && err == nil:
		_, err = request(ctx, h.client, opCommit, func(_ context.Context, k *call) (nothing, error) {
			h.s.follow(k, m)
			return nothing{}, nil
		})
	}
	return err
}

func (h *held) attempt(ctx context.Context, m control.Commit) error {
	id := h.p.w.attempts.Add(1)
	h.p.add(invariant.Sent{ID: id, Epoch: m.Epoch})
	_, err := request(ctx, h.client, opCommit, func(ctx context.Context, k *call) (nothing, error) {
		return nothing{}, h.s.commit(ctx, k, id, h.lease, m)
	})
	h.p.add(invariant.Answered{ID: id, Epoch: m.Epoch, Outcome: invariant.OutcomeOf(err)})
	return err
}

// Close does nothing: the server goes on.
func (c *client) Close() error { return nil }

// OpenRun is control.Journal's, without a lease: the engine never calls it, and the checkers would tell.
func (c *client) OpenRun(ctx context.Context, h control.RunHeader) (control.RunState, error) {
	return (&held{client: c}).OpenRun(ctx, h)
}

// Commit is control.Journal's, without a lease.
func (c *client) Commit(ctx context.Context, m control.Commit) error {
	return (&held{client: c}).Commit(ctx, m)
}

// LoadBlobs is control.Journal's.
func (c *client) LoadBlobs(ctx context.Context, runID string, partition int32, fn func(partitions.StateBlob) error) error {
	blobs, err := request(ctx, c, opLoad, func(ctx context.Context, k *call) ([]partitions.StateBlob, error) {
		return c.s.loadBlobs(ctx, k, runID, partition)
	})
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if err := fn(partitions.StateBlob{Name: b.Name, Data: append([]byte(nil), b.Data...)}); err != nil {
			return err
		}
	}
	return nil
}

// Outputs is control.Journal's.
func (c *client) Outputs(ctx context.Context, runID string, partition int32, fn func(partitions.Rows) error) error {
	return c.s.read(&call{process: c.p.name}, func(m *controltest.Memory) error { return m.Outputs(ctx, runID, partition, fn) })
}

// Quarantine is control.Journal's.
func (c *client) Quarantine(ctx context.Context, runID string, fn func(partitions.Quarantined) error) error {
	return c.s.read(&call{process: c.p.name}, func(m *controltest.Memory) error { return m.Quarantine(ctx, runID, fn) })
}

// Decisions is control.Journal's.
func (c *client) Decisions(ctx context.Context, runID string, fn func(partitions.Decision) error) error {
	return c.s.read(&call{process: c.p.name}, func(m *controltest.Memory) error { return m.Decisions(ctx, runID, fn) })
}

// cloneCommit copies what a journal may not keep of a commit: a request lives on when its sender has gone.
func cloneCommit(m control.Commit) control.Commit {
	all := make([]control.PartitionCommit, len(m.Partitions))
	for i, p := range m.Partitions {
		p.Rows.Data = append([]byte(nil), p.Rows.Data...)
		puts := make([]partitions.StateBlob, len(p.Cut.Put))
		for k, b := range p.Cut.Put {
			puts[k] = partitions.StateBlob{Name: b.Name, Data: append([]byte{}, b.Data...)}
		}
		p.Cut.Put = puts
		p.Cut.Delete = append([]string(nil), p.Cut.Delete...)
		p.Quarantine = append([]partitions.Quarantined(nil), p.Quarantine...)
		p.Decisions = append([]partitions.Decision(nil), p.Decisions...)
		all[i] = p
	}
	m.Partitions = all
	return m
}
