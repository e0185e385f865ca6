package worker

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirstream/weir/batch/catalog"
	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/sinks"
)

// Store is what a worker needs of the control plane.
type Store interface {
	control.Leases
	control.Effects
	control.Admission
	control.Outbox
	control.Reconciler
}

// Defaults of a Config.
const (
	DefaultPoll     = time.Second
	DefaultBatch    = 50
	DefaultTTL      = 30 * time.Second
	DefaultDrain    = 25 * time.Second
	DefaultMaxTerms = 50
)

// Config of a worker.
type Config struct {
	Store Store
	Blobs checkpoint.Blobs
	// Staging, unless nil, takes the rows of each result before it is published, and shows them after that.
	Staging sinks.Staging
	Catalog *catalog.Catalog
	// Scratch is a folder for documents in the making and rows that are sorted; the worker makes a folder of its own in it and removes
	// those that dead workers left.
	Scratch string
	// Owner is unique per process incarnation. Defaults to control.NewOwner().
	Owner string
	// Poll is the longest time between two looks at the outbox; being woken is only faster. Defaults to DefaultPoll.
	Poll time.Duration
	// Batch is the most events that are claimed at once. Defaults to DefaultBatch.
	Batch int
	// TTL of a run's lease. Defaults to DefaultTTL.
	TTL time.Duration
	// Reconcile is the time between two looks for orphans. Defaults to TTL.
	Reconcile time.Duration
	// StaleClaims is the age from which an event that is claimed, with nobody holding its run's lease, is anybody's again. Defaults to
	// twice the TTL.
	StaleClaims time.Duration
	// Concurrency is how many runs are computed at once. Defaults to 1.
	Concurrency int
	// Drain bounds how long the runs in hand may go on once ctx has ended. What is not done by then is given back. Defaults to DefaultDrain.
	Drain time.Duration
	// MaxTerms is how many terms of its lease a run may take: one that has had more was never ended by any worker, and is FAILED.
	// Defaults to DefaultMaxTerms.
	MaxTerms control.FenceToken
	// Kill ends everything at once: nothing is given back. May be nil.
	Kill   context.Context
	Logger *slog.Logger
	// OnEnd is called when an event has been dealt with, one call at a time. May be nil.
	OnEnd func(Outcome)

	// step is called between the steps of a run, with the step's name. Tests fail or kill there.
	step func(name string) error
	// pointerFirst publishes the reference before the blob: the order that tests must find out.
	pointerFirst bool
}

// Kind says how a worker's dealing with an event ended.
type Kind string

// The kinds of Outcome.
const (
	Succeeded Kind = "SUCCEEDED"
	Failed    Kind = "FAILED"
	Cancelled Kind = "CANCELLED"
	// Ignored is an event whose run had ended.
	Ignored Kind = "IGNORED"
	// Elsewhere is an event whose run another worker has.
	Elsewhere Kind = "ELSEWHERE"
	// GivenUp is a run that this worker began and could not end: its lease was lost, the store is gone, or the worker stops.
	GivenUp Kind = "GIVEN_UP"
)

// Outcome tells what became of an event.
type Outcome struct {
	RunID string
	Kind  Kind
	// Token of the lease under which it was done; 0 when none was held.
	Token control.FenceToken
	// ResultRefs of a run that SUCCEEDED.
	ResultRefs []string
	// Error is the message of a run that FAILED. Err is why it was GivenUp.
	Error string
	Err   error

	took time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil || c.Blobs == nil || c.Catalog == nil || c.Scratch == "" {
		return c, codes.New(codes.Internal, "a worker needs a store, blobs, a catalog and a folder for scratch files")
	}
	if c.Poll < 0 || c.Batch < 0 || c.TTL < 0 || c.Reconcile < 0 || c.StaleClaims < 0 || c.Concurrency < 0 || c.Drain < 0 {
		return c, codes.New(codes.ConfigInvalid, "poll, batch, ttl, concurrency and drain of a worker must not be negative")
	}
	set(&c.Owner, control.NewOwner())
	set(&c.Poll, DefaultPoll)
	set(&c.Batch, DefaultBatch)
	set(&c.TTL, DefaultTTL)
	set(&c.Reconcile, c.TTL)
	set(&c.StaleClaims, 2*c.TTL)
	set(&c.Concurrency, 1)
	set(&c.Drain, DefaultDrain)
	set(&c.MaxTerms, DefaultMaxTerms)
	set(&c.Kill, context.Background())
	set(&c.Logger, slog.New(slog.DiscardHandler))
	if c.OnEnd == nil {
		c.OnEnd = func(Outcome) {}
	}
	if c.step == nil {
		c.step = func(string) error { return nil }
	}
	return c, nil
}

// set gives a field its default.
func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
