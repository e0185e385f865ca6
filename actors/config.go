package actors

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/weirstream/weir/backpressure"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sources"
)

// Defaults of a Config.
const (
	DefaultEpochEvery      = time.Second
	DefaultEpochBytes      = flow.EpochBytes
	DefaultCheckpointEvery = time.Minute
	DefaultFetchSize       = 1024
	DefaultMaxFailures     = 10

	DefaultInterventionsEvery = time.Second
)

// Config says what to run. Plan, Source, Journal and RunID are required. The source and the journal stay the caller's to close.
type Config struct {
	// Plan is the compiled flow. Its idle policy (IdleAfterPolls) is applied here.
	Plan    *flow.Plan
	Source  sources.Source
	Journal control.Journal
	// RunID names the run in the journal, Group its consumer group, which is a courtesy and may be "".
	RunID, Group string

	// Fencing takes the lease of the run. Defaults to none: for a store that nobody else writes to.
	Fencing *Fencing
	// Checkpointer makes a checkpoint every CheckpointEvery (defaults to 1 minute) in which something was committed, and one at every end
	// of the run that is in order. Defaults to none. Its errors are logged, told to OnCheckpoint, and do not stop the run.
	Checkpointer    Checkpointer
	CheckpointEvery time.Duration
	// OnCheckpoint is told of every checkpoint that was made, or not. It is called in an actor and must not block. A checkpoint that is
	// refused because the lease was lost is not told: that is the end of the run.
	OnCheckpoint func(p control.Pointer, err error)

	// EpochEvery is how often a cut is committed while there is something to commit. Defaults to 1 s.
	EpochEvery time.Duration
	// EpochRecords asks for a cut after that many records already. Defaults to 0: by time only.
	EpochRecords int64
	// EpochBytes asks for a cut when the uncommitted results of one partition take that many bytes, and holds the partition until it
	// is made, so that results waiting for the journal take at most about twice that per partition. Defaults to flow.EpochBytes.
	EpochBytes int64

	// MaxRecords makes the source bounded (--once-n): after that many records over the whole life of the run, those that the journal
	// knows already among them, everything is released and the run is FINISHED. 0 is off.
	MaxRecords int64
	// UntilRecords stops at an open cut after that many records over the whole life of the run (--until-n): nothing is flushed, and
	// the run can be resumed. 0 is off.
	UntilRecords int64

	// HandOn is for a log with an end that goes on elsewhere, as a shard that is split or merged: at its end nothing is released, and the last
	// cut is FINISHED with what waits in it, for partitions.Inherit. It does not go with MaxRecords and UntilRecords.
	HandOn bool
	// Begin makes the machine of a partition that has no cut yet; what it puts into eff belongs to the first cut, which is made without
	// waiting for a record. Defaults to partitions.New. It is asked again whenever the run starts anew before that cut stands.
	Begin func(ctx context.Context, partition int32, eff *partitions.Effects) (*partitions.Machine, error)

	// Publisher publishes the rows of every epoch before the journal commits it (after it, if the epoch holds an operator's choice), to sinks
	// that are opened with each incarnation. A sink that is down is waited for, which holds the run; a refusal is a failure of the run. Its History
	// is the engine's. Defaults to none: the rows are in the journal.
	Publisher *sinks.Publisher
	// Late publishes the late events of every epoch, as sinks.Entries, after the journal has committed it (before it where a sink cannot tell what stands, and
	// in the last epoch). They stay in the quarantine all the same. Defaults to none.
	Late *sinks.Publisher
	// OnRefused, unless nil, is told when a sink has refused this owner for one who came after it, and of an epoch that is not committed since the lease has
	// run out by the clock of this process. It may be called by several goroutines. What the store refuses it says itself.
	OnRefused func(control.Refusal)

	// FetchSize bounds the records of one message. Defaults to 1024.
	FetchSize int
	// CreditRecords and CreditBytes are the window of one partition: what may be under way between source and partition. Default to
	// flow.CreditRecords and flow.CreditBytes, on which the memory bound of a plan is reckoned.
	CreditRecords, CreditBytes int64

	// MaxSkew bounds how far in event time one partition is read ahead of the slowest that has something to read (and what one window holds
	// beyond that). Defaults to 0: partitions are read as fast as they come.
	MaxSkew time.Duration
	// FreeDisk measures the free bytes where the run writes, every 2 s and not in an actor. Below MinFreeDisk nothing more is read, until
	// twice as much is free. Both default to off.
	FreeDisk    func() (int64, error)
	MinFreeDisk int64

	// Backoff is the pause between incarnations.
	Backoff Backoff
	// MaxFailures ends the run when one cause (the same code, or a panic, or an error without a code, in the same actor) has come that
	// often without a committed epoch in between. A source that fails for a while (a code to be retried) after more was read than ever
	// before starts the count again. Defaults to 10, with the default back-off about 21 s of trying.
	//
	// A cause in one partition is counted until that partition has moved on itself, whatever the others commit, and tried again after
	// Backoff.Min. In a run without MaxRecords and UntilRecords it does not end the run: the partition is blocked (PartitionBlocked), as it
	// is at once by a failure that does not pass, and the others go on. Such a run ends with the cause when it is stopped, when a bounded
	// source ends, or when no partition is left.
	MaxFailures int
	// StayBlocked keeps a run alive, and owner, that needs an operator: records that the log has lost, a batch that cannot be read, and damaged
	// state block their partition, a recreated log and leases that have gone back the run (see Block). It is for runs without a limit of
	// records over a log without an end; in any other these end the run, with or without it.
	StayBlocked bool
	// Interventions are what operators ask for, read every InterventionsEvery (defaults to 1 s) and settled by this run as the owner of its lease.
	// Defaults to none. It needs Fencing.
	Interventions      control.Interventions
	InterventionsEvery time.Duration

	// Kill ends Run at once, without a last cut: the second Ctrl-C. Defaults to never. Cancelling the context of Run instead is the
	// orderly way: intake stops, what was handed out is processed, and a last open cut is committed.
	Kill context.Context
	// CommitOffsets is told the next position of every partition that has moved, after the commit and never before: the courtesy to a consumer group.
	// The first call of an incarnation has all of them. An error is logged, and what it was about is told again with the next commit. Calls do not overlap; the next commit waits for it, so it must return when ctx ends.
	CommitOffsets func(ctx context.Context, next map[int32]record.Position) error
	// ObserveEvery is how often a log without an end is looked at, for partitions that were added, and for what it is about to remove. Defaults
	// to 10 s. OnRetention is told at every look while a log is about to remove what the run needs (RETENTION_AT_RISK), and when it is not any more; for
	// sources that are sources.Observer. It is called in an actor and must not block.
	ObserveEvery time.Duration
	OnRetention  func(RetentionRisk)
	// OnProgress is told of every commit. Calls do not overlap; the next commit waits for it.
	OnProgress func(Progress)
	// OnBackpressure is told when a partition is held at the source, and when it flows again. It is called in an actor and must not block.
	OnBackpressure func(partition int32, t backpressure.Transition)
	// OnState is told of every new state of the run, OnQueue when what is under way to a partition begins, ends, waits or is held, OnWithheld
	// when a partition gets no more until its results are committed, and when it does again. All are called in actors and must not block;
	// calls for one run, or one partition, do not overlap.
	OnState    func(StateChange)
	OnQueue    func(Queue)
	OnWithheld func(partition int32, on bool)
	// Logger gets failures, restarts and ends. Defaults to none.
	Logger *slog.Logger
	// Hooks are for tests.
	Hooks Hooks
}

