package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/handoff"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/kafka"
	"github.com/weirstream/weir/sources/snapshot"
)

// handOverOptions are the flags of weir batch run that hand the result over to a stream.
type handOverOptions struct {
	topicFlags
	run, store, group, at, manifest string
	ttl                             time.Duration
	commitBytes                     int
	standby                         bool
}

func (o *handOverOptions) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.run, "hand-over-to", "", "make this run of the snapshot, for 'weir run --run-id' to continue with the topic")
	f.StringVar(&o.store, "store", "", "with --hand-over-to: store of the run's journal (required)")
	o.topicFlags.add(cmd, "with --hand-over-to: broker addresses, HOST:PORT, separated by commas (required)", "with --hand-over-to: the topic that continues the snapshot (required)")
	f.StringVar(&o.group, "group", "", "with --hand-over-to: consumer group of the run, a courtesy")
	f.StringVar(&o.at, "at", "", "with --hand-over-to: the mark that 'weir handoff mark' wrote before the snapshot was taken; without it the stream begins at the topic's present end")
	f.StringVar(&o.manifest, "manifest", "", "with --hand-over-to: write the manifest of the hand-over here")
	f.BoolVar(&o.standby, "standby", false, "with --hand-over-to: wait while another process owns the run, such as one that was killed and whose lease has not run out")
	f.IntVar(&o.commitBytes, "commit-bytes", handoff.DefaultCommitBytes, "with --hand-over-to: commit when the results take this many bytes of memory")
	f.DurationVar(&o.ttl, "ttl", actors.DefaultTTL, "with --hand-over-to: how long the lease of the run lasts unless it is renewed")
}

func (o *handOverOptions) check(b *batchOptions) error {
	switch {
	case o.run == "" && (o.store != "" || o.brokers != "" || o.named() || o.topic != "" || o.group != "" || o.at != "" || o.manifest != ""):
		return usagef("--store, --brokers, --topic, --group, --at and --manifest belong to --hand-over-to: name the run that the stream will continue")
	case o.run == "":
		return nil
	case b.snapshot == "":
		return usagef("--hand-over-to takes a --snapshot in: an arrival log is published to the topic instead, by weir replay publish")
	case b.emit != "":
		return usagef("--hand-over-to leaves an open run: its document is written by `weir run`, leave --emit out")
	case o.store == "":
		return usagef("--store is missing: say where the journal of the run is kept, such as --store sqlite:weir.db")
	case o.brokers == "" || o.topic == "":
		return usagef("--brokers and --topic are needed: the topic that continues the snapshot")
	case o.commitBytes < 1:
		return usagef("--commit-bytes must be at least 1, not %d", o.commitBytes)
	}
	if err := ownName("--hand-over-to", o.run); err != nil {
		return err
	}
	if err := (&runOptions{ttl: o.ttl}).checkTTL(); err != nil {
		return err
	}
	return o.checkBrokers()
}

// handOver takes a snapshot in and leaves a run that the topic continues.
func (a *app) handOver(ctx context.Context, b batchOptions) error {
	o := &b.handOver
	inputs := append(storeFiles(o.store), named{"--flow", b.flow}, named{"--snapshot", b.snapshot}, named{"--at", o.at})
	if err := distinct([]named{{"--manifest", o.manifest}}, inputs); err != nil {
		return err
	}
	if err := writable(o.manifest); err != nil {
		return err
	}
	plan, err := a.loadFlow(b.flow)
	if err != nil {
		return err
	}
	// The positions come before the history is looked at: what is written to the topic from now on is behind the seam.
	mark, topic, err := a.seam(ctx, plan, o)
	if err != nil {
		return err
	}
	faults, err := readFailpoints(a.stderr)
	if err != nil {
		return err
	}
	store, err := openRunStore(ctx, runOptions{store: o.store, ttl: o.ttl}, faults)
	if err != nil {
		return err
	}
	defer store.Close()
	hold, work, err := o.acquire(ctx, store)
	if err != nil {
		return err
	}
	defer a.giveBack(ctx, hold)
	bound := plan.MemoryBound(len(mark.Partitions))
	a.notice("weir: %s: at most %d MiB of memory for the state and buffers of %s\n", printable(b.snapshot), bound.Total>>20, count(len(mark.Partitions), "partition"))
	cfg := b.history(plan, mark)
	cfg.Journal, cfg.Runs = drilled{store.Under(hold.Lease()), faults.hooks(o.run)}, store
	cfg.OnCommit = func(epoch uint64, records int64) { a.log.Info("committed", "epoch", epoch, "records", records) }
	r, err := handoff.FromHistory(work, cfg)
	if err != nil {
		return err
	}
	return a.handedOver(work, o, store, r, endsOf(topic), plan)
}

