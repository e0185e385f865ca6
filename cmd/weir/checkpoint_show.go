package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

func (a *app) checkpointListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list [RUN]", Short: "List checkpoints, by run and epoch",
		Long:    "Lists checkpoints, by run and epoch. RUN names a run, with the runs that its partitions are; without it, those of all are listed.",
		Example: "  weir checkpoint list ticks-1 --store sqlite:weir.db", Args: cobra.MaximumNArgs(1),
	}
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		run := ""
		if len(args) > 0 {
			if run = args[0]; run == "" {
				return usagef("the run id is empty; leave it out to list the checkpoints of all runs")
			}
		}
		all, err := pointersOf(ctx, store, run)
		if err != nil {
			return err
		}
		if a.json {
			rows := make([]any, len(all))
			for i, p := range all {
				rows[i] = pointerDocument(p)
			}
			return a.document(map[string]any{"checkpoints": rows})
		}
		a.table("run\tepoch\tcreated\tblobs\tbytes\tnew bytes\ttoken\tpinned", len(all), func(w io.Writer, i int) {
			p := all[i]
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%d\t%d\t%s\n", cell(p.RunID), p.Epoch, stamp(p.Created), p.Blobs, p.Bytes, p.NewBytes, p.Token, yes(p.Pinned))
		})
		return nil
	})
}

// cell is text in a table: tabs and line breaks of the data are none of the table's.
func cell(s string) string { return strings.NewReplacer("\t", `\t`, "\n", `\n`).Replace(s) }

// shown is text of the data in a line of ours.
func shown(s string) string { return printable(cell(s)) }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func (a *app) checkpointShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show RUN EPOCH", Short: "Show what a checkpoint holds: positions, watermarks, counts, state",
		Long:    "Shows the manifest of a checkpoint, after it was read and compared with its pointer. The state itself is not read: `weir checkpoint verify` does.",
		Example: "  weir checkpoint show ticks-1 42 --store sqlite:weir.db --artifacts artifacts", Args: cobra.ExactArgs(2),
	}
	return a.keptFlags(cmd, func(ctx context.Context, k kept, args []string) error {
		p, err := k.find(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		m, err := checkpoint.Load(ctx, k.blobs, p)
		if err != nil {
			return err
		}
		if a.json {
			return a.document(map[string]any{"pointer": pointerDocument(p), "manifest": m.Document()})
		}
		a.printf("run          %s, epoch %d, %s%s\nmanifest     %s\nhash         %s\nflow         %s %s\nsource       %s %s\nfence token  %d\nwatermark    %s\ncreated      %s\nstate        %d blobs, %d bytes, %d of them new\n",
			printable(m.RunID), m.Epoch, m.Status, pinned(p), p.Manifest, m.Hash(), printable(m.Flow.Name), printable(m.Flow.Fingerprint), shown(m.Source), shown(m.SourceID),
			m.Fence, m.Watermark, stamp(p.Created), p.Blobs, p.Bytes, p.NewBytes)
		a.table(partitionHeading, len(m.Partitions), func(w io.Writer, i int) {
			part := m.Partitions[i]
			nodes := map[string]checkpoint.Volume{}
			for _, r := range part.State {
				v := nodes[r.Node()]
				nodes[r.Node()] = checkpoint.Volume{Blobs: v.Blobs + 1, Bytes: v.Bytes + r.Size}
			}
			partitionRow(w, part.Partition, part.Committed, part.Cut, nodes)
		})
		return nil
	})
}

func pinned(p control.Pointer) string {
	if p.Pinned {
		return ", pinned"
	}
	return ""
}

const partitionHeading = "partition\tnext\twatermark\trecords\tconsumed\tfiltered\tomitted\tduplicates\tlate\tfuture\toutputs\tcore\tdedupe\tkeys\treorder"

