package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/status"
)

// asideChoice is what a command asks the owner of a run to do with entries of its quarantine.
type asideChoice struct {
	asideFilter
	kind     control.InterventionKind
	who, why string
	apply    bool
}

func (c *asideChoice) addChoice(cmd *cobra.Command) {
	c.asideFilter.add(cmd)
	f := cmd.Flags()
	f.StringVar(&c.position, "position", "", "only records at this position")
	f.StringVar(&c.entries, "entries", "", "only entries of these numbers in their partition, such as 0-9,12")
	f.StringVar(&c.why, "reason", "", "why, in a sentence: it is kept with the decision (required with --apply)")
	f.StringVar(&c.who, "who", "", "who decides (default: the user at this machine)")
	f.BoolVar(&c.apply, "apply", false, "ask for it; without it, what would happen is shown")
}

func (a *app) quarantineReplayCommand() *cobra.Command {
	c := asideChoice{kind: control.ReplayAside}
	cmd := &cobra.Command{
		Use: "replay RUN", Short: "Give records that were set aside to their run again",
		Long: "Shows which records of the quarantine would be given to the run again; with --apply it is asked for. The process that runs RUN does it within a second or\n" +
			"two, or else the next one: each record is tried with the flow of the run as a record of its log is, under the lease of the run, and what becomes of it is a\n" +
			"decision in the journal. What is good now comes into the results; its event counts once, also if it came in another way meanwhile. What cannot be read\n" +
			"still, or is older than the watermark by now, stays set aside, with the reason of today and one more attempt.\n" +
			"A flow that was mended is another flow, so it has a run of its own: `weir checkpoint restore RUN EPOCH --as NEWRUN --flow FLOW --mended` makes it, with the\n" +
			"quarantine of the old one. Dead letters of a consumer go back to a topic: `weir quarantine redrive`.",
		Example: "  weir quarantine replay ticks-1 --store sqlite:weir.db\n" +
			"  weir quarantine replay ticks-2 --store sqlite:weir.db --kinds UNREADABLE --reason \"the flow reads the new format\" --apply",
		Args: cobra.ExactArgs(1),
	}
	return a.asideDecision(cmd, &c)
}

func (a *app) quarantineDropCommand() *cobra.Command {
	c := asideChoice{kind: control.DropAside}
	cmd := &cobra.Command{
		Use: "drop RUN", Short: "Give records that were set aside up",
		Long: "Shows which records of the quarantine would be given up; with --apply it is asked for, and the process that runs RUN decides it within a second or two, or\n" +
			"else the next one. The records are kept, as DROPPED, with who decided and why. A key that waits for one (hold_key) goes on.",
		Example: "  weir quarantine drop ticks-1 --store sqlite:weir.db --partition 0 --entries 12 --reason \"test data of the vendor\" --apply",
		Args:    cobra.ExactArgs(1),
	}
	return a.asideDecision(cmd, &c)
}

func (a *app) asideDecision(cmd *cobra.Command, c *asideChoice) *cobra.Command {
	c.addChoice(cmd)
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		if err := c.check(c.apply, c.why, &c.who); err != nil {
			return err
		}
		return a.decideAside(ctx, store, args[0], *c)
	})
}

// decideAside leaves orders for the owner of a run, or of each run of its partitions, each about entries of one partition.
func (a *app) decideAside(ctx context.Context, store control.ControlStore, run string, c asideChoice) error {
	runs, err := runsOf(ctx, store, run, c.partition)
	if err != nil {
		return err
	}
	if len(runs) == 1 {
		run = runs[0].Header.RunID
	}
	if err := c.standing(ctx, store, runs, run); err != nil {
		return err
	}
	var orders []control.Intervention
	counts, left := map[string]int{}, 0
	for _, state := range runs {
		all, err := readAside(ctx, store, state.Header.RunID, c.asideFilter)
		if err != nil {
			return err
		}
		some := c.orders(state.Header.RunID, all, counts, &left)
		for _, i := range some {
			err := i.Validate()
			if err == nil {
				err = control.CheckIntervene(i, state.Status, state.Header.Partitions)
			}
			if err != nil {
				return err
			}
		}
		orders = append(orders, some...)
	}
	if c.apply {
		for n := range orders {
			if orders[n], err = store.Intervene(ctx, orders[n]); err != nil {
				return fmt.Errorf("after %d of %d interventions were asked for: %w", n, len(orders), err)
			}
		}
	}
	return a.showAsideChoice(ctx, store, run, c, orders, counts, left)
}

