package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// Defaults of a Config.
const (
	DefaultCapacity    = 1000
	DefaultBytes       = 32 << 20
	DefaultCommitEvery = 100 * time.Millisecond
	DefaultTTL         = 15 * time.Second
	DefaultStandEvery  = 200 * time.Millisecond
	DefaultDrain       = 30 * time.Second
	DefaultAbandon     = 10 * time.Second
	DefaultHeldAlarm   = 5 * time.Minute
	DefaultFetchSize   = 1024
)

// Fingerprint stands in the journal for the flow of a run that a consumer made: its cuts are positions and nothing else.
const Fingerprint = "consumer/1"

// Store is what a consumer needs of the control plane; control.ControlStore is one.
type Store interface {
	control.Journal
	control.Fencer
	control.Leases
}

// Order says which deliveries of a partition may be handled at the same time.
type Order uint8

const (
	// InPartition: one after the other.
	InPartition Order = iota
	// ByKey: at most Config.Concurrency at the same time, and those of one key one after the other. Records without a key have no order.
	ByKey
)

// Config says what to consume and how. Source, Store, RunID and Handler are required. Source and Store stay the caller's to close.
type Config struct {
	Source sources.Source
	Store  Store
	// RunID names the run in the journal. Whoever holds its lease works; with an Assigner, each partition N is a run RUN/N of its own.
	RunID string
	// Handler processes deliveries. Middleware wraps it, the first one outermost.
	Handler    Handler
	Middleware []Middleware
	// Assigner spreads the partitions over processes: a consumer group, or fair leases. Defaults to none: this process works on all of them.
	Assigner sources.Assigner

	// Order and Concurrency, which is per partition and defaults to 1.
	Order       Order
	Concurrency int
	// Explicit lets a handler return Later and settle its delivery itself. The next delivery of its key is handed over when the handler has
	// returned, settled or not.
	Explicit bool

	// MaxAttempts is how often a record is handled at most, copies included. 0 is no limit.
	MaxAttempts int
	// Retry takes the copies of records that come again: the log that is read, or another that leads back to it. Defaults to none.
	Retry Copier
	// DeadLetter takes the records that are given up, with headers that say where they stood and why. Defaults to none.
	DeadLetter Copier
	// Quarantine keeps dead letters in the journal instead, in the transaction that moves the position past them: see `weir quarantine`.
	Quarantine bool
	// Backoff delays the copies of Retry. The zero value is no delay.
	Backoff Backoff
	// MaxClaims guards against a record that kills the process: once that many terms of the lease in a row have begun with the same record as the
	// oldest undone one of its partition, it is given up unhandled, as with attempts exhausted. Each term is then counted in the journal when it
	// begins; one that begins where the one before began hands the first Capacity records over one by one, each committed before the next, so that no
	// innocent record is blamed. From 2 on; 0 is off.
	MaxClaims int
	// OnPanic says what becomes of a delivery whose handler panicked. Defaults to Retry.
	OnPanic func(v any, d Delivery) Outcome
	// Envelope opens envelopes (see Envelope) before the handler sees them: for a log without headers.
	Envelope bool

	// From says where a partition that the run has not committed yet is read first. What it answers is committed before the first read, so that a
	// restart does not skip what came in between. Defaults to the start of the log.
	From func(ctx context.Context, partition int32) (record.Position, error)

	// Capacity bounds the records of one partition from the oldest undone one to the newest delivered one. At the bound the partition is
	// paused at its source, and the lease is renewed all the same. Defaults to 1000.
	Capacity int
	// Bytes bounds the memory of one partition's batches that are not handled yet; the partition is paused at that bound, so that it is passed
	// by one batch at most. Defaults to 32 MiB.
	Bytes int
	// FetchSize bounds the records of one fetch. Defaults to 1024.
	FetchSize int
	// CommitEvery is the least time between two commits. Each writes the partitions whose position has moved, and there is none without a move.
	// What was done since the last commit is done again after a crash. Defaults to 100 ms; a negative one commits as soon as possible.
	CommitEvery time.Duration

	// TTL of the lease, renewed every third of it. Defaults to 15 s.
	TTL time.Duration
	// Standby waits while another owner holds the lease, asking every StandEvery (defaults to 200 ms), instead of ending with
	// STREAM_LEASE_OCUPADO. With an Assigner it is always on.
	Standby    bool
	StandEvery time.Duration
	// Owner is unique to this incarnation of the process. Defaults to control.NewOwner(), with an Assigner to another one for each term of a partition.
	Owner string
	// Drain is how long what was handed over may take when the consumer stops or a partition is revoked; then contexts end. Defaults to 30 s.
	Drain time.Duration
	// Abandon is how long handlers whose context has ended are waited for. A lease under which one still runs is not given back, but left to
	// expire. Defaults to 10 s.
	Abandon time.Duration
	// HeldAlarm: a partition whose position is held by the same undone record for that long is told to the log and to OnHeld. It should lie well
	// below the retention of the log. Defaults to 5 minutes.
	HeldAlarm time.Duration
	// Kill ends everything at once, without draining, committing or giving back the lease: as a crash would. Defaults to never.
	Kill context.Context

	// CommitOffsets is told the next position of every partition after each commit that moved it: the courtesy to a consumer group. Errors are logged.
	CommitOffsets func(ctx context.Context, next map[int32]record.Position) error
	// OnHeld is told when an undone record holds its partition: an outcome was refused, a copy or dead letter cannot be written, or HeldAlarm has
	// passed. It must not block, and may be called from any goroutine.
	OnHeld func(Held)
	// Logger takes refusals, failures and alarms. Defaults to none.
	Logger *slog.Logger
	// Rand draws the jitter of back-offs. Defaults to one seeded at random.
	Rand *rand.Rand

	// hook is called at named points, outside of locks; see the tests.
	hook func(point string)
	// shared guards Rand, which all workers of a consumer draw from.
	shared *sync.Mutex
}