// Backoff is the pause before the n-th incarnation in a row that follows a failure without a committed epoch in between: Min, doubled
// each time, at most Max. It has no jitter, so that a run with a given history of failures takes the same time always.
type Backoff struct {
	// Min defaults to 100 ms, Max to 5 s.
	Min, Max time.Duration
	// Healthy is how long an incarnation has to live for its failure to count as the first of its cause. Defaults to 1 minute.
	Healthy time.Duration
}

// Pause is the pause after n failures; n is at least 1.
func (b Backoff) Pause(n int) time.Duration {
	d := b.Min
	for ; n > 1 && d < b.Max; n-- {
		d *= 2
	}
	return min(d, b.Max)
}

// Validate says in full sentences everything that is wrong with the configuration, as one CONFIG_INVALID error.
func (c *Config) Validate() error {
	var wrong []string
	check := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	check(c.Plan == nil, "There is no plan: compile a flow first.")
	check(c.Source == nil, "There is no source to read.")
	check(c.Journal == nil, "There is no journal to commit to.")
	c.Fencing.validate(c.Journal, check)
	check(c.Checkpointer != nil && c.Fencing == nil, "There is a Checkpointer and no Fencing: checkpoints are written under a lease.")
	check(c.Interventions != nil && c.Fencing == nil, "There are Interventions and no Fencing: they are settled under a lease.")
	check(c.InterventionsEvery < 0, "InterventionsEvery is %v. It must be 0 (the default) or more.", c.InterventionsEvery)
	check(c.CheckpointEvery < 0, "CheckpointEvery is %v. It must be 0 (the default) or more.", c.CheckpointEvery)
	check(c.RunID == "", "There is no run id: name the run, so that it can be resumed.")
	check(c.MaxRecords < 0, "MaxRecords is %d. It must be 0 (off) or more.", c.MaxRecords)
	check(c.UntilRecords < 0, "UntilRecords is %d. It must be 0 (off) or more.", c.UntilRecords)
	check(c.MaxRecords > 0 && c.UntilRecords > 0, "MaxRecords and UntilRecords are both set. A run ends in one way: leave one out.")
	check(c.HandOn && (c.MaxRecords > 0 || c.UntilRecords > 0), "HandOn is set beside a number of records. A run ends in one way: leave one out.")
	validateSinks(c.Publisher, check)
	validateSinks(c.Late, check)
	check(c.FetchSize < 0, "FetchSize is %d. It must be 0 (the default) or more.", c.FetchSize)
	check(c.EpochEvery < 0, "EpochEvery is %v. It must be 0 (the default) or more.", c.EpochEvery)
	check(c.EpochRecords < 0 || c.EpochBytes < 0, "EpochRecords is %d and EpochBytes %d. They must be 0 or more.", c.EpochRecords, c.EpochBytes)
	check(c.CreditRecords < 0 || c.CreditBytes < 0, "The credits are %d records and %d bytes. They must be 0 (the defaults) or more.", c.CreditRecords, c.CreditBytes)
	check(c.MaxSkew < 0 || c.MinFreeDisk < 0 || c.MinFreeDisk > 1<<61, "MaxSkew is %v and MinFreeDisk %d. They must be 0 (off) or more.", c.MaxSkew, c.MinFreeDisk)
	check(c.ObserveEvery < 0, "ObserveEvery is %v. It must be 0 (the default) or more.", c.ObserveEvery)
	check(c.MaxFailures < 0, "MaxFailures is %d. It must be 0 (the default) or more.", c.MaxFailures)
	check(c.Backoff.Min < 0 || c.Backoff.Max < 0, "The back-off is from %v to %v. Both must be 0 (the defaults) or more.", c.Backoff.Min, c.Backoff.Max)
	if len(wrong) == 0 {
		return nil
	}
	return codes.New(codes.ConfigInvalid, "%s", strings.Join(wrong, " "))
}

