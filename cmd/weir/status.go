package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/status"
	"github.com/weirstream/weir/watermark"
)

// askFlags say whom to ask about a run: the process, or the store.
type askFlags struct {
	store string
	urlFlags
}

func (a *app) statusCommand() *cobra.Command {
	var o askFlags
	cmd := &cobra.Command{
		Use: "status [RUN]", Short: "Show where a run stands: phase, lease, and for each partition position, lag, watermark and state",
		Long: "With --url the process of the run is asked, which has to be started with --listen. With --store it is what was committed: the journal and the\n" +
			"leases, whoever runs it; lag, queues and states are not known there. A run that is shared out by partitions (RUN/0, RUN/1, …) is shown whole.",
		Example: "  weir status ticks-1 --store sqlite:weir.db\n  weir status --url http://127.0.0.1:8787\n  weir status --url https://weir.example:8787 --token file:token --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := a.report(cmd.Context(), o, args)
			if err != nil {
				return err
			}
			return a.showStatus(r)
		},
	}
	o.add(cmd)
	return cmd
}

func (o *askFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.store, "store", "", "ask the store: sqlite:PATH, postgres://…, or a reference env:NAME or file:PATH")
	o.addURL(cmd)
}

// report asks whom the flags name.
func (a *app) report(ctx context.Context, o askFlags, args []string) (status.Report, error) {
	run := ""
	if len(args) > 0 {
		run = args[0]
	}
	switch {
	case (o.url == "") == (o.store == ""):
		return status.Report{}, usagef("say whom to ask: the process with --url, or the store with --store")
	case o.url != "":
		return o.liveReport(ctx, run)
	case run == "":
		return status.Report{}, usagef("name the run: a store may have many")
	}
	if files := storeFiles(o.store); len(files) > 0 && missing(files[0].path) {
		return status.Report{}, codes.New(codes.FileMissing, "there is no store at %s; `weir run` makes one", files[0].path)
	}
	store, err := openStore(ctx, o.store)
	if err != nil {
		return status.Report{}, err
	}
	defer store.Close()
	return storedReport(ctx, store, run)
}