// history is what to take in, and where the topic goes on.
func (b *batchOptions) history(plan *flow.Plan, mark handoff.Manifest) handoff.Config {
	o := &b.handOver
	return handoff.Config{
		Plan: plan, History: snapshot.New(snapshot.Config{Path: b.snapshot, Fields: snapshot.FieldsOf(plan)}),
		Header: control.RunHeader{RunID: o.run, Fingerprint: plan.Fingerprint, Source: mark.Source, SourceID: mark.SourceID, Group: o.group, Partitions: mark.Numbers()},
		Seam:   mark.Next(), Fixed: o.at != "", Fetch: b.fetch, CommitBytes: o.commitBytes,
	}
}

// acquire takes the lease of the run, at once or, standing by, when it is free.
func (o *handOverOptions) acquire(ctx context.Context, store control.ControlStore) (*handoff.Hold, context.Context, error) {
	var every time.Duration
	if o.standby {
		every = actors.DefaultStandEvery
	}
	return handoff.Acquire(ctx, store, o.run, drillOwner(), o.ttl, every)
}

func (a *app) giveBack(ctx context.Context, hold *handoff.Hold) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := hold.Release(ctx); err != nil {
		a.log.Info("the lease was not given back and runs out by itself", "cause", err.Error())
	}
}

// drilled is a journal in which a drill may fail before a commit and after it, at the points at which it may in the engine.
type drilled struct {
	control.Journal
	hooks actors.Hooks
}

// Commit is control.Journal's.
func (d drilled) Commit(ctx context.Context, c control.Commit) error {
	if d.hooks.At == nil {
		return d.Journal.Commit(ctx, c)
	}
	if err := d.hooks.At(ctx, actors.Point{Name: actors.BeforeCommit, Epoch: c.Epoch}); err != nil {
		return err
	}
	if err := d.Journal.Commit(ctx, c); err != nil {
		return err
	}
	return d.hooks.At(ctx, actors.Point{Name: actors.AfterCommit, Epoch: c.Epoch})
}

// BeginRun is control.Beginner's.
func (d drilled) BeginRun(ctx context.Context, h control.RunHeader, c control.Commit) error {
	if d.hooks.At == nil {
		return control.BeginRun(ctx, d.Journal, h, c)
	}
	if err := d.hooks.At(ctx, actors.Point{Name: actors.BeforeCommit, Epoch: c.Epoch}); err != nil {
		return err
	}
	if err := control.BeginRun(ctx, d.Journal, h, c); err != nil {
		return err
	}
	return d.hooks.At(ctx, actors.Point{Name: actors.AfterCommit, Epoch: c.Epoch})
}

// seam takes the positions from the mark, or from the topic as it is, and checks that the topic can continue a history there.
func (a *app) seam(ctx context.Context, plan *flow.Plan, o *handOverOptions) (handoff.Manifest, handoff.Topic, error) {
	var mark handoff.Manifest
	var err error
	if o.at != "" {
		if mark, err = readManifest(o.at); err != nil {
			return mark, handoff.Topic{}, err
		}
		if mark.Kind != handoff.KindMark {
			return mark, handoff.Topic{}, codes.New(codes.ConfigInvalid, "--at %s says where a run stands (%s), not where the topic ended before the snapshot was taken: make it with `weir handoff mark`", o.at, mark.Kind)
		}
	}
	s, err := o.source(a)
	if err != nil {
		return mark, handoff.Topic{}, err
	}
	topic, err := boundsOf(ctx, s)
	if err != nil {
		return mark, topic, err
	}
	if o.at == "" {
		mark = handoff.Mark(topic.Name, topic.ID, endsOf(topic))
		a.notice("weir: the stream will begin where topic %s ends now; what was written to it since the snapshot was taken would be in neither (use --at)\n", printable(topic.Name))
	}
	if err := doesNotFit(o.at, handoff.Failed(handoff.AgainstTopic(mark, topic))); err != nil {
		return mark, topic, err
	}
	return mark, topic, a.dealing(ctx, plan, s, topic)
}

