package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/postgres"
)

// sinkFlags say where the rows of a run are published, beside what its flow says.
type sinkFlags struct {
	sinks                    []string
	sinkDB                   string
	sinkRegion, sinkEndpoint string
	sinkClickHouse           string
	create                   bool
	// publisher is what they and the flow come to, nil without any.
	publisher *sinks.Publisher
	// late is where late events go, nil without.
	late *sinks.Publisher
}

func (o *sinkFlags) addSinks(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.sinks, "sink", nil, "publish each row there too, KIND:WHERE, beside the sinks of the flow: "+sinkForms()+";\n"+
		"may be given several times, see docs/guarantees.md")
	f.StringVar(&o.sinkDB, "sink-db", "", "database of postgres sinks: postgres://…, or a reference env:NAME or file:PATH")
	f.StringVar(&o.sinkClickHouse, "sink-clickhouse", "", "server and database of clickhouse sinks: clickhouse://…, or a reference env:NAME or file:PATH")
	f.BoolVar(&o.create, "sink-create", false, "create the tables of postgres and clickhouse sinks that are missing")
	f.StringVar(&o.sinkRegion, "sink-region", "", "AWS region of kinesis sinks (default: AWS_REGION, or that of the profile)")
	f.StringVar(&o.sinkEndpoint, "sink-endpoint", "", "for kinesis sinks another address than AWS's own; plain http on this machine only")
}

// checkSinks finds what is wrong on the command line.
func (o *sinkFlags) checkSinks(brokers string) error {
	tables, views, streams := 0, 0, 0
	for i, given := range o.sinks {
		name, where, found := strings.Cut(given, ":")
		kind, known := sinkKinds[name]
		switch {
		case !found || where == "" || !known || kind.where == "":
			return usagef("--sink %q is not KIND:WHERE; the kinds are %s", given, sinkForms())
		case slices.Contains(o.sinks[:i], given):
			return usagef("--sink %s is given twice", given)
		case kind.where == "topic" && brokers == "":
			return usagef("--sink %s needs --brokers", given)
		case name == sinkClickHouse:
			views++
		case kind.where == "table":
			tables++
		case kind.where == "stream":
			streams++
		}
	}
	switch {
	case tables > 0 && o.sinkDB == "":
		return usagef("a postgres sink needs --sink-db: say which database, such as --sink-db env:RESULTS_DB")
	case views > 0 && o.sinkClickHouse == "":
		return usagef("a clickhouse sink needs --sink-clickhouse: say which server, such as --sink-clickhouse env:RESULTS_CH")
	case tables == 0 && o.sinkDB != "", views == 0 && o.sinkClickHouse != "", tables+views == 0 && o.create:
		return usagef("--sink-db belongs to --sink postgres:TABLE, --sink-clickhouse to --sink clickhouse:TABLE, and --sink-create to both")
	case streams == 0 && o.sinkRegion+o.sinkEndpoint != "":
		return usagef("--sink-region and --sink-endpoint belong to --sink kinesis:STREAM")
	}
	return nil
}

// flagSinks are the sinks of the flags, in the form of those of a flow.
func (o *sinkFlags) flagSinks() (out []flow.SinkSpec) {
	for _, given := range o.sinks {
		kind, where, _ := strings.Cut(given, ":")
		fields := map[string]string{sinkKinds[kind].where: where}
		switch sinkKinds[kind].where {
		case "table":
			fields["database"] = o.sinkDB
			if kind == sinkClickHouse {
				fields["database"] = o.sinkClickHouse
			}
			if o.create {
				fields["create"] = "true"
			}
		case "stream":
			fields["region"], fields["endpoint"] = o.sinkRegion, o.sinkEndpoint
		}
		out = append(out, flow.SinkSpec{Name: given, Type: kind, Fields: fields})
	}
	return out
}

// openSinks makes the publisher. Nothing is connected before the run begins, but for topics of one name.
func (a *app) openSinks(ctx context.Context, plan *flow.Plan, o *runOptions) error {
	rows, late := &sinks.Publisher{OnState: a.tellSink}, &sinks.Publisher{OnState: a.tellSink}
	specs := append(slices.Clone(plan.Sinks), o.flagSinks()...)
	if err := sinksApart(specs); err != nil {
		return err
	}
	if err := o.checkSpare(specs); err != nil {
		return err
	}
	topics, err := o.readTopic()
	if err != nil {
		return err
	}
	for _, spec := range specs {
		if o.topic != "" && spec.Fields["topic"] == o.topic && spec.Fields["brokers"] == "" {
			return codes.New(codes.ConfigInvalid, "the run reads the topic %q to which the sink %q would publish: it would read its own rows. Name another topic", o.topic, spec.Name)
		}
		if respecSink != nil {
			spec = respecSink(spec)
		}
		s, err := openSink(ctx, spec, &o.brokerFlags)
		if err != nil {
			return err
		}
		topics.add(spec, s)
		if wrapSink != nil {
			s = wrapSink(s)
		}
		to := rows
		if spec.Name == plan.LateSink {
			to = late
		}
		to.Sinks = append(to.Sinks, sinks.Named{Name: spec.Name, Sink: s})
	}
	if len(rows.Sinks) > 0 {
		o.publisher = rows
	}
	if len(late.Sinks) > 0 {
		o.late = late
	}
	return topics.apart(ctx)
}

// respecSink and wrapSink let a test break the sinks of a run, to see that a drill notices.
var (
	respecSink func(flow.SinkSpec) flow.SinkSpec
	wrapSink   func(sinks.Sink) sinks.Sink
)

// joinSinks compares what the sinks write into, and makes those that are tables in the database of the journal a part of its transactions. One that cannot be reached just now is none, and is
// published to as any other.
func (a *app) joinSinks(ctx context.Context, o *runOptions, store *runStore) error {
	if err := o.locateSinks(ctx); err != nil {
		return err
	}
	if o.publisher == nil || store.postgres == nil {
		return nil
	}
	for i, s := range o.publisher.Sinks {
		table, is := s.Sink.(*postgres.Sink)
		if !is {
			continue
		}
		joined, err := table.Within(ctx, store.postgres)
		switch c := codes.Of(err); {
		case joined != nil:
			o.publisher.Sinks[i].Sink = joined
			a.log.Info("a sink is in the database of the journal: its rows are part of the journal's transactions", "sink", s.Name)
		case err != nil && (c == nil || c.Verdict != codes.Retry):
			return fmt.Errorf("sink %q: %w", s.Name, err)
		}
	}
	return nil
}

// publish has an engine publish to them, and note in its store what they refuse.
func (o *sinkFlags) publish(cfg *actors.Config) {
	cfg.Publisher, cfg.Late = o.publisher, o.late
	if notes, can := cfg.Journal.(control.Refusals); can {
		cfg.OnRefused = func(r control.Refusal) { control.Note(context.Background(), notes, r, nil) }
	}
}

// tellSink logs what becomes of a sink.
func (a *app) tellSink(s sinks.State) {
	if s.Err != nil {
		a.log.Warn("a sink is down; the run waits for it", "sink", s.Sink, "attempts", s.Attempts, "cause", s.Err.Error())
		return
	}
	a.log.Info("a sink is back", "sink", s.Sink, "attempts", s.Attempts)
}
