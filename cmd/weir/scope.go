package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kafka"
)

// The scopes of a run: what one lease covers.
const (
	scopeRun       = "run"
	scopePartition = "partition"
)

// scopeFlags say how a run is spread over processes.
type scopeFlags struct {
	scope   string
	session time.Duration
}

func (o *scopeFlags) addScope(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.scope, "scope", scopeRun, "what a process owns: run, all of it, or partition: those partitions that the consumer group --group gives it, each as a run RUN-ID/N with a lease of its own")
	f.DurationVar(&o.session, "session", 10*time.Second, "with --scope partition: how long the group waits for a process that is not heard of before others get its partitions; brokers refuse less than their minimum, usually 6s")
}

func (o *runOptions) checkScope() error {
	switch o.scope {
	case scopeRun:
		return nil
	case scopePartition:
	default:
		return usagef("--scope must be run or partition, not %q", o.scope)
	}
	switch {
	case o.log != "":
		return usagef("--scope partition shares a topic out over a consumer group, and --log has none")
	case o.group == "":
		return usagef("--scope partition shares the partitions out over a consumer group: name it with --group, the same for every process of the run")
	case o.onceN > 0 || o.untilN > 0:
		return usagef("--once-n and --until-n count the records of the whole run, which no process of --scope partition sees; leave them out, or use --scope run")
	case o.emit != "":
		return usagef("--emit is written at the end of a run, which --scope partition does not have; `weir journal emit %s` makes the document of what is committed", o.runID)
	case o.session <= 0:
		return usagef("--session must be more than 0, not %s", o.session)
	}
	return nil
}

// ownName refuses a run id that reads as that of a partition of a run which is shared out, and one that nobody could type.
func ownName(flag, id string) error {
	if err := partName(flag, id); err != nil {
		return err
	}
	return typeable(flag, id)
}

// partName refuses a run id that reads as that of a partition of a run which is shared out: whoever shares that one out would take it for its own.
func partName(flag, id string) error {
	if !group.IsPart(id) {
		return nil
	}
	return codes.New(codes.RunIDInvalid, "%s %q ends in / and a number, as the runs of partitions do that `weir run --scope partition` makes; choose another name", flag, id)
}