func (o *urlFlags) liveReport(ctx context.Context, run string) (r status.Report, err error) {
	body, err := o.get(ctx, "/v1/status")
	if err != nil {
		return r, err
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(&r); err != nil || r.Format != status.Format {
		return r, codes.New(codes.SourceFailure, "%s does not answer as a run of weir does (format %.40q): %v", printable(o.url), r.Format, err)
	}
	if run != "" && run != r.Run {
		return r, codes.New(codes.RunUnknown, "the process at %s runs %q, not %q", printable(o.url), r.Run, run)
	}
	return r, nil
}

// storedReport is what a store holds of a run, and of its parts when it is shared out by partitions.
func storedReport(ctx context.Context, store control.ControlStore, run string) (status.Report, error) {
	r := status.Report{Format: status.Format, Run: run, At: time.Now().UTC(), Runs: []status.Snapshot{}}
	all, err := store.Runs(ctx)
	if err != nil {
		return r, err
	}
	for _, info := range all {
		id := info.Header.RunID
		if _, part := group.PartitionOf(run, id); id != run && !part {
			continue
		}
		s, err := storedSnapshot(ctx, store, info, r.At)
		if err != nil {
			return r, err
		}
		r.Runs = append(r.Runs, s)
	}
	if len(r.Runs) == 0 {
		return r, codes.New(codes.RunUnknown, "the store holds no stream run %q, and none of its partitions; %s", run, known(all))
	}
	r.Merge()
	return r, nil
}

// known names a few of the runs there are.
func known(all []control.RunInfo) string {
	if len(all) == 0 {
		return "it holds none at all"
	}
	var names []string
	for _, info := range all[:min(len(all), 5)] {
		names = append(names, info.Header.RunID)
	}
	return "it holds " + strings.Join(names, ", ")
}

func storedSnapshot(ctx context.Context, store control.ControlStore, info control.RunInfo, at time.Time) (status.Snapshot, error) {
	s := status.Snapshot{
		Run: info.Header.RunID, Flow: info.Header.Fingerprint, At: at, Phase: status.PhaseNotOwned, Lease: status.Lease{State: status.LeaseFree},
		Watermark: status.NoEventTime, Holders: []int32{}, Partitions: []status.Partition{}, Failures: []status.Failure{},
		Source: status.Source{Name: info.Header.Source}, Commit: status.Commit{Last: instant(info.Committed)},
	}
	var state control.RunState
	idle := map[int32]bool{}
	var held map[int32][]partitions.HeldKey
	err := store.Snapshot(ctx, info.Header.RunID, func(v control.JournalView) error {
		state = v.State()
		for _, n := range info.Header.Partitions {
			input, err := control.InputOf(ctx, v, n)
			if err != nil {
				return err
			}
			idle[n] = input == watermark.Idle
		}
		var err error
		held, err = heldIn(ctx, v)
		return err
	})
	if err != nil {
		return s, err
	}
	s.Status, s.Epoch = string(state.Status), state.Epoch
	if state.Epoch > 0 {
		s.Watermark.T = state.Watermark
	}
	lease, ok, err := store.LookupLease(ctx, control.StreamLease(info.Header.RunID))
	if err != nil {
		return s, err
	}
	if ok {
		s.Lease.Token, s.Lease.Until = uint64(lease.Token), instant(lease.Until)
		if lease.Valid {
			s.Phase, s.Lease.State, s.Lease.Holder = status.PhaseOwned, status.LeaseOthers, lease.Owner
		}
	}
	for _, n := range info.Header.Partitions {
		s.Partitions = append(s.Partitions, storedPartition(n, state.Cuts, idle[n]))
		s.Partitions[len(s.Partitions)-1].Held = storedHeld(held[n])
		s.Counts = s.Counts.Plus(s.Partitions[len(s.Partitions)-1].Counts)
	}
	s.Holders = append(s.Holders, storedHolders(s.Partitions)...)
	return s, nil
}

func storedPartition(n int32, cuts map[int32]partitions.Cut, idle bool) status.Partition {
	p := status.Partition{Partition: n, Next: "0", Watermark: status.NoEventTime, MaxEventTime: status.NoEventTime}
	cut, ok := cuts[n]
	if !ok {
		return p
	}
	c := cut.Counts
	p.Next, p.Watermark.T = cut.Next.String(), cut.Watermark
	p.Counts = status.Counts{
		Records: c.Records, Consumed: c.Consumed, Filtered: c.Filtered, Omitted: c.Omitted, Duplicates: c.Duplicates, Late: c.Late, Future: c.Future, Outputs: c.Outputs,
	}
	if idle {
		p.Input = watermark.Idle.String()
	}
	if cut.Finished {
		p.Input, p.State = "FINISHED", status.Finished
	}
	return p
}

// storedHolders are the partitions with the least watermark, among those that have not ended and are not idle.
func storedHolders(parts []status.Partition) (out []int32) {
	least := record.MaxTime
	for _, p := range parts {
		if p.Input == "" {
			least = min(least, p.Watermark.T)
		}
	}
	for _, p := range parts {
		if p.Input == "" && p.Watermark.T == least {
			out = append(out, p.Partition)
		}
	}
	return out
}

func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// showJSON prints a document whose form is that of a Go type.
func (a *app) showJSON(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return codes.New(codes.Internal, "the answer cannot be written as JSON: %w", err)
	}
	if _, err := a.stdout.Write(append(b, '\n')); err != nil {
		return codes.New(codes.OutputUnwritable, "standard output: %w", err)
	}
	return nil
}

func (a *app) showStatus(r status.Report) error {
	if a.json {
		return a.showJSON(r)
	}
	for i := range r.Runs {
		a.showStream(r, &r.Runs[i], len(r.Runs) == 1)
	}
	if len(r.Runs) > 1 {
		a.printf("run        %s, merged watermark %s\n", printable(r.Run), r.Watermark)
	}
	if len(r.Runs) == 0 {
		a.printf("run        %s: nothing of it runs here\n", printable(r.Run))
		return nil
	}
	type row struct {
		s *status.Snapshot
		p *status.Partition
	}
	var rows []row
	for i := range r.Runs {
		for k := range r.Runs[i].Partitions {
			rows = append(rows, row{&r.Runs[i], &r.Runs[i].Partitions[k]})
		}
	}
	a.table("PARTITION\tSTATE\tNEXT\tEND\tLAG\tBEHIND\tWATERMARK\tINPUT\tPRESSURE\tIN FLIGHT\tUNDONE\tNOTE", len(rows), func(w io.Writer, i int) {
		p := rows[i].p
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Partition, dash(string(p.State)), p.Next, dash(deref(p.End)), count64(p.LagRecords), behind(p.LagSeconds),
			p.Watermark, dash(p.Input), dash(p.Pressure.State), inFlight(p), undoneSince(p.Undone), cell(noteOf(rows[i].s, p)))
	})
	return nil
}