// partitionRow is one line of a table under partitionHeading.
func partitionRow(w io.Writer, n int32, committed bool, cut partitions.Cut, nodes map[string]checkpoint.Volume) {
	if !committed {
		fmt.Fprintf(w, "%d\tnothing committed yet\n", n)
		return
	}
	end := ""
	if cut.Finished {
		end = " (finished)"
	}
	c := cut.Counts
	fmt.Fprintf(w, "%d\t%s%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d", n, cut.Next, end, cut.Watermark, c.Records, c.Consumed, c.Filtered, c.Omitted, c.Duplicates, c.Late, c.Future, c.Outputs)
	for _, node := range []string{"core", "dedupe", "keys", "reorder"} {
		fmt.Fprintf(w, "\t%d in %d", nodes[node].Bytes, nodes[node].Blobs)
	}
	fmt.Fprintln(w)
}

func (a *app) checkpointVerifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "verify [RUN [EPOCH]]", Short: "Read every byte of checkpoints and compare it with its hash",
		Long:    "Reads the manifest and every blob of one checkpoint, of all of a run, or of all there are, and compares each with its hash and the manifest with its\npointer. Exit code 6 when something is damaged or missing; all of it is listed.",
		Example: "  weir checkpoint verify ticks-1 42 --store sqlite:weir.db --artifacts artifacts\n  weir checkpoint verify --store sqlite:weir.db --artifacts artifacts", Args: cobra.MaximumNArgs(2),
	}
	return a.keptFlags(cmd, func(ctx context.Context, k kept, args []string) error {
		all, err := k.named(ctx, args)
		if err != nil {
			return err
		}
		var audited []*checkpoint.Audited
		for _, p := range all {
			v, err := checkpoint.Audit(ctx, k.blobs, p)
			if err != nil {
				return err
			}
			audited = append(audited, v)
		}
		return a.showAudited(audited)
	})
}

// named are the checkpoints that zero to two arguments name.
func (k kept) named(ctx context.Context, args []string) ([]control.Pointer, error) {
	if len(args) == 2 {
		p, err := k.find(ctx, args[0], args[1])
		return []control.Pointer{p}, err
	}
	run := ""
	if len(args) == 1 {
		run = args[0]
	}
	all, err := pointersOf(ctx, k.store, run)
	if err == nil && len(all) == 0 && run != "" {
		err = codes.New(codes.CheckpointUnknown, "the store holds no checkpoint of run %q", run)
	}
	return all, err
}

func (a *app) showAudited(all []*checkpoint.Audited) error {
	var first error
	rows := make([]any, len(all))
	for i, v := range all {
		if first == nil {
			first = v.Err()
		}
		problems := make([]any, len(v.Problems))
		for j, p := range v.Problems {
			problems[j] = map[string]any{"partition": p.Partition, "state": textOrNull(p.State), "blob": checkpoint.Ref(p.Blob), "error": errorDocument(p.Err)}
		}
		rows[i] = map[string]any{"run": v.Pointer.RunID, "epoch": v.Pointer.Epoch, "ok": v.Err() == nil, "blobs": v.Blobs, "bytes": v.Bytes, "problems": problems}
	}
	if a.json {
		if err := a.document(map[string]any{"ok": first == nil, "checkpoints": rows}); err != nil {
			return err
		}
		return a.concluded(first)
	}
	a.table("run\tepoch\tverdict\tblobs\tbytes", len(all), func(w io.Writer, i int) {
		v := all[i]
		verdict := "ok"
		switch n := len(v.Problems); {
		case n > 0 && checkpoint.Absent(v.Problems[0].Err):
			verdict = "not there"
		case n > 0:
			verdict = fmt.Sprintf("%d damaged", n)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%d of %d\t%d of %d\n", cell(v.Pointer.RunID), v.Pointer.Epoch, verdict, v.Blobs, v.Pointer.Blobs, v.Bytes, v.Pointer.Bytes)
	})
	for _, v := range all {
		for _, p := range v.Problems {
			a.printf("%s\n", printable(messageOf(p.Err)))
		}
	}
	return first
}

func (a *app) checkpointDiffCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "diff RUN EPOCH [RUN] EPOCH", Short: "Compare two checkpoints: positions, counts, and which state changed",
		Long:    "Compares two checkpoints of one run, or of two, by their manifests: what differs in positions, watermarks, counts and the state of each node.\nExit code 4 when they differ.",
		Example: "  weir checkpoint diff ticks-1 41 42 --store sqlite:weir.db --artifacts artifacts\n  weir checkpoint diff ticks-1 42 ticks-2 42 --store sqlite:weir.db --artifacts artifacts", Args: cobra.RangeArgs(3, 4),
	}
	return a.keptFlags(cmd, func(ctx context.Context, k kept, args []string) error {
		if len(args) == 3 {
			args = []string{args[0], args[1], args[0], args[2]}
		}
		var m [2]*checkpoint.Manifest
		for i := range m {
			p, err := k.find(ctx, args[2*i], args[2*i+1])
			if err != nil {
				return err
			}
			if m[i], err = checkpoint.Load(ctx, k.blobs, p); err != nil {
				return err
			}
		}
		d := checkpoint.Diff(m[0], m[1])
		if err := a.showDiff(d); err != nil || d.None() {
			return err
		}
		return outcome(codes.ExitDifference)
	})
}

