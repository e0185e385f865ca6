package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// recoveryFlags say what a run does when it needs an operator, and when it holds back by itself.
type recoveryFlags struct {
	exitWhenBlocked bool
	maxSkew         time.Duration
	minFreeDisk     int64 // MiB
}

func (o *recoveryFlags) addRecovery(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&o.maxSkew, "max-skew", 0, "how far in event time a partition may be read ahead of the slowest that has something to read; 0 is no bound")
	cmd.Flags().Int64Var(&o.minFreeDisk, "min-free-disk", autoFreeDisk, "read nothing while less than this many MiB are free where the store's file and the artifacts are, until twice as much is; 0 does not look; -1 is 256, or a sixteenth of a smaller disk, for runs without an end, and 0 for others")
	cmd.Flags().BoolVar(&o.exitWhenBlocked, "exit-when-blocked", false, "end with exit code 6 when recovery is blocked (records lost, topic recreated, state damaged …), instead of staying alive, and owner, until an operator has chosen with 'weir recover'")
}

// recovery lets a run stay when it is blocked, hear of what operators choose, and hold back.
func (o runOptions) recovery(cfg *actors.Config, store control.Interventions) {
	cfg.StayBlocked, cfg.Interventions = !o.exitWhenBlocked, store
	cfg.MaxSkew = o.maxSkew
	var folders []string
	for _, f := range storeFiles(o.store)[:min(1, len(storeFiles(o.store)))] {
		folders = append(folders, filepath.Dir(f.path))
	}
	if o.artifacts != "" {
		folders = append(folders, o.artifacts)
	}
	cfg.MinFreeDisk = o.leastDisk(folders)
	if len(folders) > 0 {
		cfg.FreeDisk = func() (int64, error) { return leastFree(folders) }
	}
}

// autoFreeDisk lets weir choose what --min-free-disk is.
const autoFreeDisk = -1

// leastDisk is --min-free-disk in bytes. A run that ends by itself would wait on a small disk for what nobody may ever free; it fails instead when
// the disk is full, and goes on from its last commit.
func (o runOptions) leastDisk(folders []string) int64 {
	if o.minFreeDisk != autoFreeDisk {
		return max(min(o.minFreeDisk, 1<<40), -1) << 20
	}
	if o.onceN > 0 || o.untilN > 0 || o.log != "" {
		return 0
	}
	least := int64(defaultFreeDisk) << 20
	for _, folder := range folders {
		if total, err := diskBytes(folder); err == nil {
			least = min(least, total/16)
		}
	}
	return least
}

// leastFree is what is free where least is.
func leastFree(folders []string) (int64, error) {
	least := int64(math.MaxInt64)
	for _, folder := range folders {
		free, err := freeBytes(folder)
		if err != nil {
			return 0, err
		}
		least = min(least, free)
	}
	return least, nil
}

// choice is what the flags of a command ask of the owner of a run.
type choice struct {
	control.Intervention
	partition int64
	to        string
	gap       bool
	retry     bool
	apply     bool
}

func (c *choice) add(cmd *cobra.Command, needsPartition string) {
	f := cmd.Flags()
	f.Int64Var(&c.partition, "partition", -1, "number of the partition"+needsPartition)
	f.StringVar(&c.Why, "reason", "", "why, in a sentence: it is kept with the decision (required)")
	f.StringVar(&c.Who, "who", "", "who decides (default: the user at this machine)")
	f.BoolVar(&c.apply, "apply", false, "ask for it; without it, what would happen is shown")
}

func (a *app) recoverCommand() *cobra.Command {
	c := choice{}
	cmd := &cobra.Command{
		Use: "recover RUN", Short: "Decide about a run whose recovery is blocked",
		Long: "Without a choice it shows where the partitions of a run stand and what was asked of its owner. With one, it shows what the choice would mean, and with\n" +
			"--apply leaves it for the owner: the process that runs it applies it within a second or two, or else the next one does.\n" +
			"  --accept-gap --to POSITION   gives up the records from where the partition stands to before POSITION. They are lost to the run for good.\n" +
			"                               The owner asks the log when it applies this, and dismisses a position that the log does not have.\n" +
			"  --retry                      reads again what is blocked, since its cause is gone; without --partition, everything that is blocked\n" +
			"Who chose what and why is kept, and an accepted gap is a decision in the journal, committed with the position that it moves.",
		Example: "  weir recover ticks-1 --store sqlite:weir.db\n" +
			"  weir recover ticks-1 --store sqlite:weir.db --partition 3 --accept-gap --to 1200 --reason \"retention was too short, see incident 7\" --apply\n" +
			"  weir recover ticks-1 --store sqlite:weir.db --retry --reason \"the topic's records are restored\" --apply",
		Args: cobra.ExactArgs(1),
	}
	c.add(cmd, "; its run is RUN, or RUN/N of a run that is shared out by partitions")
	f := cmd.Flags()
	f.BoolVar(&c.gap, "accept-gap", false, "give up what the log has lost, or a batch that cannot be read")
	f.StringVar(&c.to, "to", "", "with --accept-gap: the position to read on at")
	f.BoolVar(&c.retry, "retry", false, "read again what is blocked")
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		if f.Changed("partition") && c.partition < 0 {
			return usagef("--partition %d is not the number of a partition", c.partition)
		}
		state, err := runOf(ctx, store, args[0], c.partition)
		if err != nil {
			return err
		}
		switch {
		case c.gap && c.retry:
			return usagef("--accept-gap and --retry are two choices: make one")
		case c.gap:
			if err := c.readGap(state); err != nil {
				return err
			}
		case c.retry:
			c.Kind, c.Partition = control.RetryBlocked, int32(c.partition)
		default:
			return a.showInterventions(ctx, store, state)
		}
		return a.intervene(ctx, store, state, c)
	})
}

