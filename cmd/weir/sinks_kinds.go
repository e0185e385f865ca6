package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sinks/file"
	"github.com/weirstream/weir/sinks/kafka"
	sinkkinesis "github.com/weirstream/weir/sinks/kinesis"
	"github.com/weirstream/weir/sinks/postgres"
	"github.com/weirstream/weir/sources/kinesis"
)

// sinkKind opens a type of sink.
type sinkKind struct {
	// where is the field that --sink KIND:WHERE gives; "" for a type that only a flow can name.
	where string
	// open makes the sink of the fields of a flow; nothing is connected. brokers are those of the run.
	open func(ctx context.Context, fields map[string]string, brokers *brokerFlags) (sinks.Sink, error)
}

// The kinds of sink that others than this table name.
const (
	sinkJSONL      = "jsonl"
	sinkCSV        = "csv"
	sinkParquet    = "parquet"
	sinkKafka      = "kafka"
	sinkIdempotent = "kafka-idempotent"
	sinkPostgres   = "postgres"
	sinkKinesis    = "kinesis"
)

// sinkKinds are all types of sink, as flow.SinkTypes names them.
var sinkKinds = map[string]sinkKind{
	sinkJSONL:      {"folder", openFiles(file.JSONLines)},
	sinkCSV:        {"folder", openFiles(file.CSV)},
	sinkParquet:    {"folder", openFiles(file.Parquet)},
	sinkKafka:      {"topic", openTopic(false)},
	sinkIdempotent: {"topic", openTopic(true)},
	sinkPostgres:   {"table", openTable},
	sinkClickHouse: {"table", openView},
	sinkKinesis:    {"stream", openStream},
}

// sinkForms are the forms of --sink, for people.
func sinkForms() string {
	var forms []string
	for _, name := range slices.Sorted(maps.Keys(sinkKinds)) {
		if where := sinkKinds[name].where; where != "" {
			forms = append(forms, name+":"+strings.ToUpper(where))
		}
	}
	return strings.Join(forms, ", ")
}

// openSink makes a sink. Errors name it.
func openSink(ctx context.Context, spec flow.SinkSpec, brokers *brokerFlags) (sinks.Sink, error) {
	kind, known := sinkKinds[spec.Type]
	if !known {
		return nil, codes.New(codes.Internal, "sink %q: the type %s is in the language and cannot be opened", spec.Name, spec.Type)
	}
	s, err := kind.open(ctx, spec.Fields, brokers)
	if err != nil {
		return nil, fmt.Errorf("sink %q: %w", spec.Name, err)
	}
	return s, nil
}

func openFiles(format file.Format) func(context.Context, map[string]string, *brokerFlags) (sinks.Sink, error) {
	return func(_ context.Context, f map[string]string, _ *brokerFlags) (sinks.Sink, error) {
		every := time.Duration(0)
		if text := f["every"]; text != "" {
			var err error
			if every, err = flow.ParseDuration(text); err != nil {
				return nil, codes.New(codes.ConfigInvalid, "every: %q %w", text, err)
			}
		}
		return file.New(file.Config{Folder: f["folder"], Format: format, Every: every})
	}
}

func openTable(_ context.Context, f map[string]string, _ *brokerFlags) (sinks.Sink, error) {
	url, err := dereference(f["database"])
	if err != nil {
		return nil, err
	}
	return postgres.New(postgres.Config{URL: url, Table: f["table"], Create: f["create"] == "true"})
}

func openTopic(idempotent bool) func(context.Context, map[string]string, *brokerFlags) (sinks.Sink, error) {
	return func(_ context.Context, f map[string]string, run *brokerFlags) (sinks.Sink, error) {
		b, err := topicBrokers(f, run)
		if err != nil {
			return nil, err
		}
		security, err := b.security()
		if err != nil {
			return nil, err
		}
		return kafka.NewSink(kafka.SinkConfig{Brokers: addresses(b.brokers), Topic: f["topic"], Security: security, Idempotent: idempotent})
	}
}

// topicBrokers are the brokers of a topic: those that it names, or else the run's.
func topicBrokers(f map[string]string, run *brokerFlags) (*brokerFlags, error) {
	if f["brokers"] != "" {
		return &brokerFlags{brokers: f["brokers"], tls: f["tls"] == "true", ca: f["tls_ca"], sasl: f["sasl"], user: f["user"], password: f["password"]}, nil
	}
	if run.brokers == "" {
		return nil, codes.New(codes.ConfigInvalid, "topic %q: no broker is named: write brokers: HOST:PORT to the sink, or give --brokers", f["topic"])
	}
	return run, nil
}

func openStream(ctx context.Context, f map[string]string, _ *brokerFlags) (sinks.Sink, error) {
	client, err := kinesis.Connect(ctx, kinesis.Connection{Region: f["region"], Named: "the field region of the flow's sink, or --sink-region beside --sink", Endpoint: f["endpoint"]})
	if err != nil {
		return nil, err
	}
	return sinkkinesis.NewSink(sinkkinesis.SinkConfig{Config: sinkkinesis.Config{Client: client, Stream: f["stream"]}})
}
