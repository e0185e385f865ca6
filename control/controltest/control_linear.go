package controltest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

var linearChecks = []controlCheck{
	{"lease: histories of concurrent clients are linearizable", checkLinearizable},
}

// leaseOp is a call on one lease. Terms are an hour long, so a term ends by expire and release only, and every call has one right answer in
// every state.
type leaseOp struct {
	kind  string // acquire, renew, release, effect, look, expire
	lease string
	owner string
	token control.FenceToken
}

// leaseAnswer is what came back.
type leaseAnswer struct {
	code  *codes.Code
	owner string
	token control.FenceToken
	valid bool
}

func (o leaseOp) String() string {
	return fmt.Sprintf("%s(%s, %s, %d)", o.kind, o.lease, o.owner, o.token)
}

func (a leaseAnswer) String() string {
	if a.code != nil {
		return a.code.Name
	}
	return fmt.Sprintf("%s %d %t", a.owner, a.token, a.valid)
}

// leaseState is the model: one lease.
type leaseState struct {
	owner string
	token control.FenceToken
	valid bool
}

func (s leaseState) holds(o leaseOp) bool { return s.valid && s.owner == o.owner && s.token == o.token }

// step is the table of leases: the right answer and the state after it.
func (s leaseState) step(o leaseOp) (leaseAnswer, leaseState) {
	switch o.kind {
	case "acquire":
		if s.valid && s.owner != o.owner {
			return leaseAnswer{code: codes.LeaseHeld}, s
		}
		if !s.valid {
			s.token++
		}
		s.owner, s.valid = o.owner, true
		return leaseAnswer{owner: s.owner, token: s.token, valid: true}, s
	case "expire":
		s.valid = false
		return leaseAnswer{}, s
	case "look":
		return leaseAnswer{owner: s.owner, token: s.token, valid: s.valid}, s
	}
	if !s.holds(o) {
		return leaseAnswer{code: codes.StaleFence}, s
	}
	if o.kind == "release" {
		s.valid = false
	}
	return leaseAnswer{owner: o.owner, token: o.token}, s
}

var leaseModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byLease := map[string][]porcupine.Operation{}
		for _, op := range history {
			name := op.Input.(leaseOp).lease
			byLease[name] = append(byLease[name], op)
		}
		var out [][]porcupine.Operation
		for _, ops := range byLease {
			out = append(out, ops)
		}
		return out
	},
	Init: func() any { return leaseState{} },
	Step: func(state, input, output any) (bool, any) {
		want, next := state.(leaseState).step(input.(leaseOp))
		return want == output.(leaseAnswer), next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v → %v", input, output) },
}

