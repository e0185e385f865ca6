// Package reshard runs a flow over a log whose partitions are split and merged while it is read, such as a Kinesis stream. Each shard is a
// partition with a run of its own (actors/group). A shard that is closed and read is FINISHED in the journal, with everything that waits in its
// last cut; its children begin where it ended, with the state of the keys that come to them.
//
//	family, err := reshard.New(reshard.Config{Run: "ticks", Plan: plan, Journal: store, Log: stream, Source: source, Engine: engine})
//	dealer, err := balance.New(balance.Config{Run: "ticks", Leases: store, Units: family.Units})
//	member, err := group.New(group.Config{Run: "ticks", Assigner: dealer, Engine: family.Engine})
//	err = member.Run(ctx)
//
// What is to be worked on is worked out at every look, from the complete listing of the log and the rows of the journal (sources.Eligible). Nothing
// else remembers it, so a process that dies between the end of a parent and the start of a child loses nothing.
//
// State follows a key from shard to shard, so the flow's key has to be what the producer deals records by. A parent with a key that its own range
// does not hold shows that it is not; then its children do not begin, and say so (RUN_MISMATCH).
package reshard

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sources"
)

// Journal is what has to be known of the runs of shards.
type Journal interface {
	control.Journal
	control.RunLister
}

// Config of a Family. Everything but Logger is required.
type Config struct {
	// Run names the whole; shard N is the run group.RunID(Run, N).
	Run     string
	Plan    *flow.Plan
	Journal Journal
	Log     sources.Lineage
	// Source is a view of one shard. fresh: no record of a shard before it was read by this run, so that it begins as the run was told to;
	// otherwise it begins at its first record.
	Source func(partition int32, fresh bool) sources.Source
	// Engine is what the engines of all shards have in common; Plan, Journal, Source, HandOn and Begin are set here.
	Engine actors.Config
	// OnGone is told of shards that the log holds no longer although they were not read to their end (OFFSET_LOST), whenever that changes; none is
	// that there are none any more. What goes on from them waits until Finish. It must not block. Defaults to nothing.
	OnGone func(shards []int32)
	// Logger gets what is gone. Defaults to none.
	Logger *slog.Logger
}

// Family is the shards of one log, as far as a run has come with them.
type Family struct {
	cfg Config

	mu   sync.Mutex
	gone []int32
}

// New makes a family. CONFIG_INVALID says what is missing.
func New(cfg Config) (*Family, error) {
	if cfg.Run == "" || cfg.Plan == nil || cfg.Journal == nil || cfg.Log == nil || cfg.Source == nil {
		return nil, codes.New(codes.ConfigInvalid, "a family of shards needs a run, a plan, a journal, a log and its sources")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Family{cfg: cfg}, nil
}

// Units are the shards that there are to work on now.
func (f *Family) Units(ctx context.Context) ([]int32, error) {
	// The rows come first: a shard that finishes in between is then worked on for a moment longer, and never a child too early.
	progress, err := f.progress(ctx)
	if err != nil {
		return nil, err
	}
	shards, err := f.cfg.Log.Lineage(ctx)
	if err != nil {
		return nil, err
	}
	work, gone := sources.Eligible(shards, func(p int32) sources.Progress { return progress[p] })
	slices.Sort(gone)
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Equal(gone, f.gone) {
		return work, nil
	}
	if f.cfg.OnGone != nil {
		f.cfg.OnGone(slices.Clone(gone))
	}
	if len(gone) > 0 {
		f.cfg.Logger.Error("shards are gone although they were not read to their end; what goes on from them waits", "run", f.cfg.Run, "shards", gone, "code", codes.OffsetLost.Name)
	}
	f.gone = gone
	return work, nil
}

// Gone are the shards that the log holds no longer although they were not read to their end, as of the last look.
func (f *Family) Gone() []int32 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.gone)
}

// progress reads the rows of the journal.
func (f *Family) progress(ctx context.Context) (map[int32]sources.Progress, error) {
	rows, err := f.rows(ctx)
	return Progress(rows), err
}

func (f *Family) rows(ctx context.Context) (map[int32]control.RunInfo, error) {
	return Rows(ctx, f.cfg.Journal, f.cfg.Run)
}

