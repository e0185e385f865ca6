package tidy

// Module is the path that imports of our own packages start with.
const Module = "github.com/weirstream/weir"

// Row is what one package may do. A package without a row may not exist: whoever adds one declares it here, with its reason.
// A row may be there before its package: the table is the plan of the house.
type Row struct {
	// Package is the folder from the root of the module; "." is the root itself.
	Package string
	// Imports are the packages of this module that files other than tests may import; "sources/*" is all below sources, "*" is all.
	// Tests may import any.
	Imports []string
	// Vendors are the third parties, as import path prefixes, that the package may import; TestVendors only in its tests.
	Vendors, TestVendors []string
	// Pure packages start no goroutine, read no clock and do no I/O; see pure.go.
	Pure bool
	// Globals are package variables that a pure package may write to, while it is initialised.
	Globals []string
	// Why is the reason for the row.
	Why string
}

// Third parties, by the import path prefix of each.
const (
	kfake      = "github.com/twmb/franz-go/pkg/kfake"
	protoactor = "github.com/asynkron/protoactor-go"
	sqlite     = "modernc.org/sqlite"
	yaml       = "go.yaml.in/yaml/v3"
	xxh3       = "github.com/zeebo/xxh3"
	cobra      = "github.com/spf13/cobra"
	datadriven = "github.com/cockroachdb/datadriven"
	jsonschema = "github.com/santhosh-tekuri/jsonschema/v6"
	porcupine  = "github.com/anishathalye/porcupine"
	zstd       = "github.com/klauspost/compress/zstd"
	lz4        = "github.com/pierrec/lz4/v4"
	pgx        = "github.com/jackc/pgx/v5"
	parquetgo  = "github.com/parquet-go/parquet-go"
)

// franz is the Kafka client: all of franz-go but kfake, which is a broker.
var franz = []string{"github.com/twmb/franz-go/pkg/kgo", "github.com/twmb/franz-go/pkg/kadm", "github.com/twmb/franz-go/pkg/kerr",
	"github.com/twmb/franz-go/pkg/kmsg", "github.com/twmb/franz-go/pkg/kversion", "github.com/twmb/franz-go/pkg/sasl"}

// prometheus is the client of the exposition format.
var prometheus = []string{"github.com/prometheus/client_golang", "github.com/prometheus/client_model", "github.com/prometheus/common"}

// aws is the Kinesis client, with what it is made of.
var aws = []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"}

// core is what edges and drivers build on: the pure machines and their vocabulary.
var core = []string{"record", "codes", "flow", "flow/operators", "watermark", "backpressure", "partitions"}

// with is core and more.
func with(more ...string) []string { return append(append([]string(nil), core...), more...) }

