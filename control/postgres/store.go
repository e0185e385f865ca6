package postgres

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// Config says which database to open and how.
type Config struct {
	// URL is postgres://user:password@host/database?…, or what libpq takes as key=value pairs. It never appears in an error.
	URL string
	// TTL is the shortest term of a lease that is usual here; server-side time-outs are half of it. A shorter lease is served with shorter
	// time-outs for its own statements. Defaults to 10 s.
	TTL time.Duration
	// MaxConns bounds the connections. Defaults to 16.
	MaxConns int32
	// StatementTimeout bounds a statement, but for reading. Defaults to 30 s.
	StatementTimeout time.Duration
	// ConnectTimeout bounds connecting. Defaults to 5 s.
	ConnectTimeout time.Duration
	// ApplicationName is shown in pg_stat_activity. Defaults to weir.
	ApplicationName string
	// BulkRows is the most publications of one call that are sent as arrays; more are copied. Defaults to 4000.
	BulkRows int

	// Hook, unless nil, is called between any two steps of a write, with the step's name: "begin" before anything is sent, "locked" when the
	// lease and the run of a transaction are locked and verified, "flush" between two parts of a large one, "joined" when those have written who
	// joined the run, "commit" just before the last flush,
	// which ends with COMMIT, and "committed". What it returns ends the write there. It is for drills and tests, which stop, kill or fail there;
	// a write of one statement has only the first and the last step.
	Hook func(step string) error

	// now is the clock of deadlines, time.Now.
	now  func() time.Time
	dial pgconn.DialFunc
	// grace is for tests; it defaults to the constant.
	grace time.Duration
}

func (c *Config) defaults() {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&c.TTL, 10*time.Second)
	set(&c.StatementTimeout, 30*time.Second)
	set(&c.ConnectTimeout, 5*time.Second)
	set(&c.grace, grace)
	if c.MaxConns <= 0 {
		c.MaxConns = 16
	}
	if c.ApplicationName == "" {
		c.ApplicationName = "weir"
	}
	if c.BulkRows <= 0 {
		c.BulkRows = 4000
	}
	if c.now == nil {
		c.now = time.Now
	}
}

// Store is a control plane in PostgreSQL: it implements control.ControlStore. All methods may be called from several goroutines.
type Store struct {
	cfg  Config
	pool *pgxpool.Pool
	// name is the URL without its secrets.
	name     string
	warnings []string
	// closing ends what listens; listeners waits for it.
	closing   context.Context
	close     context.CancelFunc
	mu        sync.Mutex
	listeners sync.WaitGroup
	joined    joined
}

var _ control.ControlStore = (*Store)(nil)

// Open connects and checks that the server, its settings, the role and the schema are fit. It never changes the schema. It fails with
// StoreUnavailable (not reachable, read-only, too many connections), StoreDenied (password, rights), StoreInvalid (the URL), StoreUnsupported
// (the server's version), ConfigInvalid (settings that make promises void), StoreOlder or StoreNewer (the schema).
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg.defaults()
	s := &Store{cfg: cfg, name: redacted(cfg.URL)}
	pc, err := pgxpool.ParseConfig(cfg.URL)
	if err != nil {
		return nil, badURL(s.name)
	}
	pc.MaxConns, pc.MinConns = cfg.MaxConns, 0
	s.settings(pc.ConnConfig)
	pc.AfterConnect = s.fit
	s.closing, s.close = context.WithCancel(context.Background())
	if s.pool, err = pgxpool.NewWithConfig(ctx, pc); err != nil {
		s.close()
		return nil, s.fail(ctx, "open", err)
	}
	if err := s.prepare(ctx); err != nil {
		err = s.fail(ctx, "open", err)
		_ = s.Close() // the reason to give up says more
		return nil, err
	}
	return s, nil
}

func badURL(name string) error {
	return codes.New(codes.StoreInvalid, "store %s: the connection string cannot be read; write postgres://user@host/database", name)
}

// redacted is a connection string without its secrets.
func redacted(url string) string {
	st, _ := control.ParseStore(url) // whatever it thinks of it, it names nothing secret
	if name := st.Redacted(); name != "" {
		return name
	}
	return "postgres"
}

// settings pins what a session depends on, whatever the URL, the role or the database say.
func (s *Store) settings(c *pgx.ConnConfig) {
	p := c.RuntimeParams
	for name, value := range s.pinned() {
		p[name] = value
	}
	c.ConnectTimeout = s.cfg.ConnectTimeout
	if s.cfg.dial != nil {
		c.DialFunc = s.cfg.dial
	}
}

func (s *Store) pinned() map[string]string {
	half := millis(s.cfg.TTL / 2)
	return map[string]string{
		"application_name": s.cfg.ApplicationName,
		// pg_temp last: nothing of ours is looked for there by an unqualified name.
		"search_path":                         "pg_catalog, weir, pg_temp",
		"timezone":                            "UTC",
		"default_transaction_isolation":       "read committed",
		"lock_timeout":                        half,
		"idle_in_transaction_session_timeout": half,
		"statement_timeout":                   millis(s.cfg.StatementTimeout),
		// A client that died while it queued must not get the lease after all.
		"client_connection_check_interval": millis(min(s.cfg.TTL/4, time.Second)),
	}
}

// millis writes a duration as whole milliseconds, at least 1: 0 would be "never".
func millis(d time.Duration) string { return strconv.FormatInt(max(1, d.Milliseconds()), 10) }

