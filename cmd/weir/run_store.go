package main

import (
	"context"

	"github.com/weirstream/weir/checkpoint"
	blobs "github.com/weirstream/weir/checkpoint/postgres"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/control/sqlite"
)

// wrapStore lets a test break the store of a run, to see that a drill notices.
var wrapStore func(control.ControlStore) control.ControlStore

// runStore is the store of a run, and the blobs that it can keep itself, or nil.
type runStore struct {
	control.ControlStore
	blobs  checkpoint.Blobs
	faults *failpoints
	// postgres is the store itself where it is one, for sinks in the same database.
	postgres *postgres.Store
}

// openRunStore opens the store of a run: time-outs fit the ttl of its lease, and a drill may interfere at every step of a write.
func openRunStore(ctx context.Context, o runOptions, faults *failpoints) (*runStore, error) {
	text, err := dereference(o.store)
	if err != nil {
		return nil, err
	}
	st, err := control.ParseStore(text)
	if err != nil {
		return nil, err
	}
	out := runStore{faults: faults}
	if st.Kind == control.StoreSQLite {
		now, err := drillClock()
		if err != nil {
			return nil, err
		}
		s, err := sqlite.Open(ctx, sqlite.Config{Path: st.Path, Now: now, Hook: faults.store()})
		if err != nil {
			return nil, err
		}
		out.ControlStore = s
	} else {
		s, err := postgres.Open(ctx, postgres.Config{URL: text, TTL: o.ttl, Hook: faults.store()})
		if err != nil {
			return nil, err
		}
		out.ControlStore, out.blobs, out.postgres = s, blobs.On(s), s
	}
	if len(faults.faults) > 0 {
		out.ControlStore = gated{out.ControlStore, faults}
	}
	if wrapStore != nil {
		out.ControlStore = wrapStore(out.ControlStore)
	}
	out.ControlStore = control.Noting(out.ControlStore, nil)
	return &out, nil
}
