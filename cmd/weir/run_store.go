package main

import (
	"context"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/control/sqlite"
)

// wrapStore lets a test break the store of a run, to see that a drill notices.
var wrapStore func(control.ControlStore) control.ControlStore

// openRunStore opens the store of a run: time-outs fit the ttl of its lease, and a drill may interfere at every step of a write.
func openRunStore(ctx context.Context, o runOptions, hook func(step string) error) (control.ControlStore, error) {
	text, err := dereference(o.store)
	if err != nil {
		return nil, err
	}
	st, err := control.ParseStore(text)
	if err != nil {
		return nil, err
	}
	var store control.ControlStore
	if st.Kind == control.StoreSQLite {
		now, err := drillClock()
		if err != nil {
			return nil, err
		}
		store, err = sqlite.Open(ctx, sqlite.Config{Path: st.Path, Now: now, Hook: hook})
		if err != nil {
			return nil, err
		}
	} else if store, err = postgres.Open(ctx, postgres.Config{URL: text, TTL: o.ttl, Hook: hook}); err != nil {
		return nil, err
	}
	if wrapStore != nil {
		store = wrapStore(store)
	}
	return store, nil
}
