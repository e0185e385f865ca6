package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/consumer"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

func (a *app) quarantineCommand() *cobra.Command {
	return a.group("quarantine", "List, show, replay, drop and re-drive records that were set aside", "  weir quarantine list ticks-1 --store sqlite:weir.db",
		a.quarantineListCommand(), a.quarantineShowCommand(), a.quarantineReplayCommand(), a.quarantineDropCommand(), a.quarantineRedriveCommand())
}

// setAside is a record of the quarantine, with its number among those of its position.
type setAside struct {
	partitions.Quarantined
	n      int
	status partitions.AsideStatus
	// driven are the topics to which it was re-driven.
	driven []string
}

// asideFilter chooses records of the quarantine.
type asideFilter struct {
	partition int64
	position  string
	kinds     []string
	states    []string
	entries   string
	numbers   []int64
	chosen    func() bool // --partition was given
}

func (f *asideFilter) add(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&f.partition, "partition", -1, "only records of this partition")
	f.chosen = func() bool { return cmd.Flags().Changed("partition") }
	cmd.Flags().StringSliceVar(&f.kinds, "kinds", nil, "only records set aside for these reasons, such as LATE, UNREADABLE, TOMBSTONE or DEAD_LETTER")
	cmd.Flags().StringSliceVar(&f.states, "states", nil, "only records in these states: SET_ASIDE, REPLAYED, DROPPED")
}

// read checks what the flags say.
func (f *asideFilter) read() (err error) {
	if _, err := record.ParsePosition(f.position); f.position != "" && err != nil {
		return usagef("--position %q is not a position: it is a number, such as 1200", f.position)
	}
	if f.chosen() && (f.partition < 0 || f.partition > math.MaxInt32) {
		return usagef("--partition %d is not the number of a partition; leave it out for all of them", f.partition)
	}
	if f.entries != "" && f.partition < 0 {
		return usagef("--entries numbers what one partition has set aside: name it with --partition")
	}
	if f.numbers, err = entryNumbers(f.entries); err != nil {
		return err
	}
	for _, k := range f.kinds {
		if !slices.Contains(asideKinds, k) {
			return usagef("--kinds %s: write %s", k, strings.Join(asideKinds, ", "))
		}
	}
	return checkStates(f.states)
}

// asideKinds are the reasons for which records are set aside.
var asideKinds = []string{partitions.ReasonUnreadable, partitions.ReasonTombstone, partitions.ReasonFuture, partitions.ReasonLate, partitions.ReasonAfterEnd, partitions.ReasonHeldOverflow,
	partitions.ReasonRevised, partitions.ReasonRevisionMoved, partitions.ReasonRevisionLate, consumer.ReasonDeadLetter}

func (f *asideFilter) has(q partitions.Quarantined) bool {
	return (f.partition < 0 || int64(q.Partition) == f.partition) && (f.position == "" || q.Position.String() == f.position) &&
		(len(f.kinds) == 0 || slices.Contains(f.kinds, q.Reason)) && f.numbered(q.Number)
}

func (f *asideFilter) numbered(n int64) bool {
	if len(f.numbers) == 0 {
		return true
	}
	_, found := slices.BinarySearch(f.numbers, n)
	return found
}

func (f *asideFilter) in(s partitions.AsideState) bool {
	return len(f.states) == 0 || slices.Contains(f.states, string(s))
}