// Rows are the rows of a run's shards.
func Rows(ctx context.Context, journal control.RunLister, run string) (map[int32]control.RunInfo, error) {
	runs, err := journal.Runs(ctx)
	if err != nil {
		return nil, err
	}
	out := map[int32]control.RunInfo{}
	for i := range runs {
		if p, ours := group.PartitionOf(run, runs[i].Header.RunID); ours {
			out[p] = runs[i]
		}
	}
	return out, nil
}

// Progress is how far a run has come with its shards, by its rows.
func Progress(rows map[int32]control.RunInfo) map[int32]sources.Progress {
	out := make(map[int32]sources.Progress, len(rows))
	for p, row := range rows {
		out[p] = sources.Reading
		if row.Status == control.RunFinished {
			out[p] = sources.Finished
		}
	}
	return out
}

// Engine configures the engine of one shard, for group.Config.
func (f *Family) Engine(ctx context.Context, partition int32) (actors.Config, error) {
	_, parents, err := f.find(ctx, partition)
	if err != nil {
		return actors.Config{}, err
	}
	rows, err := f.rows(ctx)
	if err != nil {
		return actors.Config{}, err
	}
	// A parent that was closed before the run was to begin gives no record. Its child may hold some of before then, too.
	fresh := !slices.ContainsFunc(parents, func(p int32) bool { return rows[p].Counts.Records > 0 })
	cfg := f.cfg.Engine
	cfg.Plan, cfg.Journal, cfg.HandOn, cfg.Begin = f.cfg.Plan, f.cfg.Journal, true, f.begin
	cfg.Source = f.cfg.Source(partition, fresh)
	return cfg, nil
}

// find is a shard, and those of its parents that the run has read.
func (f *Family) find(ctx context.Context, partition int32) (shards []sources.Shard, parents []int32, err error) {
	progress, err := f.progress(ctx)
	if err != nil {
		return nil, nil, err
	}
	if shards, err = f.cfg.Log.Lineage(ctx); err != nil {
		return nil, nil, err
	}
	at := index(shards, partition)
	if at < 0 {
		return nil, nil, codes.New(codes.OffsetLost, "the log of run %q holds no shard %d any more", f.cfg.Run, partition)
	}
	for _, p := range shards[at].Parents {
		if progress[p] == sources.Finished {
			parents = append(parents, p)
		}
	}
	return shards, parents, nil
}

func index(shards []sources.Shard, partition int32) int {
	return slices.IndexFunc(shards, func(s sources.Shard) bool { return s.Partition == partition })
}

// begin makes the machine of a shard that the run has not read yet.
func (f *Family) begin(ctx context.Context, partition int32, eff *partitions.Effects) (*partitions.Machine, error) {
	shards, parents, err := f.find(ctx, partition)
	if err != nil {
		return nil, err
	}
	if len(parents) == 0 {
		return partitions.New(f.cfg.Plan, partition), nil
	}
	var machines []*partitions.Machine
	for _, p := range parents {
		m, err := f.restore(ctx, p)
		if err != nil {
			return nil, err
		}
		if at := index(shards, p); at >= 0 {
			if err := f.dealtByKey(m, &shards[at]); err != nil {
				return nil, err
			}
		}
		machines = append(machines, m)
	}
	return partitions.Inherit(f.cfg.Plan, partition, machines, shards[index(shards, partition)].Holds, eff)
}

func (f *Family) restore(ctx context.Context, p int32) (*partitions.Machine, error) {
	run := group.RunID(f.cfg.Run, p)
	m, err := partitions.Restore(f.cfg.Plan, p, func(yield func(partitions.StateBlob) error) error {
		return f.cfg.Journal.LoadBlobs(ctx, run, p, yield)
	})
	if err != nil {
		return nil, fmt.Errorf("what run %q leaves: %w", run, err)
	}
	return m, nil
}

// dealtByKey checks that every key of a shard belongs there.
func (f *Family) dealtByKey(m *partitions.Machine, s *sources.Shard) (err error) {
	m.EachKey(func(key string) bool {
		if !s.Holds(key) {
			err = codes.New(codes.RunMismatch, "run %q: shard %d has the key %.80q, which its range does not hold: the producer does not deal records by the flow's `key`, so the state of a key cannot follow it when shards are split or merged. Use the field that records are dealt by as the flow's key",
				f.cfg.Run, s.Partition, key)
		}
		return err == nil
	})
	return err
}
