package main

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/emit"
)

func number(p int32) string { return strconv.Itoa(int(p)) }

func (a *app) journalEmitCommand() *cobra.Command {
	var flowFile, out string
	cmd := &cobra.Command{
		Use: "emit RUN", Short: "Write the emit document of what a run has committed, over all its partitions",
		Long: "Makes the document that `weir run --emit` writes at the end of a run from what stands in the journal, whether the run is one (--scope run) or\n" +
			"one for each partition (--scope partition: RUN/0, RUN/1, …), whose rows are merged. The watermark is the minimum over the partitions\n" +
			"that are not idle, the fence token the highest of theirs. The run may go on meanwhile: the document is of one moment of each partition.",
		Example: "  weir journal emit ticks-1 --flow flow.yaml --store sqlite:weir.db --out ticks-1.json", Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&flowFile, "flow", "", "the flow that the run runs (required)")
	cmd.Flags().StringVar(&out, "out", "", "write the document here")
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		if flowFile == "" {
			return usagef("--flow is missing: name the flow that the run runs")
		}
		plan, err := a.loadFlow(flowFile)
		if err != nil {
			return err
		}
		storeRef := cmd.Flags().Lookup("store").Value.String()
		if err := distinct([]named{{"--out", out}}, append(storeFiles(storeRef), named{"--flow", flowFile})); err != nil {
			return err
		}
		d, err := assemble(ctx, store, args[0], plan, out)
		if err != nil {
			return err
		}
		return a.showDoc(plan, d, out)
	})
}

// assembleTries is how often a document is made that the run has overtaken before it was whole.
const assembleTries = 5

// assemble makes the emit document of what is committed of a run, or of the runs of its partitions.
func assemble(ctx context.Context, store control.ControlStore, run string, plan *flow.Plan, path string) (emit.Doc, error) {
	overtaken := codes.New(codes.JournalConflict, "run %q commits faster than it can be read; stop it first, or try again", run)
	for range assembleTries {
		before, err := readParts(ctx, store, run)
		if err != nil {
			return emit.Doc{}, err
		}
		if !slices.ContainsFunc(before.parts, func(p control.RunState) bool { return p.Epoch > 0 }) {
			return emit.Doc{}, codes.New(codes.RunUnknown, "run %q has begun and committed nothing yet; ask again after its first epoch", run)
		}
		d := emit.New(plan, emit.ModeStream)
		d.Positions, d.Watermark = map[int32]record.Position{}, record.MaxTime
		for _, p := range before.parts {
			if p.Header.Fingerprint != plan.Fingerprint {
				return d, codes.New(codes.RunMismatch, "run %q runs another flow: its fingerprint is %s, that of the file %s", p.Header.RunID, p.Header.Fingerprint, plan.Fingerprint)
			}
			for n, cut := range p.Cuts {
				d.Positions[n] = cut.Next
				d.Counts = emit.Add(d.Counts, cut.Counts)
			}
			mark := p.Watermark
			if p.Epoch == 0 {
				mark = record.NoTime
			}
			d.Watermark, d.FenceToken = min(d.Watermark, mark), max(d.FenceToken, uint64(p.Fence))
		}
		if before.apart(run) {
			if d.Watermark, err = new(group.Merged).Read(ctx, store, run, nil); err != nil {
				return d, err
			}
		}
		d.Allow = func() error {
			after, err := readParts(ctx, store, run)
			if err == nil && !after.same(before) {
				err = overtaken
			}
			return err
		}
		d, err = emit.FromJournal(ctx, before, run, d, plan, path, emit.DefaultKeep)
		if err == nil && path == "" {
			err = d.Allow()
		}
		if err == nil || !codes.Has(err, codes.JournalConflict) {
			return d, err
		}
	}
	return emit.Doc{}, overtaken
}

// parts is a run as its partitions stand, each in the run that has it. Outputs are read from there.
type parts struct {
	control.Journal
	parts []control.RunState
	of    map[int32]string
}

// Decisions are those of all parts.
func (p parts) Decisions(ctx context.Context, _ string, fn func(partitions.Decision) error) error {
	for i := range p.parts {
		if err := p.Journal.Decisions(ctx, p.parts[i].Header.RunID, fn); err != nil {
			return err
		}
	}
	return nil
}

// readParts finds the run, or the runs of its partitions.
func readParts(ctx context.Context, store control.ControlStore, run string) (parts, error) {
	out := parts{Journal: store, of: map[int32]string{}}
	all, err := store.Runs(ctx)
	if err != nil {
		return out, err
	}
	whole := false
	for _, r := range all {
		_, apart := group.PartitionOf(run, r.Header.RunID)
		if !apart && r.Header.RunID != run {
			continue
		}
		whole = whole || !apart
		if whole && len(out.parts) > 0 {
			return out, codes.New(codes.RunMismatch, "run %q is there as a whole and by partitions (%s); they are different runs, so name them apart", run, r.Header.RunID)
		}
		err := store.Snapshot(ctx, r.Header.RunID, func(v control.JournalView) error {
			out.parts = append(out.parts, v.State())
			return nil
		})
		if err != nil {
			return out, err
		}
		for _, p := range r.Header.Partitions {
			out.of[p] = r.Header.RunID
		}
	}
	if len(out.parts) == 0 {
		return out, codes.New(codes.RunUnknown, "there is no run %q, and none of its partitions; `weir journal show` shows one run", run)
	}
	return out, nil
}

// apart says whether it is one run for each partition.
func (p parts) apart(run string) bool { return p.parts[0].Header.RunID != run }

// Outputs is control.Journal's, from the run that has the partition.
func (p parts) Outputs(ctx context.Context, _ string, partition int32, fn func(partitions.Rows) error) error {
	return p.Journal.Outputs(ctx, p.of[partition], partition, fn)
}

// same says whether nothing was committed in between.
func (p parts) same(q parts) bool {
	epochs := func(p parts) map[string]uint64 {
		m := map[string]uint64{}
		for _, one := range p.parts {
			m[one.Header.RunID] = one.Epoch
		}
		return m
	}
	return maps.Equal(epochs(p), epochs(q)) && slices.Equal(slices.Sorted(maps.Keys(p.of)), slices.Sorted(maps.Keys(q.of)))
}
