package chtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/chclient"
)

// DB is a test's own database.
type DB struct {
	Name string
	// Address is that of the native protocol, Secure the one with TLS, whose certificate CA, a file, has signed.
	Address, Secure, CA string
}

// URL is the connection string of a login without a password.
func (db DB) URL(user string) string {
	return (&url.URL{Scheme: "clickhouse", User: url.User(user), Host: db.Address, Path: "/" + db.Name}).String()
}

// Connect opens a connection to the database that is closed at the end of the test.
func (db DB) Connect(t testing.TB) *chclient.Conn {
	t.Helper()
	conn, err := chclient.Connect(t.Context(), chclient.Config{Address: db.Address, Database: db.Name, ConnectTimeout: time.Minute, Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatalf("chtest: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the test may have closed or killed it
	return conn
}

// server is the server of this test binary.
type server struct {
	once         sync.Once
	err          error
	path, dir    string
	port, secure int
	// kill ends the process, stop the server with all that it has.
	kill, stop func()
	next       atomic.Int64
}

var shared = &server{}

// errNone means that there is no server to be had here; tests are skipped with its text.
type errNone struct{ reason string }

func (e errNone) Error() string { return e.reason }

// Run runs the tests of a binary and ends the server afterwards. It returns the exit code.
func Run(m *testing.M) int {
	code := m.Run()
	Stop()
	return code
}

// Stop ends the server, for a TestMain that has others to end too.
func Stop() {
	if shared.stop != nil {
		shared.stop()
	}
}

// Database creates a database for a test and drops it at its end.
func Database(t testing.TB) DB {
	t.Helper()
	shared.once.Do(func() { shared.err = shared.start() })
	started(t, shared.err)
	name := fmt.Sprintf("weir_test_%d", shared.next.Add(1))
	exec(t, "CREATE DATABASE "+name)
	t.Cleanup(func() { exec(t, "DROP DATABASE IF EXISTS "+name) })
	return DB{Name: name, Address: address(shared.port), Secure: address(shared.secure), CA: shared.dir + "/ca.crt"}
}

// started skips a test where there is no server to be had, or fails it with CI set.
func started(t testing.TB, err error) {
	t.Helper()
	var none errNone
	switch {
	case errors.As(err, &none) && os.Getenv("CI") == "":
		t.Skipf("ClickHouse: %s", none.reason)
	case err != nil:
		t.Fatalf("chtest: %v", err)
	}
}

// Own is a server of a test's own, that can be killed and started again.
type Own struct {
	// DB is its database default.
	DB
	s *server
}

// Start starts a server for a test and ends it at the test's end.
func Start(t testing.TB) *Own {
	t.Helper()
	s := &server{}
	started(t, s.start())
	t.Cleanup(s.stop)
	return &Own{DB{Name: "default", Address: address(s.port), Secure: address(s.secure), CA: s.dir + "/ca.crt"}, s}
}

// Kill ends its process as a power switch would. What the system has taken from it to write stays.
func (o *Own) Kill() { o.s.kill() }

// Restart starts it again, where it was.
func (o *Own) Restart(t testing.TB) {
	t.Helper()
	started(t, o.s.run())
}

func exec(t testing.TB, query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	conn, err := chclient.Connect(ctx, chclient.Config{Address: address(shared.port), ConnectTimeout: time.Minute, Timeout: 5 * time.Minute})
	if err == nil {
		err = conn.Exec(ctx, query)
		_ = conn.Close() // it has answered
	}
	if err != nil {
		t.Errorf("chtest: %s: %v", query, err)
	}
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