func (c Config) withDefaults() Config {
	c.Fencing = c.Fencing.withDefaults()
	orDefault(&c.EpochEvery, DefaultEpochEvery)
	orDefault(&c.CheckpointEvery, DefaultCheckpointEvery)
	orDefault(&c.EpochBytes, DefaultEpochBytes)
	orDefault(&c.FetchSize, DefaultFetchSize)
	orDefault(&c.CreditRecords, flow.CreditRecords)
	orDefault(&c.CreditBytes, flow.CreditBytes)
	orDefault(&c.MaxFailures, DefaultMaxFailures)
	orDefault(&c.ObserveEvery, DefaultObserveEvery)
	orDefault(&c.InterventionsEvery, DefaultInterventionsEvery)
	orDefault(&c.Backoff.Min, 100*time.Millisecond)
	orDefault(&c.Backoff.Max, 5*time.Second)
	orDefault(&c.Backoff.Healthy, time.Minute)
	if c.Kill == nil {
		c.Kill = context.Background()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func orDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// partSize bounds the records of one message: it has to fit the window.
func (c *Config) partSize() int {
	n := min(int64(c.FetchSize), c.CreditRecords)
	if c.EpochRecords > 0 {
		n = min(n, c.EpochRecords)
	}
	return int(max(n, 1))
}

// limit is the number of records after which the intake ends, or 0, and how it ends.
func (c *Config) limit() (records int64, mode endMode) {
	if c.UntilRecords > 0 {
		return c.UntilRecords, endUntil
	}
	return c.MaxRecords, endFinish
}
