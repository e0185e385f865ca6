package main

import (
	"context"
	"path/filepath"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/dir"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

const (
	// inStore is the value of --checkpoints for the store itself.
	inStore = "store"
	// atEndOnly is longer than any process runs: what --checkpoint-every 0 means.
	atEndOnly = 100 * 365 * 24 * time.Hour
)

// wrapBlobs lets a test break the blobs of checkpoints, to see that a drill notices.
var wrapBlobs func(checkpoint.Blobs) checkpoint.Blobs

// place is where the checkpoints of the run are kept: a folder, inStore, or "" for nowhere.
func (o *runOptions) place() string {
	if o.checkpoints == "" && o.artifacts != "" {
		return filepath.Join(o.artifacts, "checkpoints")
	}
	return o.checkpoints
}

// addCheckpoints has the engine make checkpoints, if there is a place for them. The place is opened before the run, so that one that cannot be
// used is known at once.
func (a *app) addCheckpoints(ctx context.Context, cfg *actors.Config, o runOptions, store *runStore) (closing func() error, err error) {
	keep, closing, err := a.openCheckpoints(ctx, o, store)
	if err != nil {
		return nil, err
	}
	keep(cfg)
	return closing, nil
}

// openCheckpoints opens the place of the checkpoints once for all engines of the process, and returns what has an engine make them.
func (a *app) openCheckpoints(ctx context.Context, o runOptions, store *runStore) (keep func(*actors.Config), closing func() error, err error) {
	if o.place() == "" {
		return func(*actors.Config) {}, func() error { return nil }, nil
	}
	blobs, closing, err := a.openBlobs(ctx, o, store)
	if err != nil {
		return nil, nil, err
	}
	if len(store.faults.faults) > 0 {
		blobs = drilledBlobs{blobs, store.faults}
	}
	if wrapBlobs != nil {
		blobs = wrapBlobs(blobs)
	}
	return func(cfg *actors.Config) {
		cfg.Checkpointer = &checkpoint.Saver{Store: store, Blobs: blobs, Plan: cfg.Plan, Keep: checkpoint.DefaultKeep, Grace: checkpoint.DefaultGrace}
		if cfg.CheckpointEvery = o.checkpointEvery; cfg.CheckpointEvery == 0 {
			cfg.CheckpointEvery = atEndOnly
		}
		cfg.OnCheckpoint = a.tellCheckpoint
	}, closing, nil
}

// tellCheckpoint says that a checkpoint was not made. The engine logs those that were.
func (a *app) tellCheckpoint(_ control.Pointer, err error) {
	if err != nil {
		a.notice("weir: no checkpoint was made, the run goes on: %s\n", printable(err.Error()))
	}
}

func (a *app) openBlobs(ctx context.Context, o runOptions, store *runStore) (checkpoint.Blobs, func() error, error) {
	switch {
	case o.place() == inStore && store.blobs == nil:
		return nil, nil, codes.New(codes.ConfigInvalid, "--checkpoints store: a SQLite store keeps no blobs; name a folder")
	case o.place() == inStore:
		return store.blobs, func() error { return nil }, nil
	}
	id, err := store.StoreID(ctx)
	if err != nil {
		return nil, nil, err
	}
	d, err := dir.OpenOwned(o.place(), id)
	if err != nil {
		return nil, nil, err
	}
	strange, err := d.Strangers()
	if err != nil {
		_ = d.Close() // the reason to give up says more
		return nil, nil, err
	}
	if len(strange) > 0 {
		a.notice("weir: the folder of checkpoints %s holds %d files that are not weir's, such as %s; they are left alone\n", printable(o.place()), len(strange), printable(strange[0]))
	}
	return d, d.Close, nil
}