// orders are the interventions for entries that wait for a choice. counts are those entries by reason, left all others.
func (c *asideChoice) orders(run string, all []setAside, counts map[string]int, left *int) (orders []control.Intervention) {
	byPartition := map[int32][]int64{}
	for i := range all {
		q := &all[i]
		if !partitions.Replayable(q.Reason) || q.status.State != partitions.AsideStands {
			*left++
			continue
		}
		counts[q.Reason]++
		byPartition[q.Partition] = append(byPartition[q.Partition], q.Number)
	}
	why := c.why
	if strings.TrimSpace(why) == "" {
		why = "a dry run"
	}
	for _, p := range slices.Sorted(maps.Keys(byPartition)) {
		for entries := range slices.Chunk(slices.Sorted(slices.Values(byPartition[p])), control.MaxEntries) {
			orders = append(orders, control.Intervention{RunID: run, Partition: p, Kind: c.kind, Entries: entries, Who: c.who, Why: why})
		}
	}
	return orders
}

func (a *app) showAsideChoice(ctx context.Context, store control.ControlStore, run string, c asideChoice, orders []control.Intervention, counts map[string]int, left int) error {
	total := 0
	for _, n := range counts {
		total += n
	}
	if a.json {
		reasons := map[string]any{}
		for reason, n := range counts {
			reasons[reason] = n
		}
		asked := make([]any, len(orders))
		for i := range orders {
			asked[i] = interventionDocument(orders[i])
		}
		return a.document(map[string]any{"run": run, "applied": c.apply, "entries": total, "reasons": reasons, "left_out": left, "interventions": asked})
	}
	reasons := slices.Sorted(maps.Keys(counts))
	a.table("reason\tentries", len(reasons), func(w io.Writer, i int) { fmt.Fprintf(w, "%s\t%d\n", cell(reasons[i]), counts[reasons[i]]) })
	if left > 0 {
		a.printf("%s that were chosen are left out: decided about before, notes of records that count otherwise, or dead letters\n", count(int64(left), "record"))
	}
	done := "given to the run again"
	if c.kind == control.DropAside {
		done = "given up"
	}
	switch {
	case total == 0:
		a.printf("there is nothing to decide about\n")
		return nil
	case !c.apply:
		a.printf("nothing was asked for: this is a dry run; with --apply and --reason these %d would be %s\n", total, done)
		return nil
	}
	for len(orders) > 0 {
		of := orders[:1]
		for len(of) < len(orders) && orders[len(of)].RunID == of[0].RunID {
			of = orders[:len(of)+1]
		}
		orders = orders[len(of):]
		if err := a.showAsked(ctx, store, of, done); err != nil {
			return err
		}
	}
	return nil
}

// showAsked tells who is to do what was asked for of one run.
func (a *app) showAsked(ctx context.Context, store control.ControlStore, orders []control.Intervention, done string) error {
	run, total := orders[0].RunID, 0
	for _, i := range orders {
		total += len(i.Entries)
	}
	owner, owned, err := store.LookupLease(ctx, control.StreamLease(run))
	if err != nil {
		return err
	}
	who := "the next one that runs it"
	if owned && owner.Valid {
		who = "its owner " + printable(owner.Owner)
	}
	a.printf("%d are to be %s by %s: interventions %d to %d; `weir recover %s` shows what became of them\n", total, done, who, orders[0].ID, orders[len(orders)-1].ID, printable(run))
	return nil
}

// heldKeys are the keys of a run that wait for a record that is set aside.
func heldKeys(ctx context.Context, store control.ControlStore, run string) (map[int32][]partitions.HeldKey, error) {
	var held map[int32][]partitions.HeldKey
	err := store.Snapshot(ctx, run, func(v control.JournalView) (err error) {
		held, err = heldIn(ctx, v)
		return err
	})
	return held, err
}

