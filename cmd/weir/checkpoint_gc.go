package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/control"
)

func (a *app) checkpointGCCommand() *cobra.Command {
	var keep int
	var grace time.Duration
	var apply bool
	cmd := &cobra.Command{
		Use: "gc", Short: "Clean up old checkpoints and blobs that none refers to; only says what it would do without --apply",
		Long: "Drops checkpoints, except pinned ones, the last --keep of each run and those younger than --grace. Blobs that no checkpoint refers to are set aside\n" +
			"first, and removed by a later clean-up, --grace after that, if none refers to them still. The checkpoints of a run that a process owns\n" +
			"just now are left to it. Only the folder of this store is touched, and nothing in it that is not weir's.\n" +
			"A copy of a database has the identity of the original: give it a folder of its own before anything is cleaned up.",
		Example: "  weir checkpoint gc --store sqlite:weir.db --artifacts artifacts\n  weir checkpoint gc --store sqlite:weir.db --artifacts artifacts --keep 10 --apply", Args: cobra.NoArgs,
	}
	cmd.Flags().IntVar(&keep, "keep", checkpoint.DefaultKeep, "checkpoints of each run that are kept in any case, the newest")
	cmd.Flags().DurationVar(&grace, "grace", checkpoint.DefaultGrace, "age below which nothing is removed, at least 15m")
	cmd.Flags().BoolVar(&apply, "apply", false, "do it; without this nothing is changed")
	return a.keptFlags(cmd, func(ctx context.Context, k kept, _ []string) error {
		if keep < 1 || grace < checkpoint.MinGrace {
			return usagef("--keep must be at least 1 and --grace at least %s, since a checkpoint may take %s to be written", checkpoint.MinGrace, checkpoint.MaxSave)
		}
		gc := checkpoint.GC{Store: k.store, Blobs: k.blobs, Keep: keep, Grace: grace}
		run := gc.DryRun
		if apply {
			run = gc.Collect
		}
		done, err := run(ctx)
		if err != nil {
			return err
		}
		return a.showCollected(k, done, apply)
	})
}

func (a *app) showCollected(k kept, c *checkpoint.Collected, applied bool) error {
	strange := []string{}
	if k.folder != nil {
		found, err := k.folder.Strangers()
		if err != nil {
			return err
		}
		strange = append(strange, found...)
	}
	if a.json {
		owned := make([]any, 0, len(c.Owned))
		for _, run := range slices.Sorted(maps.Keys(c.Owned)) {
			owned = append(owned, map[string]any{"run": run, "error": errorDocument(c.Owned[run])})
		}
		return a.document(map[string]any{
			"applied": applied, "dropped": pointers(c.Dropped), "kept": len(c.Kept), "owned": owned, "set_aside": volume(sizeOf(c.SetAside)), "purged": volume(sizeOfAside(c.Purged)),
			"brought_back": volume(sizeOfAside(c.BroughtBack)), "waiting": volume(sizeOfAside(c.Waiting)), "standing": c.Standing, "referenced": c.Referenced, "left_alone": strange,
		})
	}
	a.printCollected(c, strange, applied)
	return nil
}

func (a *app) printCollected(c *checkpoint.Collected, strange []string, applied bool) {
	would := ""
	if !applied {
		would = "would be "
	}
	for _, p := range c.Dropped {
		a.printf("the checkpoint of %s at epoch %d %sdropped\n", printable(p.RunID), p.Epoch, would)
	}
	for _, run := range slices.Sorted(maps.Keys(c.Owned)) {
		a.printf("the checkpoints of %s are left to the owner of the run: %s\n", printable(run), printable(messageOf(c.Owned[run])))
	}
	for _, line := range []struct {
		what string
		v    checkpoint.Volume
	}{{"set aside", sizeOf(c.SetAside)}, {"removed for good", sizeOfAside(c.Purged)}, {"brought back", sizeOfAside(c.BroughtBack)}, {"set aside before, waiting for their time", sizeOfAside(c.Waiting)}} {
		if line.v.Blobs > 0 {
			a.printf("%d blobs, %d bytes: %s\n", line.v.Blobs, line.v.Bytes, line.what)
		}
	}
	for _, name := range strange {
		a.printf("left alone, since it is not weir's: %q\n", name)
	}
	a.printf("%d checkpoints kept, %d blobs referred to\n", len(c.Kept), c.Referenced)
	if !applied {
		a.notice("weir: nothing was changed; --apply does it\n")
	}
}

func pointers(all []control.Pointer) []any {
	rows := make([]any, len(all))
	for i, p := range all {
		rows[i] = map[string]any{"run": p.RunID, "epoch": p.Epoch}
	}
	return rows
}

func sizeOf(all []checkpoint.Info) (v checkpoint.Volume) {
	for _, i := range all {
		v.Blobs++
		v.Bytes += i.Size
	}
	return v
}

func sizeOfAside(all []checkpoint.Aside) checkpoint.Volume {
	infos := make([]checkpoint.Info, len(all))
	for i, a := range all {
		infos[i] = a.Info
	}
	return sizeOf(infos)
}
