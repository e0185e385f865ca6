package group

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
)

// Defaults of a Config.
const (
	DefaultDrain      = 10 * time.Second
	DefaultBackoffMin = 500 * time.Millisecond
	DefaultBackoffMax = 30 * time.Second
)

// Config says what a Member works on. Run, Assigner and Engine are required.
type Config struct {
	// Run names the whole: partition N is the run RunID(Run, N).
	Run      string
	Assigner Assigner
	// Engine configures the engine of one partition; it is asked before every start, in a goroutine of that partition, with a context that
	// ends when the partition is taken away. Source has to be a
	// view of that one partition, and Fencing is required. The member sets RunID, Kill, and of the Fencing Owner (a new one for each start,
	// so that an engine which hangs is never taken for the next one) and Standby: the owner before is waited for.
	Engine func(ctx context.Context, partition int32) (actors.Config, error)
	// Drain bounds how long a partition that is revoked may take to process what it has in hand and commit. Then it is stopped as one
	// that is lost. Defaults to 10 s; it has to be shorter than the time after which an assigner gives a partition away regardless.
	Drain time.Duration
	// Backoff is the pause before an engine that has ended by itself is started again; Healthy means nothing here. Defaults to 500 ms,
	// doubled up to 30 s while nothing is committed in between.
	Backoff actors.Backoff
	// Kill ends every engine at once, without a last cut. Defaults to never.
	Kill context.Context
	// OnChange is told whenever a partition changes its phase. Calls do not overlap. It must not block, nor call the member.
	OnChange func(Change)
	// Logger gets starts, ends and failures. Defaults to none.
	Logger *slog.Logger
	// Start runs an engine. Defaults to actors.Run.
	Start func(ctx context.Context, cfg actors.Config) (actors.Result, error)
}

// Change is a partition that has come to another phase.
type Change struct {
	Partition int32
	Phase     Phase
	// Cause is why, when its engine has failed; Pause is how long it rests then.
	Cause error
	Pause time.Duration
}

func (c *Config) validate() error {
	var wrong []string
	check := func(bad bool, what string) {
		if bad {
			wrong = append(wrong, what)
		}
	}
	check(c.Run == "", "There is no run id: name the run, so that it can be resumed.")
	check(c.Assigner == nil, "There is nobody who assigns partitions.")
	check(c.Engine == nil, "There is no engine to start.")
	check(c.Drain < 0 || c.Backoff.Min < 0 || c.Backoff.Max < 0, "Drain and the back-off must be 0 (the defaults) or more.")
	if len(wrong) == 0 {
		return nil
	}
	return codes.New(codes.ConfigInvalid, "%s", strings.Join(wrong, " "))
}

func (c Config) withDefaults() Config {
	orDefault(&c.Drain, DefaultDrain)
	orDefault(&c.Backoff.Min, DefaultBackoffMin)
	orDefault(&c.Backoff.Max, DefaultBackoffMax)
	if c.Kill == nil {
		c.Kill = context.Background()
	}
	if c.OnChange == nil {
		c.OnChange = func(Change) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Start == nil {
		c.Start = actors.Run
	}
	return c
}

func orDefault(d *time.Duration, to time.Duration) {
	if *d == 0 {
		*d = to
	}
}
