package parity

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/emit"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/logfile"
)

// What operators and policies have decided about a run stands in its journal alone. A replay makes the same decisions where they were made, and is
// equal then; a batch, which knows no order of arrival, is corrected by what a decision has given up.

// decisions are those of a run that no record has made.
func decisions(ctx context.Context, journal control.Journal, run string) (all []partitions.Decision, err error) {
	err = journal.Decisions(ctx, run, func(d partitions.Decision) error {
		if _, again := d.Event(); again {
			all = append(all, d)
		}
		return nil
	})
	return all, err
}

// lost are the deliveries that were given up by a decision, as exceptions.
func (j *judgement) lost(ctx context.Context) (list []Exception, err error) {
	var gone []partitions.Decision
	for _, d := range j.decided {
		if _, _, is, err := batch.GivenUp(d); err != nil {
			return nil, err
		} else if is {
			gone = append(gone, d)
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	log, err := logfile.Open(filepath.Join(j.Dir, logName))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	counts := make([]int64, max(j.Partitions, 1))
	var a logfile.Arrival
	for {
		if err := log.Next(&a); err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		if a.N%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		p := record.PartitionOf(a.Key, int32(len(counts)))
		at := record.Offset(counts[p])
		counts[p]++
		for _, d := range gone {
			if first, next, _, _ := batch.GivenUp(d); d.Partition == p && at.Cmp(first) >= 0 && at.Cmp(next) < 0 {
				list = append(list, Exception{Partition: p, Position: at, Reason: d.Kind, Detail: d.Detail, EventID: string(a.EventID)})
			}
		}
	}
}

// RunConfig names a run that has ended, and the log that it has read.
type RunConfig struct {
	Plan *flow.Plan
	// Store has the run, and Run is its id.
	Store control.ControlStore
	Run   string
	// Source is what the run has read, with the same partitions and positions: an arrival log, or a topic that still has all of it.
	Source sources.Source
	// Dir holds the files of the comparison; Keep is how many rows the returned documents hold.
	Dir  string
	Keep int
}

// RunReport is how a run compares with a replay of its log.
type RunReport struct {
	Replay, Stream emit.Doc
	// Decisions are those of operators and policies, which the replay has made again.
	Decisions []partitions.Decision
	// Reasons says in words what differs; none: they are equal.
	Reasons []string
}

// OfRun compares a run that has ended with a replay of its log under the decisions that it has recorded. RUN_MISMATCH: the run is open: what it would
// release at its end is not known, or another log is named.
func OfRun(ctx context.Context, cfg RunConfig) (r RunReport, err error) {
	if cfg.Keep <= 0 {
		cfg.Keep = emit.DefaultKeep
	}
	var state control.RunState
	err = cfg.Store.Snapshot(ctx, cfg.Run, func(v control.JournalView) error {
		state = v.State()
		return nil
	})
	if err != nil {
		return r, err
	}
	info, err := cfg.Source.Info(ctx)
	switch {
	case err != nil:
		return r, err
	case state.Status != control.RunFinished:
		return r, codes.New(codes.RunMismatch, "run %q has not ended: a replay releases everything at the end of the log, and the run has not. End it (--once-n) first", cfg.Run)
	case state.Header.Fingerprint != cfg.Plan.Fingerprint:
		return r, codes.New(codes.RunMismatch, "run %q was made by a flow with fingerprint %s, this one has %s", cfg.Run, state.Header.Fingerprint, cfg.Plan.Fingerprint)
	case fmt.Sprint(info.Partitions) != fmt.Sprint(state.Header.Partitions):
		return r, codes.New(codes.RunMismatch, "run %q has read partitions %v, and the log that is named has %v", cfg.Run, state.Header.Partitions, info.Partitions)
	}
	out, err := Job{Config: Config{Plan: cfg.Plan, Keep: cfg.Keep}, Emit: filepath.Join(cfg.Dir, "stream.json")}.outcome(ctx, cfg.Store, cfg.Run, state)
	if err != nil {
		return r, err
	}
	r.Stream, r.Decisions = out.Doc, out.Decisions
	var replayed Exceptions
	r.Replay, err = batch.Run(ctx, batch.Config{
		Plan: cfg.Plan, Source: cfg.Source, Mode: emit.ModeReplay, Emit: filepath.Join(cfg.Dir, "replay.json"), Keep: cfg.Keep, Decided: r.Decisions,
		Quarantine: func(q partitions.Quarantined) error { replayed.add(q); return nil },
	})
	if codes.Has(err, codes.JournalCorrupt) && len(r.Decisions) > 0 {
		return r, codes.New(codes.RunMismatch, "the choices in the journal of run %q do not fit a replay of this log by this flow: %v. A run that was restored under a mended flow has read the "+
			"beginning of its log by another flow, and cannot be compared with a replay by one", cfg.Run, err)
	}
	if err != nil {
		return r, err
	}
	r.Reasons = compare("replay", r.Replay, "stream", r.Stream)
	if d := replayed.difference(out.Exceptions); d != "" {
		r.Reasons = append(r.Reasons, d)
	}
	return r, nil
}