// Table says who may import whom. Arrows point down:
//
//	             cmd/weir                              wiring: flags to ports to services
//	  ┌─────────────┴─────────────┐
//	server                     weirtest                surfaces: for people, for tests
//	  ┌─────────────┬─────────────┐
//	actors                      batch                  drivers: unbounded runs, bounded runs
//	  │     (only through ports)   │
//	sources/*     sinks/*     checkpoint/*  control/*  edges: the only code that meets a vendor (replay wraps them)
//	  └─────────────┬─────────────┘
//	flow   partitions   watermark   backpressure       core: pure; no goroutine, no clock, no I/O
//	                │
//	             record, codes                         vocabulary (metrics: names, beside it)
var Table = []Row{
	// Vocabulary.
	{Package: "codes", Pure: true, Globals: []string{"catalogue"},
		Why: "The catalogue of error codes; everybody needs it, so it needs nobody. It fills itself while it is initialised."},
	{Package: "record", Imports: []string{"codes"}, Pure: true,
		Why: "Values only: whatever they import, every package has."},
	{Package: "secret", Pure: true,
		Why: "Values that are never shown; whoever meets a password has to be able to import it."},
	{Package: "metrics", Imports: []string{"codes", "record"},
		Why: "Names of metrics, beside the vocabulary."},
	{Package: "metrics/expose", Imports: []string{"metrics", "status", "codes", "record"}, Vendors: prometheus,
		Why: "The only package that meets Prometheus' client: it turns a status into samples of the table."},

	// Core.
	{Package: "watermark", Imports: []string{"record", "codes"}, TestVendors: []string{datadriven}, Pure: true,
		Why: "The rules of event time, free of everything else, so that scripts test them."},
	{Package: "backpressure", Imports: []string{"record", "codes"}, TestVendors: []string{datadriven}, Pure: true,
		Why: "The state machine and its credits: who pauses what is decided elsewhere."},
	{Package: "flow/operators", Imports: []string{"record"}, TestVendors: []string{datadriven}, Pure: true,
		Why: "Users implement this interface: it must drag nothing in."},
	{Package: "flow", Imports: []string{"flow/operators", "record", "codes"}, Vendors: []string{yaml}, TestVendors: []string{datadriven, jsonschema}, Pure: true,
		Why: "The only reader of YAML. The schema that it exports is checked by a third party, in tests."},
	{Package: "partitions", Imports: core, Vendors: []string{xxh3}, TestVendors: []string{datadriven}, Pure: true,
		Why: "The machine of one partition joins the core; event ids are remembered as 128-bit hashes."},

	// Sources.
	{Package: "sources", Imports: core,
		Why: "A port names no vendor."},
	{Package: "sources/kafka", Imports: with("sources", "metrics", "internal/kafkaclient"), Vendors: append(franz[:len(franz):len(franz)], zstd, lz4), TestVendors: []string{kfake},
		Why: "One of the two edges that meet franz-go, with the compressions that Kafka's batches have."},
	{Package: "sources/kinesis", Imports: with("sources", "metrics"), Vendors: aws,
		Why: "The edge that meets Kinesis."},
	{Package: "sources/logfile", Imports: with("sources", "internal/atomicfile"),
		Why: "The arrival log needs no vendor."},
	{Package: "sources/snapshot", Imports: with("sources"),
		Why: "Snapshots, as JSON Lines or CSV, are a bounded source without a vendor."},
	{Package: "sources/sourcetest", Imports: with("sources"),
		Why: "One suite for every source: it knows the port alone."},

	// Sinks.
	{Package: "sinks", Imports: core,
		Why: "A port names no vendor."},
	{Package: "sinks/emit", Imports: with("sinks", "control", "internal/atomicfile"),
		Why: "The emit document is made of what the journal's port holds, and written as a whole or not at all."},
	{Package: "sinks/file", Imports: with("sinks"), Vendors: []string{parquetgo},
		Why: "Files need no vendor, but for the format of Parquet."},
	{Package: "sinks/kafka", Imports: with("sinks", "metrics", "internal/kafkaclient"), Vendors: franz, TestVendors: []string{kfake},
		Why: "One of the two edges that meet franz-go."},
	{Package: "sinks/postgres", Imports: with("sinks", "control", "metrics"), Vendors: []string{pgx},
		Why: "The edge that publishes into tables; of control it needs how a store's URL is shown."},
	{Package: "sinks/kinesis", Imports: with("sinks", "metrics"), Vendors: aws,
		Why: "The other edge that meets Kinesis."},
	{Package: "sinks/clickhouse", Imports: with("sinks", "metrics", "secret", "internal/chclient"),
		Why: "The edge that meets ClickHouse: rows of runs, and the staging of the batch worker."},
	{Package: "sinks/sinktest", Imports: with("sinks"),
		Why: "One suite for every sink: it knows the port alone."},

	// Control plane and checkpoints.
	{Package: "control", Imports: core,
		Why: "The port of the journal and its rules."},
	{Package: "control/sqlite", Imports: with("control", "metrics"), Vendors: []string{sqlite},
		Why: "The only package that meets SQLite."},
	{Package: "control/postgres", Imports: with("control", "metrics"), Vendors: []string{pgx},
		Why: "Of the two packages that meet PostgreSQL the one that knows its schema."},
	{Package: "control/controltest", Imports: with("control"), Vendors: []string{porcupine},
		Why: "One suite for every store: it knows the port alone. Histories of leases are checked for linearizability by a third party."},
	{Package: "checkpoint", Imports: with("control"),
		Why: "The port of blob stores, the manifest, and how a journal becomes one."},
	{Package: "checkpoint/dir", Imports: with("checkpoint"),
		Why: "Blobs in a folder."},
	{Package: "checkpoint/postgres", Imports: with("checkpoint", "control", "control/postgres"), Vendors: []string{pgx},
		Why: "Blobs in PostgreSQL."},
	{Package: "checkpoint/s3", Imports: with("checkpoint"),
		Why: "Blobs in object storage."},
	{Package: "checkpoint/checkpointtest", Imports: with("checkpoint"),
		Why: "One suite for every blob store."},

	// Drivers.
	{Package: "replay", Imports: with("sources", "sources/*", "sinks", "sinks/*", "internal/atomicfile"),
		Why: "Builds arrival logs and publishes them: it wraps the edges, through which alone it meets a vendor."},
	{Package: "balance", Imports: with("sources", "control"),
		Why: "Deals partitions to processes by leases, for logs whose service has no groups: it knows ports alone."},
	{Package: "handoff", Imports: with("control", "checkpoint", "sources"),
		Why: "The manifest by which a new owner, or a stream after a batch, begins exactly where the other ended."},
	{Package: "internal/drill", Imports: []string{"*"}, Vendors: append([]string{pgx, parquetgo}, franz...),
		Why: "The drill of two owners: real processes, planned faults, one check for each promise. Its readers ask the broker for the group's offsets, and the targets of sinks for their rows."},
	{Package: "internal/sim/invariant", Imports: with("control"),
		Why: "One checker for each promise, over a recorded history: it knows ports and machines, and nothing of who recorded."},
	{Package: "internal/sim", Imports: []string{"*"},
		Why: "The engine on virtual time with a seed's faults, and one checker for each invariant."},
	{Package: "batch", Imports: with("sources", "sinks", "sinks/emit"),
		Why: "A bounded run needs no actors and no store."},
	{Package: "batch/catalog", Imports: with("sources", "sources/snapshot"),
		Why: "Names of flows and snapshots, registered from folders: what a request may ask for."},
	{Package: "batch/worker", Imports: with("batch", "batch/catalog", "checkpoint", "control", "sinks", "sinks/emit"),
		Why: "Runs what was admitted, through ports: which stores stand behind them is chosen by cmd."},
	{Package: "actors", Imports: with("actors/shell", "sources", "sinks", "control", "checkpoint", "metrics"),
		Why: "Ports only: what stands behind them is chosen by cmd."},
	{Package: "actors/group", Imports: with("actors", "sources", "control"),
		Why: "One engine for each partition that this process is given; who gives is a port."},
	{Package: "actors/reshard", Imports: with("actors", "actors/group", "sources", "control"), TestVendors: aws,
		Why: "Follows a log whose partitions are split and merged, through ports."},
	{Package: "consumer", Imports: with("sources", "sinks", "control"),
		Why: "Runs a function of the user over a log: ports only, and no flow, so it needs no actors."},
	{Package: "actors/shell", Imports: []string{"record", "codes"}, Vendors: []string{protoactor},
		Why: "The only package that meets protoactor."},
	{Package: "actors/actortest", Imports: []string{"actors/shell", "record", "codes"},
		Why: "The kit of actor tests works on any actor of the shell."},

	{Package: "status", Imports: []string{"record", "codes"}, Pure: true,
		Why: "What a run does, as a value, and why, in words: whoever shows it must be able to import it."},
	{Package: "status/board", Imports: with("status", "actors", "control", "sources", "sinks"),
		Why: "Keeps a status up to date from what the engine tells."},

	// Surfaces.
	{Package: "server", Imports: with("internal/secretfile", "sources", "sinks", "control", "checkpoint", "metrics", "status", "actors", "batch"), TestVendors: []string{jsonschema},
		Why: "Shows what the drivers report."},
	{Package: "weirtest", Imports: []string{"*"},
		Why: "The kit of flow authors runs the real engine."},
	{Package: ".", Imports: []string{"*"},
		Why: "The root is the way in for a newcomer."},
	{Package: "cmd/weir", Imports: []string{"*"}, Vendors: []string{cobra}, TestVendors: append(append([]string{parquetgo}, aws...), franz...),
		Why: "Wiring: the only place that chooses edges."},

	// What the project needs for itself.
	{Package: "internal/atomicfile", Imports: []string{"codes"},
		Why: "Whole-or-nothing files, for every edge that writes one."},
	{Package: "internal/devbroker", Imports: []string{"codes", "record"}, Vendors: append([]string{kfake}, franz...),
		Why: "The embedded broker of development: kfake, and franz-go to ask it."},
	{Package: "internal/devbroker/child", Imports: []string{"internal/devbroker", "codes"},
		Why: "The broker in a process of its own, for benchmarks and drills."},
	{Package: "internal/kafkaclient", Imports: []string{"codes", "secret"}, Vendors: franz,
		Why: "What both Kafka edges share: options, log, and what stands behind a broker that does not answer."},
	{Package: "internal/fixture",
		Why: "The golden input, embedded."},
	{Package: "internal/heap",
		Why: "Tunes the garbage collector of a daemon."},
	{Package: "internal/parity", Imports: []string{"*"}, TestVendors: aws,
		Why: "Runs all three modes and compares them."},
	{Package: "internal/bench", Imports: []string{"*"}, Vendors: append([]string{xxh3}, franz...),
		Why: "Its baselines are the loops that a user would write by hand against the vendors."},
	{Package: "internal/gendocs", Imports: with("metrics", "server"),
		Why: "Generates docs from the catalogues."},
	{Package: "internal/gendocs/cmd", Imports: []string{"internal/gendocs"},
		Why: "The command for it."},
	{Package: "internal/chclient", Imports: []string{"secret"},
		Why: "ClickHouse's native protocol, for the edge and its tests: no vendor's client fits beside the others, see decision 0033."},
	{Package: "internal/chtest", Imports: []string{"internal/chclient"},
		Why: "A ClickHouse server for tests: it makes databases and knows nothing of what is in them."},
	{Package: "internal/pgtest", Vendors: []string{pgx},
		Why: "A PostgreSQL server for tests: it prepares databases and knows nothing of what is in them."},
	{Package: "internal/kafkatest", TestVendors: franz,
		Why: "An Apache Kafka broker for tests: it starts a process and knows nothing of what is in it."},
	{Package: "internal/kinesistest/emulator", Vendors: aws,
		Why: "A Kinesis emulator for tests and the demo: it starts a process, and has a client for it."},
	{Package: "internal/kinesistest", Imports: []string{"internal/kinesistest/emulator"}, TestVendors: aws,
		Why: "A Kinesis emulator for tests: it starts a process and knows nothing of what is in it."},
	{Package: "internal/secretfile",
		Why: "Whether a file is kept as a secret: the server and the command line ask."},
	{Package: "internal/deploytest", TestVendors: []string{yaml, pgx},
		Why: "Checks what stands in deploy against the binary and the table of metrics."},
	{Package: "internal/testreport",
		Why: "Runs the tests and counts what was skipped."},
	{Package: "internal/tidy",
		Why: "This table."},
}
