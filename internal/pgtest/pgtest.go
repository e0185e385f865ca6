package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config says how the server of a test binary is started.
type Config struct {
	// NoSync turns durability off, for tests that only need speed.
	NoSync bool
	// Settings are added to the server's configuration, as name → value.
	Settings map[string]string
}

// DB is a test's own database, by the URLs of three roles.
type DB struct {
	// Name of the database.
	Name string
	// Super may do everything: for preparing and damaging.
	Super string
	// Runtime and Reader are logins that have only the group role of that name; they exist when prepare has created those roles.
	Runtime, Reader string
}

// The logins of DB, and the groups that they are members of.
const (
	RuntimeLogin, runtimeGroup = "weir_test_runtime", "weir_runtime"
	ReaderLogin, readerGroup   = "weir_test_reader", "weir_reader"
	// PasswordLogin is the only login that is asked for a password on a private cluster; Password is it.
	PasswordLogin, Password = "weir_test_password", "canary-3f9b61c7"
)

// server is the server of this test binary.
type server struct {
	cfg  Config
	once sync.Once
	err  error
	// super is the URL of the superuser, with the database postgres.
	super    *url.URL
	stop     func()
	template struct {
		once sync.Once
		name string
		err  error
	}
	next    atomic.Int64
	prefix  string
	foreign bool
}

var shared = &server{}

// errNone means that there is no server to be had here; tests are skipped with its text.
type errNone struct{ reason string }

func (e errNone) Error() string { return e.reason }

// Run runs the tests of a binary and ends the server afterwards. It returns the exit code.
func Run(m *testing.M, cfg Config) int {
	shared.cfg = cfg
	code := m.Run()
	shared.close()
	return code
}

// Database creates a database for a test and drops it at its end. The first call's prepare is given an empty database, by a superuser's
// URL; every database is a copy of it. With nil it stays empty.
func Database(t testing.TB, prepare func(ctx context.Context, url string) error) DB {
	t.Helper()
	s := started(t)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	template := "template1"
	if prepare != nil {
		s.template.once.Do(func() { s.template.name, s.template.err = s.prepared(ctx, prepare) })
		if s.template.err != nil {
			t.Fatalf("pgtest: preparing the template: %v", s.template.err)
		}
		template = s.template.name
	}
	name := fmt.Sprintf("%s_%d", s.prefix, s.next.Add(1))
	if err := s.exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s", name, template)); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.exec(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", name)); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return DB{Name: name, Super: s.as("", name), Runtime: s.as(RuntimeLogin, name), Reader: s.as(ReaderLogin, name)}
}

// URL replaces the user of a database's URL, and its password by none.
func (db DB) URL(user string) string {
	u, err := url.Parse(db.Super)
	if err != nil {
		panic(err) // it was made here
	}
	return withUser(u, user, db.Name)
}

// Private says whether the server was started by this package; it is known once a database was made.
func Private() bool { return !shared.foreign }

// Connect opens a connection that is closed at the end of the test.
func Connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the test may have closed or killed it
	return conn
}

// started is the running server; without one the test is skipped, or fails with CI set.
func started(t testing.TB) *server {
	t.Helper()
	shared.once.Do(func() { shared.err = shared.start() })
	var none errNone
	switch {
	case errors.As(shared.err, &none) && os.Getenv("CI") == "":
		t.Skipf("PostgreSQL: %s", none.reason)
	case shared.err != nil:
		t.Fatalf("pgtest: %v", shared.err)
	}
	return shared
}

func (s *server) start() error {
	var id [4]byte
	rand.Read(id[:])
	s.prefix = fmt.Sprintf("weir_test_%x", id)
	if given := os.Getenv("WEIR_TEST_POSTGRES"); given != "" {
		u, err := url.Parse(given)
		if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			return errors.New("WEIR_TEST_POSTGRES is not a URL such as postgres://postgres@127.0.0.1/postgres")
		}
		s.super, s.stop, s.foreign = u, func() {}, true
		return nil
	}
	return s.startCluster()
}

func (s *server) close() {
	if s.stop == nil {
		return
	}
	if s.foreign && s.template.name != "" {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.exec(ctx, fmt.Sprintf("DROP DATABASE IF EXISTS %s WITH (FORCE)", s.template.name)); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest:", err)
		}
	}
	s.stop()
}

// prepared makes the template database.
func (s *server) prepared(ctx context.Context, prepare func(ctx context.Context, url string) error) (string, error) {
	name := s.prefix + "_template"
	if err := s.exec(ctx, "CREATE DATABASE "+name); err != nil {
		return name, err
	}
	if err := prepare(ctx, s.as("", name)); err != nil {
		return name, err
	}
	return name, s.exec(ctx, login(RuntimeLogin, runtimeGroup), login(ReaderLogin, readerGroup))
}

// login is a statement that makes a role with the rights of a group, if the group exists. Another test binary may do the same on a
// server that is shared.
func login(name, group string) string {
	return fmt.Sprintf(`DO $$ BEGIN
	  IF EXISTS (SELECT FROM pg_roles WHERE rolname = '%[2]s') THEN
	    BEGIN CREATE ROLE %[1]s LOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;
	    GRANT %[2]s TO %[1]s;
	  END IF;
	END $$`, name, group)
}

// exec runs statements as the superuser in the database postgres.
func (s *server) exec(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.super.String())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, text := range statements {
		if _, err := conn.Exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) as(user, database string) string { return withUser(s.super, user, database) }

// withUser is u with another user ("" keeps it) and database.
func withUser(u *url.URL, user, database string) string {
	v := *u
	v.Path = "/" + database
	if user != "" {
		q := v.Query()
		q.Del("user")
		q.Del("password")
		v.RawQuery = q.Encode()
		v.User = url.User(user)
	}
	return v.String()
}

// versioned finds the version in a folder such as /usr/lib/postgresql/15/bin.
var versioned = regexp.MustCompile(`/(\d+)/bin$`)

// settings of a private cluster, for its configuration file.
func (s *server) settings(socket string) string {
	all := map[string]string{
		"listen_addresses": "", "unix_socket_directories": socket, "max_connections": "200", "shared_buffers": "64MB", "max_wal_size": "512MB",
		"log_min_messages": "warning", "log_statement": "none", "timezone": "UTC", "log_timezone": "UTC",
	}
	if s.cfg.NoSync {
		all["fsync"], all["full_page_writes"] = "off", "off"
	}
	for name, value := range s.cfg.Settings {
		all[name] = value
	}
	var b strings.Builder
	for name, value := range all {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(value, "'", "''"))
	}
	return b.String()
}
