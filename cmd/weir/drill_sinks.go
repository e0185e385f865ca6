package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	drills "github.com/weirstream/weir/internal/drill"
	"github.com/weirstream/weir/sinks/clickhouse"
)

// drillSinks are the kinds of sinks that a drill can make places for, and read.
var drillSinks = []string{sinkJSONL, sinkCSV, sinkParquet, sinkKafka, sinkIdempotent, sinkPostgres, sinkClickHouse}

// drillSinkEnv and drillViewEnv carry the databases of the results to the daemons.
const (
	drillSinkEnv = "WEIR_DRILL_SINK_DB"
	drillViewEnv = "WEIR_DRILL_SINK_CLICKHOUSE"
)

// drillSinkFlags say where the runs of a drill publish.
type drillSinkFlags struct {
	kinds    []string
	db, view string
}

func (o *drillSinkFlags) addDrillSinks(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&o.kinds, "sink", nil, "publish to a sink of this kind too, and compare it with the journal: "+strings.Join(drillSinks, ", ")+"; the drill makes the place")
	f.StringVar(&o.db, "sink-db", "", "database of the sink postgres: postgres://…, or a reference env:NAME or file:PATH; the drill's table stays there")
	f.StringVar(&o.view, "sink-clickhouse", "", "server and database of the sink clickhouse: clickhouse://…, or a reference env:NAME or file:PATH; the drill's tables stay there")
}

func (o *drillSinkFlags) checkDrillSinks() error {
	for i, kind := range o.kinds {
		switch {
		case !slices.Contains(drillSinks, kind):
			return usagef("--sink %q is no kind of sink that a drill can read; the kinds are %s", kind, strings.Join(drillSinks, ", "))
		case slices.Contains(o.kinds[:i], kind):
			return usagef("--sink %s is given twice", kind)
		}
	}
	if slices.Contains(o.kinds, sinkPostgres) != (o.db != "") {
		return usagef("--sink postgres and --sink-db belong together: give both")
	}
	if slices.Contains(o.kinds, sinkClickHouse) != (o.view != "") {
		return usagef("--sink clickhouse and --sink-clickhouse belong together: give both")
	}
	return nil
}

// lay makes the places of the sinks.
func (o *drillOptions) lay(ctx context.Context, p drills.Place) (all []drills.Target, err error) {
	for _, kind := range o.kinds {
		t := drills.Target{Name: kind, Once: kind != sinkIdempotent, Filled: kind != sinkIdempotent && kind != sinkKafka}
		where := filepath.Join(p.Dir, "sink-"+kind)
		switch kind {
		case sinkJSONL, sinkCSV, sinkParquet:
			if err := os.Mkdir(where, 0o700); err != nil {
				return nil, codes.New(codes.OutputUnwritable, "the folder of the drill: %w", err)
			}
			switch kind {
			case sinkJSONL:
				t.Read = drills.LineFiles(where)
			case sinkCSV:
				t.Read = drills.TableFiles(where, p.Outputs)
			case sinkParquet:
				t.Read = drills.ColumnFiles(where, p.Outputs)
			}
		case sinkKafka, sinkIdempotent:
			where = o.TopicPrefix + "-" + p.ID + "-sink-" + kind
			if err := drills.MakeTopic(ctx, p.Brokers, where, o.Security); err != nil {
				return nil, err
			}
			t.Read = drills.Topic(p.Brokers, where, o.Security)
		case sinkPostgres:
			where = "weir_drill_" + p.ID
			url, err := dereference(o.db)
			if err != nil {
				return nil, err
			}
			t.Args, t.Env = []string{"--sink-db", "env:" + drillSinkEnv, "--sink-create"}, []string{drillSinkEnv + "=" + url}
			t.Read = drills.Table(url, where, p.Outputs)
		case sinkClickHouse:
			where = "weir_drill_" + p.ID
			url, err := dereference(o.view)
			if err != nil {
				return nil, err
			}
			view, err := clickhouse.New(clickhouse.Config{URL: url, Table: where})
			if err != nil {
				return nil, err
			}
			t.Args, t.Env = []string{"--sink-clickhouse", "env:" + drillViewEnv, "--sink-create"}, []string{drillViewEnv + "=" + url}
			t.Read = drills.View(view, p.Outputs)
		}
		t.Args = append(t.Args, "--sink", kind+":"+where)
		all = append(all, t)
	}
	return all, nil
}