// typeable refuses a run id that nobody could type or tell from another: with blanks, or with letters that are not seen.
func typeable(flag, id string) error {
	switch {
	case !utf8.ValidString(id) || strings.ContainsFunc(id, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return codes.New(codes.RunIDInvalid, "%s %.200q has a blank, a control character or another that is not seen", flag, id)
	case strings.HasPrefix(id, "-"):
		return codes.New(codes.RunIDInvalid, "%s %.200q begins with a dash: other commands would take it for a flag", flag, id)
	}
	return nil
}

// newName refuses a new run that nobody could type. One that the store holds was begun by a release that took such names, and goes on.
func (o *runOptions) newName(ctx context.Context, store control.RunLister) error {
	refused := typeable("--run-id", o.runID)
	if refused == nil {
		return nil
	}
	_, err := storedRuns(ctx, store, o.runID)
	if codes.Has(err, codes.RunUnknown) {
		return refused
	}
	return err
}

// sameScope refuses to go on with a run in another scope than it began in: what is committed there would be computed and published once more.
// A stream of Kinesis is shared out by shards unless its records are counted.
func (o *runOptions) sameScope(ctx context.Context, store control.RunLister) error {
	byParts := o.scope == scopePartition || o.kinesis != "" && o.onceN == 0 && o.untilN == 0
	all, err := store.Runs(ctx)
	if err != nil {
		return err
	}
	for _, r := range all {
		_, apart := group.PartitionOf(o.runID, r.Header.RunID)
		switch {
		case byParts && r.Header.RunID == o.runID:
			return codes.New(codes.RunMismatch, "run %q is one run over all partitions, at epoch %d; it cannot go on by partitions: run it as it began, or use a new --run-id", o.runID, r.Epoch)
		case !byParts && apart:
			return codes.New(codes.RunMismatch, "run %q is shared out by partitions, %q is one of them; run it as it began (--scope partition, or Kinesis without --once-n), or use a new --run-id", o.runID, r.Header.RunID)
		}
	}
	return nil
}

// wrapOffsets lets a test break what the group is told, to see that a drill notices.
var wrapOffsets = func(commit commitOffsets) commitOffsets { return commit }

// groupSource is a source with a consumer group.
type groupSource interface {
	sources.Source
	Group(kafka.GroupConfig) (*kafka.Group, error)
}

// sharing is who gives partitions to this process, and who is told what is committed of them.
func (a *app) sharing(source sources.Source, o runOptions) (group.Assigner, commitOffsets, error) {
	log, ok := source.(groupSource)
	if !ok {
		return nil, nil, codes.New(codes.Internal, "the source has no consumer group")
	}
	members, err := log.Group(kafka.GroupConfig{Group: o.group, Session: o.session, OnTrouble: func(cause error) {
		if a.watch.troubled(cause); cause == nil {
			return
		}
		a.notice("weir: group %s: the membership was lost, and is sought again: %s\n", printable(o.group), printable(cause.Error()))
	}})
	if err != nil {
		return nil, nil, err
	}
	return members, wrapOffsets(members.CommitOffsets), nil
}

// apart runs the partitions that are given to this process, until it is told to stop.
func (a *app) apart(ctx context.Context, plan *flow.Plan, source sources.Source, o runOptions, store *runStore, faults *failpoints) error {
	assigner, offsets, err := a.sharing(source, o)
	if err != nil {
		return err
	}
	a.watch.apart()
	defer a.watch.observing(ctx, source)()
	if wrapSource != nil {
		source = wrapSource(source)
	}
	if err := a.printBound(ctx, plan, source); err != nil {
		return err
	}
	keep, closing, err := a.openCheckpoints(ctx, o, store)
	if err != nil {
		return err
	}
	defer closing()
	stands, shown := &standing{last: map[int32]actors.Progress{}}, &boards{}
	member, err := group.New(group.Config{
		Run: o.runID, Assigner: assigner, Kill: a.kill, Logger: a.log, OnChange: a.watch.partitions(a.tellPartition(), shown),
		Engine: func(_ context.Context, p int32) (actors.Config, error) {
			cfg := a.engineOf(p, o, stands)
			cfg.Plan, cfg.Source, cfg.Journal, cfg.CommitOffsets, cfg.Hooks = plan, sources.Only(source, p), store, offsets, faults.hooks(group.RunID(o.runID, p))
			cfg.Fencing = &actors.Fencing{Leases: store, TTL: o.ttl, OnLease: a.tellLease}
			keep(&cfg)
			o.recovery(&cfg, store)
			o.publish(&cfg)
			shown.put(p, a.watch.attach(&cfg, group.RunID(o.runID, p)))
			return cfg, nil
		},
	})
	if err != nil {
		return err
	}
	a.cleanUp, a.working = member.Abandon, true
	return a.endApart(ctx, o, store, stands, member.Run(ctx))
}

// engineOf is what the flags say of the engine of a partition, and what it tells.
func (a *app) engineOf(p int32, o runOptions, stands *standing) actors.Config {
	return actors.Config{
		Group: o.group, EpochEvery: o.epoch, EpochRecords: o.epochRecords, FetchSize: o.fetch, Logger: a.log.With("partition", p),
		OnProgress: func(now actors.Progress) {
			stands.note(p, now)
			a.log.Info("committed", "partition", p, "epoch", now.Epoch, "records", now.Counts.Records, "outputs", now.Counts.Outputs, "watermark", now.Watermark.String(), "commit", now.CommitTime)
		},
	}
}

// finishApart says how it ended.
func (a *app) finishApart(o runOptions, stands *standing, err error) error {
	if !errors.Is(err, actors.ErrInterrupted) || a.signal != syscall.SIGTERM {
		return err
	}
	a.notice("weir: stopped; everything processed is committed\n")
	if !a.json {
		return nil
	}
	return a.document(map[string]any{"stopped": true, "run": o.runID, "scope": scopePartition, "partitions": stands.document()})
}

// standing is how far this process has brought each partition.
type standing struct {
	mu   sync.Mutex
	last map[int32]actors.Progress
}

func (s *standing) note(p int32, now actors.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[p] = now
}

func (s *standing) document() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]any{}
	for p, now := range s.last {
		out[number(p)] = map[string]any{"records": now.Counts.Records, "epoch": now.Epoch, "watermark": now.Watermark.String()}
	}
	return out
}

// tellPartition says what happens to the partitions of this process.
func (a *app) tellPartition() func(group.Change) {
	ours := map[int32]bool{} // calls do not overlap
	return func(c group.Change) {
		switch c.Phase {
		case group.Running:
			if !ours[c.Partition] {
				a.notice("weir: partition %d assigned\n", c.Partition)
			}
			ours[c.Partition] = true
		case group.Draining:
			a.notice("weir: partition %d revoked; committing what is in hand\n", c.Partition)
		case group.Stopping:
			a.notice("weir: partition %d lost; stopping at once\n", c.Partition)
		case group.Waiting:
			cause := ""
			if c.Cause != nil {
				cause = ": " + printable(c.Cause.Error())
			}
			a.notice("weir: partition %d has failed and is tried again in %s; the others go on%s\n", c.Partition, c.Pause, cause)
		case group.Finished:
			a.notice("weir: partition %d has ended\n", c.Partition)
		case group.Absent:
			ours[c.Partition] = false
			a.notice("weir: partition %d given up\n", c.Partition)
		}
	}
}

// tellLease says what happens to the lease of a partition.
func (a *app) tellLease(e actors.LeaseEvent) {
	if e.Change == actors.LeaseReleased {
		a.notice("weir: lease %s released, token %d\n", printable(e.Lease.Name), e.Lease.Token)
		return
	}
	(&term{app: a}).tell(e)
}
