package main

import (
	"context"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
)

// openStore opens the control plane that a store string names.
func openStore(ctx context.Context, store string) (control.ControlStore, error) {
	s, err := control.ParseStore(store)
	if err != nil {
		return nil, err
	}
	if s.Kind == control.StoreSQLite {
		return sqlite.Open(ctx, sqlite.Config{Path: s.Path})
	}
	return nil, codes.New(codes.StoreUnsupported, "store %s: this version does not have that kind", s.Redacted())
}
