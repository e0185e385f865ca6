package sim

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/internal/sim/invariant"
	"github.com/weirstream/weir/partitions"
)

// server is the store: it runs one call at a time, and records what took effect before the next one begins. A call that stops inside
// its transaction lets others run, and keeps its lease from being taken over.
type server struct {
	mem     *controltest.Memory
	history *invariant.History
	clock   func() time.Time
	mutant  Mutant

	mu sync.Mutex
	// now is what the store's clock says during the call in hand.
	now     time.Time
	current *call
	// inside counts the effects that stand still inside their transaction, by lease; moved is closed and replaced when one has ended.
	inside map[string]int
	moved  chan struct{}
	// late are the results that follow their journal under JournalFirst.
	late map[int32][]byte
}

// call is one request that has arrived.
type call struct {
	process string
	// begun is when it began, by the store's clock.
	begun time.Time
	lease string
	// inside, unless nil, is waited for with the lease locked; an error ends the transaction.
	inside func() error
}

func newServer(h *invariant.History, clock func() time.Time, m Mutant) *server {
	s := &server{mem: controltest.NewMemory(), history: h, clock: clock, mutant: m, inside: map[string]int{}, moved: make(chan struct{}), late: map[int32][]byte{}}
	s.mem.Now = func() time.Time { return s.now }
	s.mem.SetHook(s.hook)
	return s
}

// enter takes the server's turn.
func (s *server) enter(c *call) {
	s.mu.Lock()
	s.current, s.now = c, s.clock()
}

func (s *server) leave() {
	s.current = nil
	s.mu.Unlock()
}

// hook is called by the store between the steps of a write, with the turn taken.
func (s *server) hook(step string) error {
	c := s.current
	if step != "commit" || c == nil || c.inside == nil {
		return nil
	}
	s.inside[c.lease]++
	s.leave()
	err := c.inside()
	s.enter(c)
	s.inside[c.lease]--
	close(s.moved)
	s.moved = make(chan struct{})
	return err
}

// under is the journal as the holder of a lease sees it, and the clock by which it is judged.
func (s *server) under(c *call, l control.Lease) control.Journal {
	switch s.mutant {
	case FenceOff:
		return s.mem
	case FrozenClock:
		s.now = c.begun
	}
	return s.mem.Under(l)
}

func (s *server) openRun(ctx context.Context, c *call, l control.Lease, h control.RunHeader) (control.RunState, error) {
	c.lease = l.Name
	s.enter(c)
	defer s.leave()
	checked := s.now
	state, err := s.under(c, l).OpenRun(ctx, h)
	if err == nil {
		s.history.Add(c.process, invariant.Written{What: "opening the run", Hold: invariant.HoldOf(l), Now: checked})
	}
	if state.Header.RunID != "" {
		s.history.Add(c.process, invariant.Opened{State: state})
	}
	return state, err
}

func (s *server) commit(ctx context.Context, c *call, id int64, l control.Lease, m control.Commit) error {
	c.lease = l.Name
	s.enter(c)
	defer s.leave()
	checked := s.now
	applied := m
	if s.mutant == JournalFirst {
		applied.Partitions = slices.Clone(m.Partitions)
		for i := range applied.Partitions {
			applied.Partitions[i].Rows = partitions.Rows{}
		}
	}
	if err := s.under(c, l).Commit(ctx, applied); err != nil {
		return err
	}
	s.history.Add(c.process, invariant.Written{What: "a commit", Hold: invariant.HoldOf(l), Now: checked})
	s.history.Add(c.process, invariant.Committed{ID: id, Commit: applied, Token: l.Token})
	return nil
}

// follow adds the results of an epoch whose cut stands already: what JournalFirst does.
func (s *server) follow(c *call, m control.Commit) {
	s.enter(c)
	defer s.leave()
	for _, p := range m.Partitions {
		s.late[p.Cut.Partition] = append(s.late[p.Cut.Partition], p.Rows.Data...)
	}
}

