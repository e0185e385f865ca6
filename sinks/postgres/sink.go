package postgres

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/sinks"
)

// Config of a sink.
type Config struct {
	// URL is postgres://user:password@host/database?…. It never appears in an error. Required.
	URL string
	// Table is "table" or "schema.table" (schema public by default), each of lower-case letters, digits and underscores. Required.
	Table string
	// Create makes the two tables if they are not there.
	Create bool
	// ConnectTimeout bounds connecting, StatementTimeout a statement (the copying of one publication among them), IdleTimeout how long the server
	// lets a transaction stand still, LockTimeout how long another owner's is waited for, which has to be longer. They default to 5 s, 30 s, 5 s and 10 s.
	ConnectTimeout, StatementTimeout, IdleTimeout, LockTimeout time.Duration
	// Hook, unless nil, is called between any two steps; what it returns ends the write there. It is for drills and tests.
	Hook func(step string) error
}

// Sink is a table.
type Sink struct {
	cfg Config
	// name is what errors call it.
	name            string
	table, progress string // quoted
	schema, base    string
	dial            pgconn.DialFunc
}

var _ sinks.Sink = (*Sink)(nil)

// allowed are the names that are used in statements; quoting alone would let too much through that no other tool can live with.
var (
	allowed       = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,52}$`)
	allowedColumn = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)
)

// New makes a sink; nothing is connected before Open. Errors: CONFIG_INVALID.
func New(cfg Config) (*Sink, error) {
	schema, table, found := strings.Cut(cfg.Table, ".")
	if !found {
		schema, table = "public", cfg.Table
	}
	switch {
	case cfg.URL == "":
		return nil, codes.New(codes.ConfigInvalid, "a sink in PostgreSQL needs a URL")
	case !allowed.MatchString(schema) || !allowed.MatchString(table):
		return nil, codes.New(codes.ConfigInvalid, "a sink in PostgreSQL cannot use the table name %q: write table or schema.table, each of 1 to 53 lower-case letters, digits and underscores", cfg.Table)
	}
	for _, d := range []struct {
		to *time.Duration
		by time.Duration
	}{{&cfg.ConnectTimeout, 5 * time.Second}, {&cfg.StatementTimeout, 30 * time.Second}, {&cfg.IdleTimeout, 5 * time.Second}, {&cfg.LockTimeout, 10 * time.Second}} {
		if *d.to <= 0 {
			*d.to = d.by
		}
	}
	if cfg.LockTimeout <= cfg.IdleTimeout {
		return nil, codes.New(codes.ConfigInvalid, "the lock time-out (%v) must be longer than the idle time-out (%v), or a heir would give up before a stopped owner is ended", cfg.LockTimeout, cfg.IdleTimeout)
	}
	if cfg.Hook == nil {
		cfg.Hook = func(string) error { return nil }
	}
	store, _ := control.ParseStore(cfg.URL) // whatever it thinks of it, it names nothing secret
	name := store.Redacted()
	if name == "" {
		name = "postgres"
	}
	return &Sink{
		cfg: cfg, name: "sink " + name + ", table " + schema + "." + table, schema: schema, base: table,
		table: quote(schema) + "." + quote(table), progress: quote(schema) + "." + quote(table+"_progress"),
	}, nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// Features implements sinks.Sink.
func (s *Sink) Features() sinks.Features {
	return sinks.Features{Once: true, ReadBack: true, FencedByTarget: true, IdempotentByKey: true, AppendOnly: true}
}

// Open implements sinks.Sink.
func (s *Sink) Open(ctx context.Context, target sinks.Target) (sinks.Writer, error) {
	w, err := s.open(ctx, target)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (s *Sink) open(ctx context.Context, target sinks.Target) (*writer, error) {
	if err := s.names(target.Outputs); err != nil {
		return nil, err
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{s: s, to: target, conn: conn, copy: s.copyStatement(target)}
	if target.Revised {
		w.merge = s.mergeStatement(target)
	}
	at, err := w.open(ctx)
	if err != nil {
		_ = w.Close() // the reason to give up says more
		return nil, err
	}
	w.progress = sinks.NewProgress(len(target.Outputs), at)
	return w, nil
}

// fixed are the columns that every table has.
var fixed = []column{
	{"run_id", "text"}, {"partition", "integer"}, {"row_number", "bigint"}, {"event_time", "timestamp with time zone"}, {"event_nanos", "bigint"},
	{"event_id", "text"}, {"event_key", "text"},
}

type column struct{ name, kind string }

// fixedOf are the columns of a table of rows, or of one of late events: those have their whole text in place of id and key, which need not be texts. It is of a
// type that takes every JSON document as it is.
func fixedOf(to sinks.Target) []column {
	if to.Entries {
		return append(slices.Clone(fixed[:len(fixed)-2]), column{"entry", "json"})
	}
	return fixed
}

func columns(to sinks.Target) []column {
	all := slices.Clone(fixedOf(to))
	for _, name := range to.Outputs {
		all = append(all, column{name, "double precision"})
	}
	return all
}

// names refuses outputs that cannot be columns.
func (s *Sink) names(outputs []string) error {
	for _, name := range outputs {
		if !allowedColumn.MatchString(name) {
			return codes.New(codes.SinkInvalid, "%s: the output %q cannot be a column: rename it in the flow to at most 63 letters, digits and underscores", s.name, name)
		}
		if slices.ContainsFunc(fixed, func(c column) bool { return c.name == name }) {
			return codes.New(codes.SinkInvalid, "%s: the output %q has the name of a column that every table has: rename it in the flow", s.name, name)
		}
	}
	return nil
}

func (s *Sink) connect(ctx context.Context) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(s.cfg.URL)
	if err != nil {
		return nil, codes.New(codes.ConfigInvalid, "%s: the URL cannot be read; write postgres://user@host/database", s.name)
	}
	cfg.ConnectTimeout = s.cfg.ConnectTimeout
	if s.dial != nil {
		cfg.DialFunc = s.dial
	}
	for name, value := range map[string]string{
		"application_name": "weir-sink", "search_path": "pg_catalog, pg_temp", "timezone": "UTC", "default_transaction_isolation": "read committed",
		"lock_timeout": millis(s.cfg.LockTimeout), "idle_in_transaction_session_timeout": millis(s.cfg.IdleTimeout),
		"statement_timeout": millis(s.cfg.StatementTimeout), "client_connection_check_interval": "1000",
	} {
		cfg.RuntimeParams[name] = value
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	return conn, s.fail(ctx, "connecting", err)
}

func millis(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }

// copyStatement names every column, so that more of them and another order do no harm.
func (s *Sink) copyStatement(to sinks.Target) string {
	into := s.table
	if to.Revised {
		into = "pg_temp." + stageOf(to)
	}
	return "COPY " + into + " (" + strings.Join(quotedColumns(to), ", ") + ") FROM STDIN (FORMAT binary)"
}

func quotedColumns(to sinks.Target) (names []string) {
	for _, c := range columns(to) {
		names = append(names, quote(c.name))
	}
	return names
}

// definition are the statements that make the tables for a target.
func (s *Sink) definition(to sinks.Target) string {
	var b strings.Builder
	b.WriteString("CREATE TABLE IF NOT EXISTS " + s.table + " (\n")
	for _, c := range columns(to) {
		b.WriteString("  " + quote(c.name) + " " + c.kind)
		if slices.Contains(fixedOf(to), c) {
			b.WriteString(" NOT NULL")
		}
		b.WriteString(",\n")
	}
	b.WriteString("  PRIMARY KEY (" + strings.Join(quotedAll(keyOf(to)), ", ") + "));\n")
	b.WriteString("CREATE TABLE IF NOT EXISTS " + s.progress + " (\n" +
		"  \"run_id\" text NOT NULL,\n  \"partition\" integer NOT NULL,\n  \"rows_published\" bigint NOT NULL,\n  \"fence_token\" bigint NOT NULL,\n  \"sequence\" text,\n" +
		"  PRIMARY KEY (\"run_id\", \"partition\"));")
	return b.String()
}
