package main

import (
	"context"
	"os"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/internal/secretfile"
)

// openStore opens the control plane that a store string names. The string may be a reference (env:NAME, file:PATH), so that a password need not
// stand on the command line.
func openStore(ctx context.Context, ref string) (control.ControlStore, error) {
	text, err := dereference(ref)
	if err != nil {
		return nil, err
	}
	s, err := control.ParseStore(text)
	if err != nil {
		return nil, err
	}
	if s.Kind == control.StoreSQLite {
		return sqlite.Open(ctx, sqlite.Config{Path: s.Path})
	}
	return postgres.Open(ctx, postgres.Config{URL: text})
}

// secretLimit is more than any store string has.
const secretLimit = 64 << 10

// dereference reads what env:NAME or file:PATH holds; anything else is the value itself. No error shows the value.
func dereference(ref string) (string, error) {
	if name, ok := strings.CutPrefix(ref, "env:"); ok {
		value, set := os.LookupEnv(name)
		if !set || value == "" {
			return "", codes.New(codes.ConfigInvalid, "the environment variable %q is not set", name)
		}
		return value, nil
	}
	path, ok := strings.CutPrefix(ref, "file:")
	if !ok {
		return ref, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", codes.New(codes.FileMissing, "the secret: %w", err)
	}
	if secretfile.Open(info) {
		return "", codes.New(codes.ConfigInvalid, "the secret %s can be read by others (mode %04o); chmod 600 it", path, info.Mode().Perm())
	}
	text, err := readFile("the secret", path, secretLimit)
	return strings.TrimSpace(string(text)), err
}