func (s *server) loadBlobs(ctx context.Context, c *call, runID string, partition int32) ([]partitions.StateBlob, error) {
	s.enter(c)
	defer s.leave()
	var blobs []partitions.StateBlob
	err := s.mem.LoadBlobs(ctx, runID, partition, func(b partitions.StateBlob) error {
		blobs = append(blobs, partitions.StateBlob{Name: strings.Clone(b.Name), Data: bytes.Clone(b.Data)})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if s.mutant == Flipped && len(blobs) > 0 && len(blobs[0].Data) > 0 {
		blobs[0].Data[0] ^= 1
	}
	s.history.Add(c.process, invariant.Loaded{Partition: partition, Blobs: blobs})
	return blobs, nil
}

// acquire waits, as a database does, for an effect that holds the lease against being taken over.
func (s *server) acquire(ctx context.Context, c *call, name, owner string, ttl time.Duration) (control.Lease, error) {
	for {
		s.enter(c)
		info, _, err := s.mem.LookupLease(ctx, name)
		if err != nil || info.Valid || s.inside[name] == 0 {
			break
		}
		moved := s.moved
		s.leave()
		select {
		case <-moved:
		case <-ctx.Done():
			return control.Lease{}, ctx.Err()
		}
	}
	defer s.leave()
	before, _, err := s.mem.LookupLease(ctx, name)
	if err != nil {
		return control.Lease{}, err
	}
	l, err := s.mem.Acquire(ctx, name, owner, ttl)
	if err == nil && s.mutant == SameToken && before.Token > 0 {
		l.Token = before.Token
		s.mem.SetLeaseToken(name, before.Token)
	}
	if err == nil {
		s.granted(c, l)
	}
	return l, err
}

func (s *server) granted(c *call, l control.Lease) {
	row := control.LeaseRow{Name: l.Name, Owner: l.Owner, Token: l.Token, Until: l.Until}
	s.history.Add(c.process, invariant.Granted{Row: row, Now: s.now})
}

func (s *server) renew(ctx context.Context, c *call, l control.Lease) (control.Lease, error) {
	s.enter(c)
	defer s.leave()
	next, err := s.mem.Renew(ctx, l)
	if err == nil {
		s.granted(c, next)
	}
	return next, err
}

func (s *server) release(ctx context.Context, c *call, l control.Lease) error {
	s.enter(c)
	defer s.leave()
	err := s.mem.Release(ctx, l)
	if err == nil {
		s.history.Add(c.process, invariant.Released{Hold: invariant.HoldOf(l), Now: s.now})
	}
	return err
}

// rest lets the store be used directly, once nobody else uses it.
func (s *server) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.clock()
}

// read runs a call that changes nothing.
func (s *server) read(c *call, fn func(m *controltest.Memory) error) error {
	s.enter(c)
	defer s.leave()
	return fn(s.mem)
}

// keepPointer needs the blobs to say what the pointer refers to.
func (s *server) keepPointer(ctx context.Context, c *call, blobs checkpoint.Blobs, l control.Lease, p control.Pointer) error {
	c.lease = l.Name
	s.enter(c)
	defer s.leave()
	checked := s.now
	if s.mutant == FrozenClock {
		s.now = c.begun
	}
	if err := s.mem.KeepPointer(ctx, l, p); err != nil {
		return err
	}
	s.history.Add(c.process, invariant.Written{What: "a checkpoint's pointer", Hold: invariant.HoldOf(l), Now: checked})
	s.history.Add(c.process, invariant.PointerKept{Pointer: p, Needs: needs(ctx, blobs, p)})
	return nil
}

// needs are the blobs that a pointer refers to, as far as its manifest can be read.
func needs(ctx context.Context, blobs checkpoint.Blobs, p control.Pointer) []string {
	all := []string{p.Manifest}
	m, err := checkpoint.Load(ctx, blobs, p)
	if err != nil {
		return all
	}
	for _, part := range m.Partitions {
		for _, r := range part.State {
			all = append(all, r.SHA256)
		}
	}
	return all
}

// dropPointers is a clean-up.
func (s *server) dropPointers(ctx context.Context, c *call, l control.Lease, runID string, epochs []uint64) ([]uint64, error) {
	c.lease = l.Name
	s.enter(c)
	defer s.leave()
	checked := s.now
	dropped, err := s.mem.DropPointers(ctx, l, runID, epochs)
	if err == nil {
		s.history.Add(c.process, invariant.Written{What: "a clean-up", Hold: invariant.HoldOf(l), Now: checked})
		for _, epoch := range dropped {
			s.history.Add(c.process, invariant.PointerDropped{Epoch: epoch})
		}
	}
	return dropped, err
}
