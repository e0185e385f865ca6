package main

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/dir"
	pgblobs "github.com/weirstream/weir/checkpoint/postgres"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/postgres"
)

func (a *app) checkpointCommand() *cobra.Command {
	return a.group("checkpoint", "List, verify, compare, restore and clean up checkpoints of runs", "  weir checkpoint list --store sqlite:weir.db",
		a.checkpointListCommand(), a.checkpointShowCommand(), a.checkpointVerifyCommand(), a.checkpointDiffCommand(), a.checkpointCheckCommand(),
		a.checkpointRestoreCommand(), a.checkpointPinCommand("pin", "Keep a checkpoint whatever is cleaned up", true),
		a.checkpointPinCommand("unpin", "Let a pinned checkpoint be cleaned up when its time comes", false), a.checkpointGCCommand())
}

// kept is a store with the blobs of its checkpoints.
type kept struct {
	store control.ControlStore
	blobs checkpoint.Blobs
	// folder is nil when the blobs are in the store.
	folder *dir.Store
}

// keptFlags adds --store, --artifacts and --checkpoints to a command, and opens what they name for run.
func (a *app) keptFlags(cmd *cobra.Command, run func(ctx context.Context, k kept, args []string) error) *cobra.Command {
	var artifacts, place string
	cmd.Flags().StringVar(&artifacts, "artifacts", "", "folder of the runs' artifacts; the checkpoints are in its folder checkpoints")
	cmd.Flags().StringVar(&place, "checkpoints", "", "folder of the checkpoints, or \"store\" for those that a PostgreSQL store keeps itself")
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		if place == "" && artifacts != "" {
			place = filepath.Join(artifacts, "checkpoints")
		}
		k, err := openKept(ctx, store, place)
		if err != nil {
			return err
		}
		if k.folder != nil {
			defer k.folder.Close()
		}
		return run(ctx, k, args)
	})
}

// openKept opens blobs that are there. None are made: a folder that does not exist is a mistake in its name.
func openKept(ctx context.Context, store control.ControlStore, place string) (kept, error) {
	k := kept{store: store}
	switch db, isPostgres := store.(*postgres.Store); {
	case place == "":
		return k, usagef("say where the checkpoints are kept: --artifacts or --checkpoints, as the run was given them")
	case place == inStore && !isPostgres:
		return k, codes.New(codes.ConfigInvalid, "--checkpoints store: a SQLite store keeps no blobs; name a folder")
	case place == inStore:
		k.blobs = placed{pgblobs.On(db), "the store"}
		return k, nil
	case missing(place):
		return k, codes.New(codes.FileMissing, "there is no folder of checkpoints at %s; `weir run` with --artifacts or --checkpoints makes one", place)
	}
	id, err := store.StoreID(ctx)
	if err != nil {
		return k, err
	}
	k.folder, err = dir.OpenOwned(place, id)
	k.blobs = placed{k.folder, place}
	return k, err
}

// placed are blobs with the name by which the user asked for them, for messages.
type placed struct {
	checkpoint.Blobs
	place string
}

func (p placed) Place() string { return p.place }

// parseEpoch reads an epoch that the user named.
func parseEpoch(arg string) (uint64, error) {
	n, err := strconv.ParseUint(arg, 10, 63)
	if err != nil || n == 0 {
		return 0, usagef("%q is not an epoch: a checkpoint is named by its run and the number of its epoch; `weir checkpoint list` shows them", arg)
	}
	return n, nil
}

// find is the checkpoint that two arguments name.
func (k kept) find(ctx context.Context, run, epoch string) (control.Pointer, error) {
	n, err := parseEpoch(epoch)
	if err != nil {
		return control.Pointer{}, err
	}
	return checkpoint.Find(ctx, k.store, run, n)
}

// errorDocument is an error as JSON shows it; nil is null.
func errorDocument(err error) any {
	if err == nil {
		return nil
	}
	c := codes.Of(err)
	if c == nil {
		c = codes.Internal
	}
	return map[string]any{"code": c.Name, "message": messageOf(err), "cure": c.Cure}
}

// messageOf is an error without its code.
func messageOf(err error) string {
	var e *codes.Error
	if errors.As(err, &e) {
		return e.Msg
	}
	return err.Error()
}

// concluded ends a command whose report has the error in it already when it is a document; people are told it after the report.
func (a *app) concluded(err error) error {
	c := codes.Of(err)
	if err == nil || c == nil || !a.json {
		return err
	}
	return outcome(c.Exit)
}

func pointerDocument(p control.Pointer) map[string]any {
	return map[string]any{
		"run": p.RunID, "epoch": p.Epoch, "manifest": checkpoint.Ref(p.Manifest), "manifest_hash": p.Hash, "flow": p.Fingerprint, "fence_token": uint64(p.Token),
		"blobs": p.Blobs, "bytes": p.Bytes, "new_bytes": p.NewBytes, "pinned": p.Pinned, "created": stampOrNull(p.Created),
	}
}

func (a *app) checkpointPinCommand(use, short string, pinned bool) *cobra.Command {
	cmd := &cobra.Command{Use: use + " RUN EPOCH", Short: short, Example: "  weir checkpoint " + use + " ticks-1 42 --store sqlite:weir.db", Args: cobra.ExactArgs(2)}
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		p, err := kept{store: store}.find(ctx, args[0], args[1])
		if err != nil {
			return err
		}
		err = checkpoint.Hold(ctx, store, checkpoint.CleanUpLease, control.NewOwner(), 0, func(ctx context.Context, l control.Lease) error {
			return store.PinPointer(ctx, l, p.RunID, p.Epoch, pinned)
		})
		if err != nil {
			return err
		}
		if a.json {
			return a.document(map[string]any{"run": p.RunID, "epoch": p.Epoch, "pinned": pinned})
		}
		a.printf("the checkpoint of %s at epoch %d is %sned\n", printable(p.RunID), p.Epoch, use)
		return nil
	})
}