// lockMillis is the lock time-out of a statement under a lease: "" when the session's is short enough, or the lease does not know its term.
func (s *Store) lockMillis(ttl time.Duration) string {
	if ttl >= s.cfg.TTL || ttl <= 0 {
		return ""
	}
	return millis(ttl / 2)
}

const selectSettings = `SELECT current_setting('server_version_num')::int, current_setting('synchronous_commit'), pg_is_in_recovery(), current_setting('transaction_read_only'),
	current_setting('default_transaction_isolation'), (extract(epoch FROM current_setting('lock_timeout')::interval) * 1000)::bigint,
	(extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000)::bigint,
	(extract(epoch FROM current_setting('client_connection_check_interval')::interval) * 1000)::bigint`

// fit checks each new connection: a pooler, a role or a server that was swapped may have changed what was asked for.
func (s *Store) fit(ctx context.Context, conn *pgx.Conn) error {
	if v := conn.PgConn().ParameterStatus("server_version"); v != "" {
		if major, err := strconv.Atoi(leadingDigits(v)); err == nil && major < 14 {
			return codes.New(codes.StoreUnsupported, "store %s: the server is PostgreSQL %s; 14 or later is needed", s.name, v)
		}
	}
	var version int
	var commit, readOnly, isolation string
	var recovering bool
	var lock, idle, check int64
	err := conn.QueryRow(ctx, selectSettings).Scan(&version, &commit, &recovering, &readOnly, &isolation, &lock, &idle, &check)
	if err != nil {
		return err
	}
	half := max(1, (s.cfg.TTL / 2).Milliseconds())
	switch {
	case version < 140000:
		return codes.New(codes.StoreUnsupported, "store %s: the server's version is %d; PostgreSQL 14 or later is needed", s.name, version)
	case recovering || readOnly == "on":
		return codes.New(codes.StoreUnavailable, "store %s: the server is read-only (a standby, or set so); weir needs the primary", s.name)
	case commit == "off":
		return codes.New(codes.ConfigInvalid, "store %s: synchronous_commit is off, so a commit that was acknowledged could be lost, and a fence token go back; set it to on for this role", s.name)
	case isolation != "read committed":
		return codes.New(codes.ConfigInvalid, "store %s: the default isolation is %q in spite of what the session asked for; connect without a pooler that drops settings", s.name, isolation)
	case lock <= 0 || lock > half || idle <= 0 || idle > half || check <= 0:
		return codes.New(codes.ConfigInvalid, "store %s: time-outs are lock %d ms, idle in transaction %d ms, connection check %d ms, where 1 to %d ms were asked for; connect without a pooler that drops settings", s.name, lock, idle, check, half)
	}
	return nil
}

func leadingDigits(s string) string {
	for i, r := range s {
		if r < '0' || r > '9' {
			return s[:i]
		}
	}
	return s
}

// prepare looks at the role and the schema.
func (s *Store) prepare(ctx context.Context) error {
	return s.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		var user, fsync string
		var super bool
		err := conn.QueryRow(ctx, `SELECT current_user, rolsuper OR rolbypassrls, current_setting('fsync') FROM pg_roles WHERE rolname = current_user`).Scan(&user, &super, &fsync)
		if err != nil {
			return err
		}
		if super {
			s.warnings = append(s.warnings, fmt.Sprintf("store %s: the role %q is a superuser; give weir a login that has only weir_runtime", s.name, user))
		}
		if fsync == "off" {
			s.warnings = append(s.warnings, fmt.Sprintf("store %s: the server runs with fsync off: a crash of its machine can lose everything", s.name))
		}
		return checkSchema(ctx, conn.Conn(), s.name)
	})
}

// Warnings are what Open found that is dangerous and not an error.
func (s *Store) Warnings() []string { return s.warnings }

// Close closes all connections, and ends the channels of Wake.
func (s *Store) Close() error {
	s.mu.Lock()
	s.close()
	s.mu.Unlock()
	s.listeners.Wait()
	s.pool.Close()
	return nil
}

// step lets a drill or a test act at a point of a write.
func (s *Store) step(name string, _ *pgx.Conn) error {
	if s.cfg.Hook == nil {
		return nil
	}
	return s.cfg.Hook(name)
}

// attempts bounds how often a write is tried that a deadlock or a serialisation failure undid.
const attempts = 8

// write runs fn, which commits by itself, on a connection. fn may run again when the server has certainly undone what it did.
func (s *Store) write(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	for n := 1; ; n++ {
		err := s.attempt(ctx, fn)
		if err == nil || n == attempts || !undone(err) {
			return err
		}
		if err := pause(ctx, n); err != nil {
			return err
		}
	}
}

func (s *Store) attempt(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := s.step("begin", conn.Conn()); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	defer patient(ctx, conn.Conn(), s.cfg.grace)()
	if err := fn(context.WithoutCancel(ctx), conn.Conn()); err != nil {
		return err
	}
	return s.step("committed", conn.Conn())
}

// read runs fn in a transaction that sees one consistent moment. It is not bounded by time-outs: how long it takes is up to the reader, and
// it holds no lock that anybody waits for.
func (s *Store) read(ctx context.Context, fn func(tx pgx.Tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // it has changed nothing
	if _, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', '0', true), set_config('idle_in_transaction_session_timeout', '0', true)`); err != nil {
		return err
	}
	return fn(tx)
}
