package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	drills "github.com/weirstream/weir/internal/drill"
	"github.com/weirstream/weir/internal/kinesistest/emulator"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/clickhouse"
)

// drillSinks are the kinds of sinks that a drill can make places for, and read.
var drillSinks = []string{sinkJSONL, sinkCSV, sinkParquet, sinkKafka, sinkIdempotent, sinkPostgres, sinkClickHouse, sinkKinesis}

// drillSinkEnv and drillViewEnv carry the databases of the results to the daemons.
const (
	drillSinkEnv = "WEIR_DRILL_SINK_DB"
	drillViewEnv = "WEIR_DRILL_SINK_CLICKHOUSE"
)

// drillSinkFlags say where the runs of a drill publish.
type drillSinkFlags struct {
	kinds    []string
	db, view string
	// emulator of Kinesis, once one was needed.
	emulator *emulator.Emulator
}

func (o *drillSinkFlags) addDrillSinks(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&o.kinds, "sink", nil, "publish to a sink of this kind too, and compare it with the journal: "+strings.Join(drillSinks, ", ")+"; the drill makes the place.\n"+
		"kinesis is an emulator on this machine, which needs Node.js and npm")
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
		t := drills.Target{Name: kind, Once: kind != sinkIdempotent && kind != sinkKinesis, Filled: kind != sinkIdempotent && kind != sinkKafka && kind != sinkKinesis}
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
		case sinkKinesis:
			where = "weir-drill-" + p.ID
			if err := o.stream(ctx, where, &t); err != nil {
				return nil, err
			}
		}
		t.Args = append(t.Args, "--sink", kind+":"+where)
		all = append(all, t)
	}
	return all, nil
}

// drillShards are those of the drill's stream.
const drillShards = 2

// stream makes a stream of an emulator the target.
func (o *drillSinkFlags) stream(ctx context.Context, name string, t *drills.Target) (err error) {
	if o.emulator, err = emulator.Start(); err != nil {
		return codes.New(codes.SinkUnavailable, "--sink kinesis needs an emulator of Kinesis, which does not start: %w", err)
	}
	if err := o.emulator.Create(ctx, name, drillShards); err != nil {
		return codes.New(codes.SinkUnavailable, "the emulator of Kinesis makes no stream: %w", err)
	}
	t.Args = []string{"--sink-region", emulator.Region, "--sink-endpoint", o.emulator.Endpoint()}
	t.Env = []string{"AWS_ACCESS_KEY_ID=" + emulator.AccessKey, "AWS_SECRET_ACCESS_KEY=" + emulator.SecretKey, "AWS_SESSION_TOKEN="}
	t.Read = func(ctx context.Context, run string, fn func(line []byte) error) error {
		of := []byte(`,"run":` + string(record.AppendString(nil, run)) + `,`)
		return o.emulator.Read(ctx, name, func(data []byte) error {
			if !bytes.Contains(data, of) {
				return nil
			}
			return fn(data)
		})
	}
	return nil
}

// endDrillSinks ends what the places of sinks needed.
func (o *drillSinkFlags) endDrillSinks() {
	if o.emulator != nil {
		o.emulator.Stop()
	}
}
