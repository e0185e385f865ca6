package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

func (a *app) journalCommand() *cobra.Command {
	show := &cobra.Command{
		Use: "show RUN", Short: "Show where a run stands: epoch, fence, positions, counts and state",
		Long: "Shows the committed cut that the run resumes from, as of one moment: header, status, epoch, fence token, watermark, and for each partition its next\nposition, watermark, counts and the bytes of its state. The run may be at work meanwhile.\n" +
			"Of a run that is shared out by partitions (--scope partition) it shows the run of each, and the watermark over all of them.",
		Example: "  weir journal show ticks-1 --store sqlite:weir.db", Args: cobra.ExactArgs(1),
	}
	return a.group("journal", "Show the committed cut of a run", "  weir journal show ticks-1 --store sqlite:weir.db", a.storeFlag(show, func(ctx context.Context, store control.ControlStore, args []string) error {
		j, err := readJournal(ctx, store, args[0])
		switch {
		case codes.Has(err, codes.RunUnknown):
			return a.showParts(ctx, store, args[0], err)
		case err != nil:
			return err
		}
		return a.showJournal(j)
	}), a.journalEmitCommand())
}

// journalShown is what the command shows of a run.
type journalShown struct {
	state control.RunState
	info  control.RunInfo
	// nodes is the state of each partition by node.
	nodes map[int32]map[string]checkpoint.Volume
}

func readJournal(ctx context.Context, store control.ControlStore, runID string) (journalShown, error) {
	j := journalShown{nodes: map[int32]map[string]checkpoint.Volume{}}
	err := store.Snapshot(ctx, runID, func(v control.JournalView) error {
		j.state = v.State()
		for n := range j.state.Cuts {
			nodes := map[string]checkpoint.Volume{}
			j.nodes[n] = nodes
			if err := v.Blobs(ctx, n, func(b control.BlobRef) error {
				node, _, _ := strings.Cut(b.Name, "/")
				nodes[node] = checkpoint.Volume{Blobs: nodes[node].Blobs + 1, Bytes: nodes[node].Bytes + b.Size}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return j, err
	}
	runs, err := store.Runs(ctx)
	for _, r := range runs {
		if r.Header.RunID == runID {
			j.info = r
		}
	}
	return j, err
}

func (j journalShown) total() (v checkpoint.Volume) {
	for _, nodes := range j.nodes {
		for _, n := range nodes {
			v.Blobs += n.Blobs
			v.Bytes += n.Bytes
		}
	}
	return v
}

func (a *app) showJournal(j journalShown) error {
	s, h := j.state, j.state.Header
	if a.json {
		parts := make([]any, len(h.Partitions))
		for i, n := range h.Partitions {
			row := map[string]any{"partition": n, "next": nil, "watermark": nil, "finished": nil, "counts": nil, "state": nil}
			if cut, ok := s.Cuts[n]; ok {
				state := map[string]any{}
				for node, v := range j.nodes[n] {
					state[node] = volume(v)
				}
				row["next"], row["watermark"], row["finished"], row["counts"], row["state"] = cut.Next.String(), cut.Watermark.String(), cut.Finished, checkpoint.CountsDocument(cut.Counts), state
			}
			parts[i] = row
		}
		return a.document(map[string]any{
			"run": h.RunID, "status": string(s.Status), "epoch": s.Epoch, "fence_token": uint64(s.Fence), "watermark": s.Watermark.String(), "flow": h.Fingerprint,
			"source": map[string]any{"name": h.Source, "id": textOrNull(h.SourceID)}, "group": textOrNull(h.Group), "state": volume(j.total()),
			"partitions": parts, "created": stampOrNull(j.info.Created), "committed": stampOrNull(j.info.Committed),
		})
	}
	committed := "never"
	if !j.info.Committed.IsZero() {
		committed = stamp(j.info.Committed)
	}
	a.printf("run          %s, %s\nepoch        %d, committed %s\nfence token  %d\nwatermark    %s\nflow         %s\nsource       %s %s\ngroup        %s\ncreated      %s\nstate        %d blobs, %d bytes\n",
		printable(h.RunID), s.Status, s.Epoch, committed, s.Fence, s.Watermark, printable(h.Fingerprint), shown(h.Source), shown(h.SourceID), shown(h.Group),
		stamp(j.info.Created), j.total().Blobs, j.total().Bytes)
	a.table(partitionHeading, len(h.Partitions), func(w io.Writer, i int) {
		cut, ok := s.Cuts[h.Partitions[i]]
		partitionRow(w, h.Partitions[i], ok, cut, j.nodes[h.Partitions[i]])
	})
	return nil
}