// readAside reads the records that a filter chooses, with what was re-driven of them.
func readAside(ctx context.Context, store control.ControlStore, run string, f asideFilter) ([]setAside, error) {
	var out []setAside
	at, n := record.Position{}, int32(0)
	count := 0
	var stands partitions.Asides
	if err := store.Decisions(ctx, run, func(d partitions.Decision) error { stands.Add(d); return nil }); err != nil {
		return nil, err
	}
	err := store.Quarantine(ctx, run, func(q partitions.Quarantined) error {
		if count > 0 && (q.Position != at || q.Partition != n) {
			count = 0
		}
		at, n = q.Position, q.Partition
		if status := stands.Of(q.Partition, q.Number); f.has(q) && f.in(status.State) {
			out = append(out, setAside{Quarantined: q, n: count, status: status})
		}
		count++
		return nil
	})
	if err != nil {
		return nil, err
	}
	driven := map[string][]string{}
	prefix := redrivenRun(run)
	err = store.Publications(ctx, prefix, func(p control.Publication, _ string) error {
		v, err := record.Decode(p.Value)
		doc, ok := v.(map[string]any)
		topic, isText := doc["topic"].(string)
		if err != nil || !ok || !isText {
			return codes.New(codes.JournalCorrupt, "the record of a re-drive of run %q cannot be read; its key is %q", run, p.Key)
		}
		key := p.Key[:strings.LastIndexByte(p.Key, '/')+1]
		if !slices.Contains(driven[key], topic) {
			driven[key] = append(driven[key], topic)
		}
		return nil
	})
	for i := range out {
		out[i].driven = driven[out[i].key(run)]
	}
	return out, err
}

// readAsides reads the records that a filter chooses, and the keys that wait, of a run or of all those of its partitions.
func readAsides(ctx context.Context, store control.ControlStore, run string, f asideFilter) (all []setAside, held map[int32][]partitions.HeldKey, err error) {
	runs, err := runsOf(ctx, store, run, f.partition)
	held = map[int32][]partitions.HeldKey{}
	for _, state := range runs {
		some, err := readAside(ctx, store, state.Header.RunID, f)
		if err != nil {
			return nil, nil, err
		}
		keys, err := heldKeys(ctx, store, state.Header.RunID)
		if err != nil {
			return nil, nil, err
		}
		maps.DeleteFunc(keys, func(p int32, _ []partitions.HeldKey) bool { return f.partition >= 0 && int64(p) != f.partition })
		all = append(all, some...)
		maps.Copy(held, keys)
	}
	return all, held, err
}

// redrivenRun is before the keys of everything that was re-driven of a run. Names may be long and hold anything, so their hash stands for them.
func redrivenRun(run string) string { return "redriven/" + shortHash(run) + "/" }

// key is before the keys of what was re-driven of one record.
func (q *setAside) key(run string) string {
	return redrivenRun(run) + strconv.Itoa(int(q.Partition)) + "/" + q.Position.String() + "/" + strconv.Itoa(q.n) + "/"
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

func (a *app) quarantineListCommand() *cobra.Command {
	var f asideFilter
	var limit int
	cmd := &cobra.Command{
		Use: "list RUN", Short: "List the records that a run set aside, by partition and position",
		Long: "Lists what the run set aside with each committed epoch: records that cannot be read, late ones, tombstones, and the dead letters of a consumer\n" +
			"that keeps them in its journal; and the keys that wait for one of them (hold_key). An entry is named by its partition and its number in it, and is\n" +
			"SET_ASIDE until it was REPLAYED or DROPPED. Of a run that is shared out by partitions it lists all: partition N is the run RUN/N.",
		Example: "  weir quarantine list ticks-1 --store sqlite:weir.db --kinds LATE,UNREADABLE", Args: cobra.ExactArgs(1),
	}
	f.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many; 0 is all")
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		if limit < 0 {
			return usagef("--limit %d: write 0 for all, or more", limit)
		}
		if err := f.read(); err != nil {
			return err
		}
		all, held, err := readAsides(ctx, store, args[0], f)
		if err != nil {
			return err
		}
		shown := all
		if limit > 0 && len(all) > limit {
			shown = all[:limit]
		}
		if a.json {
			rows := make([]any, len(shown))
			for i := range shown {
				rows[i] = shown[i].document()
			}
			return a.document(map[string]any{"run": args[0], "records": rows, "total": len(all), "held": heldDocument(held)})
		}
		a.showHeld(held)
		a.asideTable(shown)
		if len(shown) < len(all) {
			a.notice("%d more are not shown; --limit 0 shows all\n", len(all)-len(shown))
		}
		return nil
	})
}

