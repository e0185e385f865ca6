package main

import (
	"context"
	"fmt"
	"io"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// showParts shows a run that is shared out by partitions: one row for each of its runs, and how far event time is closed over all of them. unknown
// is the answer when there is no such run.
func (a *app) showParts(ctx context.Context, store control.ControlStore, run string, unknown error) error {
	all, err := readParts(ctx, store, run)
	if codes.Has(err, codes.RunUnknown) {
		return unknown
	}
	if err != nil {
		return err
	}
	merged, err := new(group.Merged).Read(ctx, store, run, nil) // every row that there is
	if err != nil {
		return err
	}
	inputs, err := inputsOf(ctx, store, run, all.parts)
	if err != nil {
		return err
	}
	if a.json {
		rows := make([]any, len(all.parts))
		for i, s := range all.parts {
			p, next, records := partOf(run, s)
			rows[i] = map[string]any{"partition": p, "run": s.Header.RunID, "status": string(s.Status), "input": inputs[i], "epoch": s.Epoch, "fence_token": uint64(s.Fence),
				"watermark": s.Watermark.String(), "next": next, "records": records}
		}
		return a.document(map[string]any{"run": run, "scope": scopePartition, "watermark": merged.String(), "partitions": rows})
	}
	a.printf("run          %s, by partitions\nwatermark    %s, over all of them\n", printable(run), merged)
	a.table("partition\trun\tstatus\tinput\tepoch\tfence\tnext\twatermark\trecords", len(all.parts), func(w io.Writer, i int) {
		s := all.parts[i]
		p, next, records := partOf(run, s)
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%d\t%s\t%s\t%d\n", p, printable(s.Header.RunID), s.Status, inputs[i], s.Epoch, s.Fence, next, s.Watermark, records)
	})
	return nil
}

// inputsOf is what is known about the input of each partition; one that is IDLE or FINISHED holds no watermark.
func inputsOf(ctx context.Context, store control.ControlStore, run string, all []control.RunState) ([]string, error) {
	out := make([]string, len(all))
	for i, s := range all {
		p, _ := group.PartitionOf(run, s.Header.RunID)
		err := store.Snapshot(ctx, s.Header.RunID, func(v control.JournalView) error {
			is, err := control.InputOf(ctx, v, p)
			out[i] = is.String()
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// partOf is what the row of one partition has: its number, the next position, and the records so far.
func partOf(run string, s control.RunState) (p int32, next string, records int64) {
	p, _ = group.PartitionOf(run, s.Header.RunID)
	cut := s.Cuts[p]
	if cut.Next != (record.Position{}) {
		next = cut.Next.String()
	}
	return p, next, cut.Counts.Records
}
