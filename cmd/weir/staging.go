package main

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	batchworker "github.com/weirstream/weir/batch/worker"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/clickhouse"
	"github.com/weirstream/weir/sinks/postgres"
)

// stagingFlags say where the rows of whole results are kept.
type stagingFlags struct {
	staging, stagingDB string
	stagingCreate      bool
}

// stagingKinds are the kinds of --staging KIND:TABLE.
var stagingKinds = []string{sinkClickHouse, sinkPostgres}

// addStaging adds the flags; create says whether the command makes tables.
func (o *stagingFlags) addStaging(cmd *cobra.Command, create bool) {
	f := cmd.Flags()
	f.StringVar(&o.staging, "staging", "", "KIND:TABLE where the rows of results are staged before they are published, and shown after: clickhouse:TABLE or postgres:TABLE")
	f.StringVar(&o.stagingDB, "staging-db", "", "database of --staging: clickhouse://… or postgres://…, or a reference env:NAME or file:PATH")
	if create {
		f.BoolVar(&o.stagingCreate, "staging-create", false, "create the tables of --staging if they are missing")
	}
}

// checkStaging finds what is wrong on the command line.
func (o *stagingFlags) checkStaging() error {
	kind, table, _ := strings.Cut(o.staging, ":")
	switch {
	case o.staging == "" && (o.stagingDB != "" || o.stagingCreate):
		return usagef("--staging-db and --staging-create belong to --staging KIND:TABLE")
	case o.staging == "":
		return nil
	case !slices.Contains(stagingKinds, kind) || table == "":
		return usagef("--staging %q is not KIND:TABLE; the kinds are %s", o.staging, strings.Join(stagingKinds, ", "))
	case o.stagingDB == "":
		return usagef("--staging needs --staging-db: say which database, such as --staging-db env:RESULTS_DB")
	}
	return nil
}

// openStaging makes the staging and looks whether it can take results; nil without one.
func (o *stagingFlags) openStaging(ctx context.Context) (sinks.Staging, error) {
	if o.staging == "" {
		return nil, nil
	}
	kind, table, _ := strings.Cut(o.staging, ":")
	url, err := dereference(o.stagingDB)
	if err != nil {
		return nil, err
	}
	var s sinks.Staging
	if kind == sinkPostgres {
		s, err = postgres.NewStaging(postgres.Config{URL: url, Table: table, Create: o.stagingCreate})
	} else {
		s, err = clickhouse.NewStaging(clickhouse.Config{URL: url, Table: table, Create: o.stagingCreate})
	}
	if err != nil {
		return nil, err
	}
	return s, s.Check(ctx)
}

// reconcile adds what is found in the staging. With repair, what is published is shown, and what never will be is dropped.
func (o *stagingFlags) reconcile(ctx context.Context, store control.ControlStore, repair bool, found []control.Damage) ([]control.Damage, error) {
	staging, err := o.openStaging(ctx)
	if err != nil || staging == nil {
		return found, err
	}
	more, err := batchworker.MendStaging(ctx, store, staging, repair, repair)
	return append(found, more...), err
}