func (a *app) asideTable(all []setAside) {
	a.table("partition\tnumber\tposition\tstate\treason\tattempts\tevent id\tkey\tbytes\tre-driven to\tdetail", len(all), func(w io.Writer, i int) {
		q := all[i]
		r, _ := q.original()
		fmt.Fprintf(w, "%d\t%d\t%s\t%s\t%s\t%d\t%s\t%s\t%d\t%s\t%s\n", q.Partition, q.Number, q.Position, q.status.State, cell(q.reasonNow()), q.status.Attempts, brief(q.EventID), brief(string(r.Key)), len(r.Value), brief(strings.Join(q.driven, " ")), brief(q.Detail))
	})
}

// brief is text of the data in a cell of a table.
func brief(s string) string {
	const most = 60
	s = cell(strings.ToValidUTF8(s, "?"))
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return s
}

func (q *setAside) document() map[string]any {
	m := quarantineDocument(q.Quarantined)
	m["redriven_to"], m["number"], m["state"], m["attempts"], m["decided"] = q.driven, q.Number, string(q.status.State), q.status.Attempts, nil
	if d := q.status.Last; d.Outcome != "" {
		m["decided"] = map[string]any{"outcome": d.Outcome, "detail": textOrNull(d.Detail), "why": d.Why}
	}
	return m
}

// reasonNow is why the record is set aside, or what it was when it was tried again last.
func (q *setAside) reasonNow() string {
	if q.status.State == partitions.AsideStands && q.status.Last.Outcome != "" {
		return q.status.Last.Outcome
	}
	return q.Reason
}

func (a *app) quarantineShowCommand() *cobra.Command {
	var entries string
	cmd := &cobra.Command{
		Use: "show RUN PARTITION [POSITION]", Short: "Show a record that was set aside, with its bytes",
		Long: "Shows everything that is known of a record that was set aside: why, its key, value and headers, and where it was re-driven to. It is named by its\n" +
			"position, or by its number in the partition, as `weir quarantine list` shows both.",
		Example: "  weir quarantine show ticks-1 0 1200 --store sqlite:weir.db\n" +
			"  weir quarantine show ticks-1 0 --entries 12 --store sqlite:weir.db",
		Args: cobra.RangeArgs(2, 3),
	}
	cmd.Flags().StringVar(&entries, "entries", "", "instead of POSITION, the entries of these numbers in their partition, such as 0-9,12")
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		f, err := asideNamed(args[1:], entries)
		if err != nil {
			return err
		}
		runs, err := runsOf(ctx, store, args[0], f.partition)
		if err != nil {
			return err
		}
		run := runs[0].Header.RunID
		all, err := readAside(ctx, store, run, f)
		if err == nil {
			err = f.found(runs, run, all)
		}
		if err != nil {
			return err
		}
		rows := make([]any, len(all))
		for i := range all {
			rows[i] = all[i].document()
		}
		if a.json {
			return a.document(map[string]any{"run": run, "records": rows})
		}
		for i := range all {
			a.showAside(&all[i])
		}
		return nil
	})
}

// asideNamed chooses what `weir quarantine show` is to show: args are a partition and perhaps a position.
func asideNamed(args []string, entries string) (f asideFilter, err error) {
	f = asideFilter{entries: entries}
	if f.partition, err = strconv.ParseInt(args[0], 10, 32); err != nil || f.partition < 0 {
		return f, usagef("%q is not the number of a partition", args[0])
	}
	if len(args) == 2 == (entries != "") {
		return f, usagef("name the record by its position or by --entries, one of the two")
	}
	if len(args) == 2 {
		if f.position = args[1]; f.position == "" {
			return f, usagef("POSITION is empty: it is a number, such as 1200")
		}
		if _, err := record.ParsePosition(f.position); err != nil {
			return f, usagef("%q is not a position: it is a number, such as 1200", f.position)
		}
	}
	f.numbers, err = entryNumbers(entries)
	return f, err
}

