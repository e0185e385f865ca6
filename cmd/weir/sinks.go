package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/file"
	"github.com/weirstream/weir/sinks/kafka"
	"github.com/weirstream/weir/sinks/postgres"
)

// sinkFlags say where the rows of a run are published.
type sinkFlags struct {
	sinks  []string
	sinkDB string
	create bool
	// publisher is what they come to, nil without any.
	publisher *sinks.Publisher
}

// The kinds of a sink, as --sink KIND:WHERE names them.
const (
	sinkJSONL      = "jsonl"
	sinkCSV        = "csv"
	sinkKafka      = "kafka"
	sinkIdempotent = "kafka-idempotent"
	sinkPostgres   = "postgres"
)

var sinkKinds = []string{sinkJSONL, sinkCSV, sinkKafka, sinkIdempotent, sinkPostgres}

func (o *sinkFlags) addSinks(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.sinks, "sink", nil, "publish each row there too, KIND:WHERE: jsonl:FOLDER, csv:FOLDER, kafka:TOPIC or kafka-idempotent:TOPIC (of --brokers),\n"+
		"postgres:TABLE (of --sink-db); may be given several times, see docs/guarantees.md")
	f.StringVar(&o.sinkDB, "sink-db", "", "database of postgres sinks: postgres://…, or a reference env:NAME or file:PATH")
	f.BoolVar(&o.create, "sink-create", false, "create the tables of postgres sinks that are missing")
}

// checkSinks finds what is wrong on the command line.
func (o *sinkFlags) checkSinks(brokers string) error {
	tables := 0
	for i, given := range o.sinks {
		kind, where, found := strings.Cut(given, ":")
		switch {
		case !found || where == "" || !slices.Contains(sinkKinds, kind):
			return usagef("--sink %q is not KIND:WHERE; the kinds are %s", given, strings.Join(sinkKinds, ", "))
		case slices.Contains(o.sinks[:i], given):
			return usagef("--sink %s is given twice", given)
		case (kind == sinkKafka || kind == sinkIdempotent) && brokers == "":
			return usagef("--sink %s needs --brokers", given)
		case kind == sinkPostgres:
			tables++
		}
	}
	switch {
	case tables > 0 && o.sinkDB == "":
		return usagef("a postgres sink needs --sink-db: say which database, such as --sink-db env:RESULTS_DB")
	case tables == 0 && (o.sinkDB != "" || o.create):
		return usagef("--sink-db and --sink-create belong to --sink postgres:TABLE")
	}
	return nil
}

// openSinks makes the publisher; nothing is connected before the run begins.
func (a *app) openSinks(o *runOptions) error {
	if len(o.sinks) == 0 {
		return nil
	}
	p := &sinks.Publisher{OnState: a.tellSink}
	for _, given := range o.sinks {
		s, err := o.sink(given)
		if err != nil {
			return err
		}
		p.Sinks = append(p.Sinks, sinks.Named{Name: given, Sink: s})
	}
	o.publisher = p
	return nil
}

func (o *runOptions) sink(given string) (sinks.Sink, error) {
	kind, where, _ := strings.Cut(given, ":")
	switch kind {
	case sinkJSONL:
		return file.New(file.Config{Folder: where})
	case sinkCSV:
		return file.New(file.Config{Folder: where, Format: file.CSV})
	case sinkPostgres:
		url, err := dereference(o.sinkDB)
		if err != nil {
			return nil, err
		}
		return postgres.New(postgres.Config{URL: url, Table: where, Create: o.create})
	}
	security, err := o.security()
	if err != nil {
		return nil, err
	}
	return kafka.NewSink(kafka.SinkConfig{Brokers: addresses(o.brokers), Topic: where, Security: security, Idempotent: kind == sinkIdempotent})
}

// publish has an engine publish to them.
func (o *sinkFlags) publish(cfg *actors.Config) { cfg.Publisher = o.publisher }

// tellSink logs what becomes of a sink.
func (a *app) tellSink(s sinks.State) {
	if s.Err != nil {
		a.log.Warn("a sink is down; the run waits for it", "sink", s.Sink, "attempts", s.Attempts, "cause", s.Err.Error())
		return
	}
	a.log.Info("a sink is back", "sink", s.Sink, "attempts", s.Attempts)
}
