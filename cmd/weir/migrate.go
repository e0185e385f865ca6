package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/control/sqlite"
)

func (a *app) migrateCommand() *cobra.Command {
	var store string
	var print, check bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the schema of a store up to date, print it as SQL, or check it",
		Long: "PostgreSQL: applies the migrations that are missing, in one transaction, as a role that may create schemas and roles. Other commands never change the\n" +
			"schema. --print writes the SQL for psql instead: for an empty database, or with --store what that one lacks. --check only says whether the schema\n" +
			"fits. A SQLite store migrates itself when it is opened.",
		Example: "  weir migrate --store env:WEIR_ADMIN\n  weir migrate --print > weir.sql\n  weir migrate --print --store env:WEIR_STORE > upgrade.sql\n  weir migrate --store env:WEIR_STORE --check",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if print && a.json {
				return usagef("--print gives SQL, not JSON: leave --json out")
			}
			if print {
				return a.printMigration(cmd.Context(), store)
			}
			if store == "" {
				return usagef("--store is missing: say which store, such as --store env:WEIR_ADMIN")
			}
			return a.migrate(cmd.Context(), store, check)
		},
	}
	f := cmd.Flags()
	f.StringVar(&store, "store", "", "store: sqlite:PATH, postgres://…, or a reference env:NAME or file:PATH to one")
	f.BoolVar(&print, "print", false, "print the SQL for PostgreSQL (what --store lacks, if it is given) and do nothing")
	f.BoolVar(&check, "check", false, "say whether the schema fits and do nothing")
	return cmd
}

// printMigration prints the SQL for an empty database, or what a store lacks.
func (a *app) printMigration(ctx context.Context, ref string) error {
	if ref == "" {
		a.printf("%s", postgres.MigrationSQL(0))
		return nil
	}
	text, err := dereference(ref)
	if err != nil {
		return err
	}
	s, err := control.ParseStore(text)
	if err != nil {
		return err
	}
	if s.Kind == control.StoreSQLite {
		return usagef("--print is for PostgreSQL: a SQLite store migrates itself when it is opened")
	}
	sql, err := postgres.PendingSQL(ctx, text)
	if err == nil {
		a.printf("%s", sql)
	}
	return err
}

func (a *app) migrate(ctx context.Context, ref string, check bool) error {
	text, err := dereference(ref)
	if err != nil {
		return err
	}
	s, err := control.ParseStore(text)
	if err != nil {
		return err
	}
	var applied []string
	switch {
	case s.Kind == control.StoreSQLite:
		db, err := sqlite.Open(ctx, sqlite.Config{Path: s.Path})
		if err != nil {
			return err
		}
		if err := db.Close(); err != nil {
			return err
		}
	case check:
		err = postgres.CheckSchema(ctx, text)
	default:
		applied, err = postgres.Migrate(ctx, text)
	}
	if err != nil {
		return err
	}
	if a.json {
		rows := make([]any, len(applied))
		for i, name := range applied {
			rows[i] = name
		}
		return a.document(map[string]any{"store": s.Redacted(), "applied": rows, "up_to_date": true})
	}
	for _, name := range applied {
		a.printf("applied %s\n", name)
	}
	a.printf("%s: the schema is up to date\n", s.Redacted())
	return nil
}