// standing refuses a choice that names what runs, which are those of run, have not set aside, whatever its reason and state.
func (f *asideFilter) standing(ctx context.Context, store control.ControlStore, runs []control.RunState, run string) error {
	all := []setAside{}
	if f.position != "" || len(f.numbers) > 0 {
		by := asideFilter{partition: f.partition, position: f.position, numbers: f.numbers}
		for _, state := range runs {
			some, err := readAside(ctx, store, state.Header.RunID, by)
			if err != nil {
				return err
			}
			all = append(all, some...)
		}
	}
	return f.found(runs, run, all)
}

// found says what a choice names and nobody has set aside: a partition, a position or a number that is none. all are those that it chooses.
func (f *asideFilter) found(runs []control.RunState, run string, all []setAside) error {
	if f.partition >= 0 && !slices.ContainsFunc(runs, func(s control.RunState) bool { return slices.Contains(s.Header.Partitions, int32(f.partition)) }) {
		return codes.New(codes.RequestInvalid, "run %q has no partition %d", run, f.partition)
	}
	there := map[int64]bool{}
	for i := range all {
		there[all[i].Number] = true
	}
	missing := slices.DeleteFunc(slices.Clone(f.numbers), func(n int64) bool { return there[n] })
	switch {
	case len(missing) > 0 && f.position == "":
		return codes.New(codes.RequestInvalid, "run %q has no entries %.200s in the quarantine of partition %d; `weir quarantine list` shows what there is", run, control.EntryRuns(missing), f.partition)
	case f.position != "" && len(all) == 0 && f.partition >= 0:
		return codes.New(codes.RequestInvalid, "run %q has set nothing aside at position %s of partition %d; `weir quarantine list` shows what there is", run, f.position, f.partition)
	case f.position != "" && len(all) == 0:
		return codes.New(codes.RequestInvalid, "run %q has set nothing aside at position %s; `weir quarantine list` shows what there is", run, f.position)
	}
	return nil
}

func (a *app) showAside(q *setAside) {
	r, _ := q.original()
	a.printf("partition    %d, position %s\n", q.Partition, q.Position)
	if q.Arrival != record.NoTime {
		a.printf("arrived      %s\n", q.Arrival)
	}
	a.printf("entry        %d of its partition, %s after %s\nreason       %s: %s\n", q.Number, q.status.State, count(q.status.Attempts, "attempt"), shown(q.Reason), shown(q.Detail))
	if d := q.status.Last; d.Outcome != "" {
		a.printf("decided      %s %s: %s\n", shown(d.Outcome), shown(d.Detail), shown(d.Why))
	}
	if q.EventID != "" {
		a.printf("event id     %s\n", shown(q.EventID))
	}
	if q.EventTime != record.NoTime {
		a.printf("event time   %s\n", q.EventTime)
	}
	a.printf("key          %s\n", bytesShown(r.Key))
	for _, h := range r.Headers {
		a.printf("header       %s: %s\n", shown(strings.ToValidUTF8(h.Key, "?")), bytesShown(h.Value))
	}
	if len(q.driven) > 0 {
		a.printf("re-driven to %s\n", shown(strings.Join(q.driven, ", ")))
	}
	a.printf("value        %s\n", bytesShown(r.Value))
}

// bytesShown is bytes of the data for people: text as it is, anything else as hex.
func bytesShown(b []byte) string {
	switch {
	case b == nil:
		return "(none)"
	case len(b) == 0:
		return "(empty)"
	case strings.ToValidUTF8(string(b), "") == string(b):
		return shown(string(b))
	}
	return "0x" + hex.EncodeToString(b)
}