// Held tells of an undone record that holds the committed position of its partition, or will.
type Held struct {
	RunID     string
	Partition int32
	Position  record.Position
	// Cause is a *partitions.Refusal (errors.Is partitions.ErrUnsupported), or the error of a Copier, or nil when HeldAlarm has passed.
	Cause error
	// Since is when it became the oldest undone record; zero with a Cause.
	Since time.Time
}

// Backoff grows with the attempts of a record: Min after the first, doubled each time, at most Max, less a random part of up to Jitter of it.
type Backoff struct {
	Min, Max time.Duration
	// Jitter is from 0 (none) to 1 (anything from 0 to the whole).
	Jitter float64
}

// Delay is the delay after an attempt, from 1. r may be nil without Jitter.
func (b Backoff) Delay(attempt int, r *rand.Rand) time.Duration {
	d := b.Min
	for ; attempt > 1 && d < b.Max; attempt-- {
		d *= 2
	}
	if b.Max > 0 {
		d = min(d, b.Max)
	}
	if b.Jitter > 0 && r != nil {
		d -= time.Duration(float64(d) * b.Jitter * r.Float64())
	}
	return d
}

// Validate says in full sentences everything that is wrong with the configuration, as one CONFIG_INVALID error.
func (c *Config) Validate() error {
	var wrong []string
	check := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	check(c.Source == nil, "There is no source to read.")
	check(c.Store == nil, "There is no store to commit to.")
	check(c.RunID == "", "There is no run id: name the run, so that it can be resumed.")
	check(c.Handler == nil, "There is no handler.")
	check(c.Order > ByKey, "Order is %d, which is none.", c.Order)
	check(c.Concurrency < 0, "Concurrency is %d. It must be 0 (the default) or more.", c.Concurrency)
	check(c.Order == InPartition && c.Concurrency > 1, "Concurrency is %d with InPartition, which handles one record of a partition at a time. Choose ByKey, or leave Concurrency out.", c.Concurrency)
	check(c.MaxAttempts < 0 || c.MaxClaims < 0, "MaxAttempts is %d and MaxClaims %d. They must be 0 (off) or more.", c.MaxAttempts, c.MaxClaims)
	check(c.MaxClaims == 1, "MaxClaims is 1, by which a record would be given up that was never handled alone. It must be 0 (off) or 2 and more.")
	check(c.MaxAttempts > 1 && c.Retry == nil, "MaxAttempts is %d and there is no Retry to write the copies to.", c.MaxAttempts)
	check(c.DeadLetter != nil && c.Quarantine, "Dead letters cannot go to DeadLetter and to the Quarantine. Choose one.")
	check(c.Backoff.Min < 0 || c.Backoff.Max < 0 || c.Backoff.Max > 0 && c.Backoff.Max < c.Backoff.Min, "The back-off is from %v to %v. Both must be 0 or more, in this order.", c.Backoff.Min, c.Backoff.Max)
	check(!(c.Backoff.Jitter >= 0 && c.Backoff.Jitter <= 1), "The back-off's jitter is %v. It must be from 0 to 1.", c.Backoff.Jitter)
	check(c.Capacity < 0 || c.Bytes < 0 || c.FetchSize < 0, "Capacity is %d, Bytes %d and FetchSize %d. They must be 0 (the defaults) or more.", c.Capacity, c.Bytes, c.FetchSize)
	check(c.TTL < 0 || c.StandEvery < 0 || c.Drain < 0 || c.Abandon < 0 || c.HeldAlarm < 0, "TTL, StandEvery, Drain, Abandon and HeldAlarm must be 0 (the defaults) or more.")
	if len(wrong) == 0 {
		return nil
	}
	return codes.New(codes.ConfigInvalid, "%s", strings.Join(wrong, " "))
}

func (c Config) withDefaults() Config {
	orDefault(&c.Concurrency, 1)
	orDefault(&c.Capacity, DefaultCapacity)
	orDefault(&c.Bytes, DefaultBytes)
	orDefault(&c.FetchSize, DefaultFetchSize)
	orDefault(&c.CommitEvery, DefaultCommitEvery)
	orDefault(&c.TTL, DefaultTTL)
	orDefault(&c.StandEvery, DefaultStandEvery)
	orDefault(&c.Drain, DefaultDrain)
	orDefault(&c.Abandon, DefaultAbandon)
	orDefault(&c.HeldAlarm, DefaultHeldAlarm)
	if c.Owner == "" {
		c.Owner = control.NewOwner()
	}
	if c.Kill == nil {
		c.Kill = context.Background()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.OnPanic == nil {
		c.OnPanic = func(v any, _ Delivery) Outcome { return Retry(fmt.Sprintf("panic: %v", v)) }
	}
	if c.OnHeld == nil {
		c.OnHeld = func(Held) {}
	}
	if c.Rand == nil {
		c.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	if c.hook == nil {
		c.hook = func(string) {}
	}
	c.shared = new(sync.Mutex)
	return c
}

func orDefault[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

func (c *Config) terms() partitions.Terms {
	return partitions.Terms{MaxAttempts: c.MaxAttempts, DeadLetter: c.DeadLetter != nil || c.Quarantine, RetryTarget: c.Retry != nil}
}

// delay draws the back-off of an attempt.
func (c *Config) delay(b Backoff, attempt int) time.Duration {
	c.shared.Lock()
	defer c.shared.Unlock()
	return b.Delay(attempt, c.Rand)
}