// showStream says what concerns all of a run, or one line of a part of it.
func (a *app) showStream(r status.Report, s *status.Snapshot, whole bool) {
	phase := string(s.Phase)
	switch {
	case s.Status == string(control.RunFinished):
		phase = s.Status
	case s.Wait != "":
		phase += " for " + string(s.Wait)
	}
	if s.PhaseSince != nil {
		phase += fmt.Sprintf(" since %s (%s)", seconds(*s.PhaseSince), status.Age(s.At.Sub(*s.PhaseSince)))
	}
	lease := string(s.Lease.State)
	if s.Lease.Holder != "" {
		lease += " by " + s.Lease.Holder
	}
	if s.Lease.Token > 0 {
		lease += fmt.Sprintf(", token %d", s.Lease.Token)
	}
	committed := "never"
	if s.Commit.Last != nil {
		committed = status.Age(s.At.Sub(*s.Commit.Last)) + " ago"
		if s.Commit.Seconds > 0 {
			committed += fmt.Sprintf(", in %s", status.Age(time.Duration(s.Commit.Seconds*float64(time.Second))))
		}
	}
	if !whole {
		a.printf("part       %s: %s; lease %s; epoch %d, committed %s\n", printable(s.Run), phase, printable(lease), s.Epoch, committed)
		return
	}
	a.printf("run        %s, %s\nflow       %s\nlease      %s\nepoch      %d, committed %s\nwatermark  %s%s\nrecords    %d, %d results, %d late, %d omitted\n",
		printable(s.Run), phase, printable(s.Flow), printable(lease), s.Epoch, committed, s.Watermark, heldBy(s.Holders), s.Counts.Records, s.Counts.Outputs, s.Counts.Late, s.Counts.Omitted)
	if c := s.Checkpoint; c.Last != nil {
		a.printf("checkpoint epoch %d, %s ago\n", c.Epoch, status.Age(s.At.Sub(*c.Last)))
	}
	if s.Cause != nil {
		a.printf("cause      %s: %s\n", s.Cause.Code, printable(s.Cause.Message))
	}
}

func heldBy(holders []int32) string {
	if len(holders) == 0 {
		return ""
	}
	names := make([]string, len(holders))
	for i, n := range holders {
		names[i] = number(n)
	}
	return ", held by partition " + strings.Join(names, ", ")
}

// noteOf is what stands out of a partition.
func noteOf(s *status.Snapshot, p *status.Partition) string {
	var notes []string
	if p.Blocked != nil {
		notes = append(notes, "blocked: "+p.Blocked.Code)
	}
	if p.Unobserved != nil {
		notes = append(notes, "not answered for: "+p.Unobserved.Code)
	}
	if p.Hold != nil {
		notes = append(notes, p.Hold.Reason)
	}
	if p.Risk != nil {
		notes = append(notes, risk(s.At, p.Risk))
	}
	if p.Gap != nil {
		notes = append(notes, count(p.Gap.Open, "open gap"))
	}
	if p.Held != nil {
		notes = append(notes, count(p.Held.Keys, "held key"))
	}
	if p.Pressure.Reason != "" {
		notes = append(notes, p.Pressure.Reason)
	}
	if p.Stalled {
		notes = append(notes, "stalled")
	}
	if len(s.Partitions) > 1 && len(s.Holders) < len(s.Partitions) && slices.Contains(s.Holders, p.Partition) {
		notes = append(notes, "holds the watermark")
	}
	return strings.Join(notes, ", ")
}

// risk is a loss that is foreseen, in a few words.
func risk(now time.Time, r *status.Risk) string {
	words := status.WhyAtRisk
	if r.Left != nil {
		words += fmt.Sprintf(" (%d left)", *r.Left)
	}
	if r.LostAt == nil {
		return words + " with the next removal"
	}
	return words + " in " + status.Age(r.LostAt.Sub(now))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return cell(s)
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func count64(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func behind(sec *float64) string {
	if sec == nil {
		return "-"
	}
	return status.Age(time.Duration(*sec * float64(time.Second)))
}

func inFlight(p *status.Partition) string {
	if p.Queue.WindowRecords == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", p.Queue.Records+p.Queue.Aside, p.Queue.WindowRecords)
}