// doesNotFit is the error of a mark that the topic does not fit any more.
func doesNotFit(at string, failed []handoff.Check) error {
	if len(failed) == 0 {
		return nil
	}
	code := codes.RunMismatch
	var said []string
	for _, c := range failed {
		said = append(said, fmt.Sprintf("%s: %s", c.Name, c.Detail))
		switch {
		case c.Name == "TOPIC_ID":
			code = codes.TopicRecreated
		case code == codes.RunMismatch && strings.HasPrefix(c.Name, "TOPIC_START_"):
			code = codes.OffsetLost
		}
	}
	return codes.New(code, "the topic does not fit the mark %s: %s. Make a new mark and take the snapshot after it", at, strings.Join(said, "; "))
}

// sampled is how many records at the end of each partition are looked at.
const sampled = 100

// dealing looks at the last records of each partition, to see whether keys are where a history would be dealt to.
func (a *app) dealing(ctx context.Context, plan *flow.Plan, s *kafka.Source, topic handoff.Topic) error {
	from, left := map[int32]record.Position{}, 0
	for p, b := range topic.Bounds {
		start, _ := b.Start.Int64()
		if end, _ := b.End.Int64(); end > start {
			from[p] = record.Offset(max(start, end-sampled))
			left++
		}
	}
	if left == 0 || len(topic.Bounds) == 1 {
		return nil
	}
	reader, err := s.Open(ctx, from)
	if err != nil {
		return err
	}
	defer reader.Close()
	d := handoff.NewDealing(plan, topic.Name, int32(len(topic.Bounds)))
	for len(from) > 0 {
		batches, err := reader.Poll(ctx, 0)
		for i := range batches {
			b := &batches[i]
			bad := d.Check(b)
			if b.Next.Cmp(topic.Bounds[b.Partition].End) >= 0 {
				delete(from, b.Partition)
			}
			b.Done()
			if bad != nil {
				return bad
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(batches) == 0 {
			break // an open transaction stands at the end
		}
	}
	return nil
}

// handedOver writes the manifest and says what comes next.
func (a *app) handedOver(ctx context.Context, o *handOverOptions, store control.ControlStore, r handoff.Result, ends map[int32]record.Position, plan *flow.Plan) error {
	j, err := handoff.Look(ctx, store, o.run)
	if err != nil {
		return err
	}
	m, err := handoff.Of(handoff.KindBatch, j, ends)
	if err != nil {
		return err
	}
	m.History = &r.History
	if skew := record.EventTime(plan.MaxFutureSkew); skew > 0 && r.MaxEventTime != record.NoTime && r.MaxEventTime-skew > record.EventTime(time.Now().UnixNano()) {
		a.notice("weir: the history ends at %s, in the future: records of the topic that are older than its watermark %s will be late\n", r.MaxEventTime, m.Watermark)
	}
	if r.Done {
		a.notice("weir: run %s has taken this history in before; there was nothing left to do\n", printable(o.run))
	}
	if a.json || o.manifest != "" {
		if err := a.leaveManifest(m, o.manifest); err != nil || a.json {
			return err
		}
	} else {
		a.printf("%s\n", printable(manifestText(m)))
	}
	a.printf("%s of history taken in; go on with: weir run FLOW --run-id %s --topic %s …\n", count(r.History.Records, "record"), printable(o.run), printable(o.topic))
	return nil
}