func changes(all []checkpoint.Change) []any {
	rows := make([]any, len(all))
	for i, c := range all {
		rows[i] = map[string]any{"what": c.What, "was": c.Was, "is": c.Is}
	}
	return rows
}

func volume(v checkpoint.Volume) map[string]any {
	return map[string]any{"blobs": v.Blobs, "bytes": v.Bytes}
}

func (a *app) showDiff(d *checkpoint.Differences) error {
	if a.json {
		parts := make([]any, len(d.Partitions))
		for i, p := range d.Partitions {
			nodes := make([]any, len(p.Nodes))
			for j, n := range p.Nodes {
				nodes[j] = map[string]any{"node": n.Node, "same": volume(n.Same), "changed": volume(n.Changed), "added": volume(n.Added), "removed": volume(n.Removed)}
			}
			parts[i] = map[string]any{"partition": p.Partition, "changes": changes(p.Fields), "counts": checkpoint.CountsDocument(p.Counts), "nodes": nodes}
		}
		return a.document(map[string]any{"equal": d.None(), "changes": changes(d.Fields), "partitions": parts,
			"shared": volume(d.Shared), "only_first": volume(d.OnlyA), "only_second": volume(d.OnlyB)})
	}
	if d.None() {
		a.printf("equal\n")
		return nil
	}
	for _, c := range d.Fields {
		a.printf("%s: %s → %s\n", c.What, shown(c.Was), shown(c.Is))
	}
	for _, p := range d.Partitions {
		a.printf("partition %d\n", p.Partition)
		for _, c := range p.Fields {
			a.printf("  %s: %s → %s\n", c.What, shown(c.Was), shown(c.Is))
		}
		if p.Counts != (partitions.Counts{}) {
			a.printf("  counts: %s\n", countsText(p.Counts))
		}
		for _, n := range p.Nodes {
			a.printf("  %s: %d blobs changed (%d bytes), %d added (%d), %d removed (%d), %d the same (%d)\n", printable(n.Node),
				n.Changed.Blobs, n.Changed.Bytes, n.Added.Blobs, n.Added.Bytes, n.Removed.Blobs, n.Removed.Bytes, n.Same.Blobs, n.Same.Bytes)
		}
	}
	a.printf("shared %d bytes, only the first %d, only the second %d\n", d.Shared.Bytes, d.OnlyA.Bytes, d.OnlyB.Bytes)
	return nil
}

// countsText are the counts that are not 0, with their sign.
func countsText(c partitions.Counts) string {
	var out []string
	doc := checkpoint.CountsDocument(c)
	for name, v := range doc {
		if n, ok := v.(int64); ok && n != 0 {
			out = append(out, fmt.Sprintf("%s %+d", name, n))
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}