// readGap reads what --accept-gap asks for.
func (c *choice) readGap(state control.RunState) error {
	if c.partition < 0 || c.to == "" {
		return usagef("--accept-gap gives up records of one partition: name it with --partition, and the position to read on at with --to")
	}
	to, err := record.ParsePosition(c.to)
	if err != nil {
		return usagef("--to %q is not a position: it is a number, such as 1200", c.to)
	}
	c.Kind, c.Partition, c.From, c.To = control.AcceptGap, int32(c.partition), state.Cuts[int32(c.partition)].Next, to
	return nil
}

// runOf is the committed state of a run, or of that of one partition if the run is shared out by partitions.
func runOf(ctx context.Context, store control.ControlStore, runID string, partition int64) (state control.RunState, err error) {
	read := func(id string) error {
		return store.Snapshot(ctx, id, func(v control.JournalView) error { state = v.State(); return nil })
	}
	if partition > 1<<31-1 {
		return state, usagef("--partition %d is not the number of a partition", partition)
	}
	err = read(runID)
	if !codes.Has(err, codes.RunUnknown) {
		return state, err
	}
	if partition >= 0 && read(group.RunID(runID, int32(partition))) == nil {
		return state, nil
	}
	if all, apart := readParts(ctx, store, runID); apart == nil {
		var names []string
		for _, s := range all.parts[:min(len(all.parts), 8)] {
			names = append(names, s.Header.RunID)
		}
		err = codes.New(codes.RunUnknown, "run %q is shared out by partitions: name one of its %d runs (%s), or its partition with --partition", runID, len(all.parts), strings.Join(names, ", "))
	}
	return state, err
}

// runsOf are the committed states of a run, or of those of its partitions if it is shared out by them: of one partition, or of all with -1.
func runsOf(ctx context.Context, store control.ControlStore, runID string, partition int64) ([]control.RunState, error) {
	state, err := runOf(ctx, store, runID, partition)
	if err == nil {
		return []control.RunState{state}, nil
	}
	if partition < 0 && codes.Has(err, codes.RunUnknown) {
		if all, apart := readParts(ctx, store, runID); apart == nil {
			return all.parts, nil
		}
	}
	return nil, err
}

// intervene shows what a choice means, and leaves it for the owner if it is to be applied.
func (a *app) intervene(ctx context.Context, store control.ControlStore, state control.RunState, c choice) error {
	i := c.Intervention
	i.RunID = state.Header.RunID
	if i.Who == "" {
		i.Who = operator()
	}
	if i.Why == "" {
		return usagef("--reason is missing: say why, it is kept with the decision")
	}
	err := i.Validate()
	if err == nil {
		err = control.CheckIntervene(i, state.Status, state.Header.Partitions)
	}
	if err != nil {
		return err
	}
	owner, owned, err := store.LookupLease(ctx, control.StreamLease(i.RunID))
	if err != nil {
		return err
	}
	if c.apply {
		if i, err = store.Intervene(ctx, i); err != nil {
			return err
		}
	}
	if a.json {
		d := interventionDocument(i)
		d["applied"], d["owner"] = c.apply, nil
		if owned && owner.Valid {
			d["owner"] = owner.Owner
		}
		return a.document(d)
	}
	a.printf("%s\n", printable(meaning(i)))
	switch {
	case !c.apply && i.Kind == control.AcceptGap:
		a.printf("not checked here: the log is not read; the owner asks it when it applies this, and dismisses a position before its start or beyond its end\n" +
			"nothing was asked for: this is a dry run; add --apply\n")
	case !c.apply:
		a.printf("nothing was asked for: this is a dry run; add --apply\n")
	case owned && owner.Valid:
		a.printf("asked for as intervention %d; its owner %s applies it in a moment: `weir recover %s` shows what became of it\n", i.ID, printable(owner.Owner), printable(i.RunID))
	default:
		a.printf("asked for as intervention %d; nobody runs %s now, so the next owner applies it\n", i.ID, printable(i.RunID))
	}
	return nil
}