// recorder keeps the history of all clients. Times are of the monotonic clock, taken before a call is sent and after its answer.
type recorder struct {
	p     *plane
	start time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func (r *recorder) run(s control.ControlStore, client int, o leaseOp) (leaseAnswer, error) {
	called := time.Since(r.start).Nanoseconds()
	answer, err := r.p.leaseCall(s, o)
	returned := time.Since(r.start).Nanoseconds()
	if err != nil {
		return answer, fmt.Errorf("%v: %w", o, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, porcupine.Operation{ClientId: client, Input: o, Call: called, Output: answer, Return: returned})
	return answer, nil
}

// leaseCall makes a call. An error without one of the codes that the model knows ends the check.
func (p *plane) leaseCall(s control.ControlStore, o leaseOp) (answer leaseAnswer, err error) {
	l := control.Lease{Name: o.lease, Owner: o.owner, Token: o.token, TTL: term}
	switch o.kind {
	case "acquire":
		var got control.Lease
		got, err = s.Acquire(p.ctx, o.lease, o.owner, term)
		answer = leaseAnswer{owner: got.Owner, token: got.Token, valid: err == nil}
	case "renew":
		var got control.Lease
		got, err = s.Renew(p.ctx, l)
		answer = leaseAnswer{owner: got.Owner, token: got.Token}
	case "release":
		err = s.Release(p.ctx, l)
		answer = leaseAnswer{owner: o.owner, token: o.token}
	case "effect":
		err = s.Fenced(p.ctx, l, publish("shared", "1"))
		answer = leaseAnswer{owner: o.owner, token: o.token}
	case "look":
		var info control.LeaseInfo
		info, _, err = s.LookupLease(p.ctx, o.lease)
		answer = leaseAnswer{owner: info.Owner, token: info.Token, valid: info.Valid}
	case "expire":
		err = p.Expire(o.lease)
	}
	if codes.Has(err, codes.LeaseHeld) || codes.Has(err, codes.StaleFence) {
		return leaseAnswer{code: codes.Of(err)}, nil
	}
	return answer, err
}

// client does random calls under the term that it last got, which may have ended long ago.
func (r *recorder) client(s control.ControlStore, client, calls int, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, uint64(client)))
	held := map[string]control.FenceToken{}
	for range calls {
		o := leaseOp{lease: fmt.Sprintf("job-%d", rng.IntN(2)), owner: fmt.Sprintf("owner-%d", client%5)} // some share an owner id
		switch k := rng.IntN(20); {
		case k < 6:
			o.kind = "acquire"
		case k < 9:
			o.kind = "renew"
		case k < 11:
			o.kind = "release"
		case k < 15:
			o.kind = "effect"
		case k < 18:
			o.kind, o.owner = "look", ""
		default:
			o.kind, o.owner = "expire", ""
		}
		if o.kind == "renew" || o.kind == "release" || o.kind == "effect" {
			o.token = held[o.lease]
		}
		answer, err := r.run(s, client, o)
		if err != nil {
			return err
		}
		if o.kind == "acquire" && answer.code == nil {
			held[o.lease] = answer.token
		}
	}
	return nil
}

// scripted meets each rule of the table once, so that no store passes because the random clients did not come across a rule.
func (r *recorder) scripted(s control.ControlStore) error {
	for _, o := range []leaseOp{
		{"acquire", "job-0", "x", 0}, {"acquire", "job-0", "x", 0}, {"acquire", "job-0", "y", 0}, {"renew", "job-0", "x", 1}, {"effect", "job-0", "x", 1},
		{"expire", "job-0", "", 0}, {"effect", "job-0", "x", 1}, {"renew", "job-0", "x", 1}, {"look", "job-0", "", 0}, {"release", "job-0", "x", 1},
		{"acquire", "job-0", "y", 0}, {"renew", "job-0", "x", 1}, {"release", "job-0", "x", 1}, {"effect", "job-0", "x", 1}, {"look", "job-0", "", 0},
		{"effect", "job-0", "x", 2}, {"renew", "job-0", "x", 2}, {"effect", "job-0", "y", 2}, {"release", "job-0", "y", 2}, {"acquire", "job-0", "y", 0}, {"effect", "job-0", "y", 2}, {"effect", "job-0", "y", 3}, {"release", "job-0", "y", 3}, {"look", "job-0", "", 0},
	} {
		if _, err := r.run(s, 0, o); err != nil {
			return err
		}
	}
	return nil
}

func checkLinearizable(p *plane) error {
	const clients, calls, seed = 8, 40, 5
	stores := p.opens(clients)
	r := &recorder{p: p, start: time.Now()}
	if err := r.scripted(stores[0]); err != nil {
		return err
	}
	errs := together(clients, func(i int) error { return r.client(stores[i], i, calls, seed) })
	if err := errors.Join(errs...); err != nil {
		return err
	}
	switch result := porcupine.CheckOperationsTimeout(leaseModel, r.ops, p.waits()); result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return fmt.Errorf("seed %d: the check of %d calls took longer than %s", seed, len(r.ops), p.waits())
	}
	return fmt.Errorf("seed %d: the history of %d calls has no order in which the table of leases gives these answers", seed, len(r.ops))
}