// storedHeld sums up the keys of a partition that wait, as the store has them. Keys are data, and are not shown.
func storedHeld(all []partitions.HeldKey) *status.Held {
	var sum partitions.Held
	for _, k := range all {
		sum.Add(k)
	}
	if sum.Keys == 0 {
		return nil
	}
	return &status.Held{Keys: sum.Keys, Records: sum.Records, Position: sum.Position.String()}
}

// heldIn reads the keys that wait out of the state of a run.
func heldIn(ctx context.Context, v control.JournalView) (map[int32][]partitions.HeldKey, error) {
	held := map[int32][]partitions.HeldKey{}
	for _, p := range v.State().Header.Partitions {
		var names []string
		err := v.Blobs(ctx, p, func(b control.BlobRef) error {
			if strings.HasPrefix(b.Name, partitions.HeldPrefix) {
				names = append(names, b.Name)
			}
			return nil
		})
		if err == nil && len(names) > 0 {
			err = v.Load(ctx, p, names, func(b partitions.StateBlob) error {
				k, err := partitions.ReadHeld(b)
				held[p] = append(held[p], k)
				return err
			})
		}
		if err != nil {
			return nil, err
		}
		slices.SortFunc(held[p], func(a, b partitions.HeldKey) int { return a.Since.Cmp(b.Since) })
	}
	return held, nil
}

func heldDocument(held map[int32][]partitions.HeldKey) []any {
	out := []any{}
	for _, p := range slices.Sorted(maps.Keys(held)) {
		for _, k := range held[p] {
			m := map[string]any{"partition": p, "since": k.Since.String(), "oldest": nil, "blockers": k.Blockers, "waiting": k.Waiting}
			if k.Oldest != record.NoTime {
				m["oldest"] = k.Oldest.String()
			}
			setBytes(m, "key", []byte(k.Key))
			out = append(out, m)
		}
	}
	return out
}

// showHeld writes a table of the keys that wait.
func (a *app) showHeld(held map[int32][]partitions.HeldKey) {
	type row struct {
		p int32
		partitions.HeldKey
	}
	var rows []row
	for _, p := range slices.Sorted(maps.Keys(held)) {
		for _, k := range held[p] {
			rows = append(rows, row{p, k})
		}
	}
	if len(rows) == 0 {
		return
	}
	a.table("partition\tkey that waits\tsince position\trecords set aside\trecords that wait\toldest", len(rows), func(w io.Writer, i int) {
		r := rows[i]
		fmt.Fprintf(w, "%d\t%s\t%s\t%d\t%d\t%s\n", r.p, brief(r.Key), r.Since, r.Blockers, r.Waiting, r.Oldest)
	})
}

// entryNumbers reads --entries.
func entryNumbers(s string) ([]int64, error) {
	if s == "" {
		return nil, nil
	}
	numbers, err := control.ParseEntryRuns(s, 1_000_000)
	if err != nil {
		return nil, usagef("--entries: %v", err)
	}
	return numbers, nil
}

var asideStates = []string{string(partitions.AsideStands), string(partitions.AsideReplayed), string(partitions.AsideDropped)}

func checkStates(states []string) error {
	for _, s := range states {
		if !slices.Contains(asideStates, s) {
			return usagef("--states %s: write %s", s, strings.Join(asideStates, ", "))
		}
	}
	return nil
}

// check checks the flags of a command that decides.
func (f *asideFilter) check(apply bool, why string, who *string) error {
	if err := f.read(); err != nil {
		return err
	}
	if apply && strings.TrimSpace(why) == "" {
		return usagef("--reason is missing: say why, it is kept with the record of it")
	}
	if len(why) > control.MaxInterventionText || len(*who) > control.MaxInterventionText {
		return usagef("--reason and --who take at most %d bytes", control.MaxInterventionText)
	}
	if *who == "" {
		*who = operator()
	}
	return nil
}
