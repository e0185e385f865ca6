package clickhouse

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/chclient"
	"github.com/weirstream/weir/secret"
	"github.com/weirstream/weir/sinks"
)

// Config of a sink.
type Config struct {
	// URL is clickhouse://user:password@host:port/database, with ?secure=true for TLS and &ca=FILE for another authority than the system's. The port
	// defaults to 9000, or 9440 with TLS, the database to default. It never appears in an error. Required.
	URL string
	// Table is "table" or "database.table", each of lower-case letters, digits and underscores: the name of the view. Required.
	Table string
	// Create makes the tables and the view if they are not there.
	Create bool
	// ConnectTimeout bounds connecting, StatementTimeout a statement, the writing of one block of rows among them. They default to 5 s and 30 s.
	ConnectTimeout, StatementTimeout time.Duration
	// Hook, unless nil, is called between any two steps; what it returns ends the write there. It is for drills and tests.
	Hook func(step string) error
}

// Sink is a view and its two tables.
type Sink struct {
	cfg     Config
	connect chclient.Config
	// name is what errors call it.
	name           string
	database, base string
}

var _ sinks.Sink = (*Sink)(nil)

// allowed are the names that are used in statements; quoting alone would let too much through that no other tool can live with.
var (
	allowed       = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,52}$`)
	allowedColumn = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)
)

// New makes a sink; nothing is connected before Open. Errors: CONFIG_INVALID, FILE_MISSING for the authority's certificates.
func New(cfg Config) (*Sink, error) {
	connect, shown, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	database, table, found := strings.Cut(cfg.Table, ".")
	if !found {
		database, table = connect.Database, cfg.Table
	}
	if !allowed.MatchString(database) || !allowed.MatchString(table) {
		return nil, codes.New(codes.ConfigInvalid, "a sink in ClickHouse cannot use the table name %q of the database %q: write table or database.table, each of 1 to 53 lower-case letters, digits and underscores", table, database)
	}
	connect.Database = database
	connect.ConnectTimeout, connect.Timeout = cfg.ConnectTimeout, cfg.StatementTimeout
	cfg.URL = "" // it has the password
	if cfg.Hook == nil {
		cfg.Hook = func(string) error { return nil }
	}
	return &Sink{cfg: cfg, connect: connect, name: "sink " + shown + ", table " + database + "." + table, database: database, base: table}, nil
}

const urlForm = "write clickhouse://user:password@host:9000/database, or host:9440/database?secure=true"

// parseURL reads a connection string. shown has nothing secret.
func parseURL(text string) (cfg chclient.Config, shown string, err error) {
	wrong := func(reason string) (chclient.Config, string, error) {
		return cfg, "", codes.New(codes.ConfigInvalid, "the URL of a sink in ClickHouse %s: %s", reason, urlForm)
	}
	u, parseErr := url.Parse(text)
	switch {
	case text == "":
		return wrong("is missing")
	case parseErr != nil || u.Scheme != "clickhouse" || u.Hostname() == "" || u.Fragment != "" || strings.Contains(strings.TrimPrefix(u.Path, "/"), "/"):
		return wrong("cannot be read")
	}
	query, parseErr := url.ParseQuery(u.RawQuery)
	if parseErr != nil {
		return wrong("cannot be read")
	}
	for name := range query {
		if name != "secure" && name != "ca" {
			return wrong("has a parameter other than secure and ca")
		}
	}
	secure, ca := query.Get("secure"), query.Get("ca")
	switch {
	case secure != "" && secure != "true" && secure != "false":
		return wrong("has secure with another value than true or false")
	case ca != "" && secure != "true":
		return wrong("names an authority and does not say secure=true")
	}
	port := u.Port()
	if port == "" {
		port = "9000"
		if secure == "true" {
			port = "9440"
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return wrong("has a port that is none")
	}
	cfg = chclient.Config{Address: net.JoinHostPort(u.Hostname(), port), Database: strings.TrimPrefix(u.Path, "/"), User: u.User.Username()}
	if cfg.Database == "" {
		cfg.Database = "default"
	}
	password, _ := u.User.Password()
	cfg.Password = secret.New(password)
	if secure == "true" {
		if cfg.TLS, err = secured(ca); err != nil {
			return cfg, "", err
		}
	}
	return cfg, "clickhouse://" + cfg.Address + "/" + cfg.Database, nil
}

func secured(ca string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca == "" {
		return cfg, nil
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, codes.New(codes.FileMissing, "the authority of a sink in ClickHouse cannot be read: %w", err)
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(text) {
		return nil, codes.New(codes.ConfigInvalid, "%s has no certificate in PEM", ca)
	}
	return cfg, nil
}

// Features implements sinks.Sink.
func (s *Sink) Features() sinks.Features {
	return sinks.Features{Once: true, ReadBack: true, FencedByTarget: true, IdempotentByKey: true}
}

// Open implements sinks.Sink.
func (s *Sink) Open(ctx context.Context, target sinks.Target) (sinks.Writer, error) {
	if err := s.names(target.Outputs); err != nil {
		return nil, err
	}
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{s: s, to: target, conn: conn, encode: newEncoder(target), lost: map[int32]int64{}}
	at, err := w.open(ctx)
	if err != nil {
		_ = w.Close() // the reason to give up says more
		return nil, err
	}
	w.progress = sinks.NewProgress(len(target.Outputs), at)
	return w, nil
}

func (s *Sink) dial(ctx context.Context) (*chclient.Conn, error) {
	conn, err := chclient.Connect(ctx, s.connect)
	return conn, s.fail(ctx, "connecting", err)
}

type column struct{ name, kind string }

// fixed are the columns that every table has, progressColumns those of the other one.
var (
	fixed = []column{
		{"run_id", "String"}, {"partition", "Int32"}, {"row_number", "Int64"}, {"event_time", "DateTime"}, {"event_nanos", "Int64"},
		{"event_id", "String"}, {"event_key", "String"}, {"version", "UInt64"},
	}
	progressColumns = []column{{"run_id", "String"}, {"partition", "Int32"}, {"fence_token", "UInt64"}, {"rows_published", "UInt64"}, sequenceColumn}
	// sequenceColumn came later: a table without it gets it from whoever may give it one.
	sequenceColumn = column{"sequence", "String"}
)

const outputKind = "Nullable(Float64)"

func columns(outputs []string) []column {
	all := slices.Clone(fixed)
	for _, name := range outputs {
		all = append(all, column{name, outputKind})
	}
	return all
}

// names refuses outputs that cannot be columns.
func (s *Sink) names(outputs []string) error {
	for _, name := range outputs {
		if !allowedColumn.MatchString(name) {
			return codes.New(codes.SinkInvalid, "%s: the output %q cannot be a column: rename it in the flow to at most 63 letters, digits and underscores", s.name, name)
		}
		if slices.ContainsFunc(fixed, func(c column) bool { return c.name == name }) || name == "rows_published" {
			return codes.New(codes.SinkInvalid, "%s: the output %q has the name of a column that every table has: rename it in the flow", s.name, name)
		}
	}
	return nil
}

// The names of a sink's tables and view, quoted.
func (s *Sink) rows() string     { return s.table("_rows") }
func (s *Sink) progress() string { return s.table("_progress") }

func (s *Sink) table(suffix string) string { return "`" + s.database + "`.`" + s.base + suffix + "`" }

// list names columns, quoted, with commas between.
func list(cols []column) string {
	var b strings.Builder
	for i, c := range cols {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("`" + c.name + "`")
	}
	return b.String()
}

// order are the columns by which rows are the same.
func order(to sinks.Target) string {
	if to.Revised {
		return "run_id, event_key, event_nanos"
	}
	return "run_id, partition, row_number"
}

// Definition are the statements that make the tables and the view for a target.
func (s *Sink) Definition(to sinks.Target) []string {
	all := columns(to.Outputs)
	view := "SELECT " + list(all) + " FROM " + s.rows() + " FINAL"
	if !to.Revised {
		view += "\n  ALL INNER JOIN (SELECT run_id, partition, tupleElement(max((fence_token, rows_published)), 2) AS rows_published FROM " + s.progress() + " GROUP BY run_id, partition) AS published" +
			"\n  USING (run_id, partition) WHERE row_number < rows_published"
	}
	return []string{
		"CREATE TABLE IF NOT EXISTS " + s.rows() + " (\n" + declare(all) + "\n) ENGINE = ReplacingMergeTree(version) ORDER BY (" + order(to) + ")",
		"CREATE TABLE IF NOT EXISTS " + s.progress() + " (\n" + declare(progressColumns) + "\n) ENGINE = ReplacingMergeTree(rows_published) ORDER BY (run_id, partition, fence_token)",
		"CREATE VIEW IF NOT EXISTS " + s.table("") + " AS " + view,
	}
}