// meaning is what an intervention does, in words.
func meaning(i control.Intervention) string {
	switch i.Kind {
	case control.AcceptGap:
		return fmt.Sprintf("run %s, partition %d: the positions from %s to before %s%s are given up, and the log is read on at %s", i.RunID, i.Partition, i.From, i.To, most(i.From, i.To), i.To)
	case control.ConfirmIdle:
		return fmt.Sprintf("run %s, partition %d: it does not hold the watermark any more, until its next record; what comes then below the watermark is late", i.RunID, i.Partition)
	case control.ReplayAside:
		return fmt.Sprintf("run %s, partition %d: %s of the quarantine are given to it again: %s", i.RunID, i.Partition, count(int64(len(i.Entries)), "record"), shortRuns(i.Entries))
	case control.DropAside:
		return fmt.Sprintf("run %s, partition %d: %s of the quarantine are given up: %s", i.RunID, i.Partition, count(int64(len(i.Entries)), "record"), shortRuns(i.Entries))
	case control.CloseGap:
		return fmt.Sprintf("run %s, partition %d: the number %d of key %q counts as lost, and does not hold the watermark any more", i.RunID, i.Partition, i.Sequence, i.Key)
	}
	if i.Partition < 0 {
		return fmt.Sprintf("run %s: what is blocked is read again", i.RunID)
	}
	return fmt.Sprintf("run %s, partition %d: it is read again, if it is blocked", i.RunID, i.Partition)
}

// shortRuns are numbers of entries, or the first of them.
func shortRuns(numbers []int64) string {
	runs := control.EntryRuns(numbers)
	const most = 60
	if len(runs) <= most {
		return runs
	}
	return runs[:strings.LastIndexByte(runs[:most], ',')] + ",…"
}

// most says how many records a stretch of positions has at most, where positions count records.
func most(from, to record.Position) string {
	a, ok := from.Int64()
	b, too := to.Int64()
	if !ok || !too {
		return ""
	}
	return fmt.Sprintf(", at most %s,", count(b-a, "record"))
}

// showInterventions shows where a run stands, and what was asked of its owners.
func (a *app) showInterventions(ctx context.Context, store control.ControlStore, state control.RunState) error {
	all, err := store.ListInterventions(ctx, state.Header.RunID, false)
	if err != nil {
		return err
	}
	if a.json {
		return a.document(recoverDocument(state, all))
	}
	a.printf("run %s, %s at epoch %d\n", printable(state.Header.RunID), state.Status, state.Epoch)
	a.table("PARTITION\tNEXT\tWATERMARK", len(state.Header.Partitions), func(w io.Writer, n int) {
		p := state.Header.Partitions[n]
		cut, ok := state.Cuts[p]
		if !ok {
			cut.Watermark = record.NoTime
		}
		fmt.Fprintf(w, "%d\t%s\t%s\n", p, cut.Next, cut.Watermark)
	})
	if len(all) == 0 {
		a.printf("nothing was asked of its owner\n")
		return nil
	}
	a.table("INTERVENTION\tASKED\tOUTCOME\tEPOCH\tWHO\tWHAT\tWHY\tNOTE", len(all), func(w io.Writer, n int) {
		i := all[n]
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", i.ID, i.Created.UTC().Format(time.RFC3339), i.Outcome, i.Epoch, i.Who, meaning(i), i.Why, i.Note)
	})
	return nil
}

func recoverDocument(state control.RunState, all []control.Intervention) map[string]any {
	next, asked := map[string]any{}, []any{}
	for _, p := range state.Header.Partitions {
		next[strconv.Itoa(int(p))] = state.Cuts[p].Next.String()
	}
	for _, i := range all {
		asked = append(asked, interventionDocument(i))
	}
	return map[string]any{"run": state.Header.RunID, "status": string(state.Status), "epoch": state.Epoch, "positions": next, "interventions": asked}
}

func interventionDocument(i control.Intervention) map[string]any {
	d := map[string]any{"id": i.ID, "run": i.RunID, "partition": i.Partition, "kind": string(i.Kind), "who": i.Who, "reason": i.Why, "outcome": string(i.Outcome),
		"epoch": i.Epoch, "note": i.Note, "meaning": meaning(i)}
	if i.Kind == control.AcceptGap {
		d["from"], d["to"] = i.From.String(), i.To.String()
	}
	if len(i.Entries) > 0 {
		d["entries"] = control.EntryRuns(i.Entries)
	}
	if i.Kind == control.CloseGap {
		d["key"], d["sequence"] = i.Key, i.Sequence
	}
	return d
}
