// Package pgtest gives tests a PostgreSQL server and a database each.
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Run(m, pgtest.Config{})) }
//
//	func TestX(t *testing.T) {
//		db := pgtest.Database(t, migrate) // db.Runtime, db.Reader, db.Super: connection URLs
//	}
//
// The server is started by the first test that asks for one, and once for each test binary: a private cluster in a temporary folder,
// reached through a Unix socket in it, so that it needs no port and nobody else comes in. It is ended when Run returns, and by a watchdog when the
// test binary dies without returning. Durability is on, as in production, unless Config asks for less.
//
// The programs are looked for on PATH and in Debian's versioned folders. PostgreSQL refuses to run as root; then the user postgres runs it,
// or nobody. WEIR_TEST_POSTGRES names a server to use instead, by the URL of a superuser; databases are created on it and dropped again.
// Where there is neither, the package is installed if root runs the tests, CI is set and there is apt-get; otherwise tests that need it are skipped
// with the reason and the cure, and with CI set they fail with them.
//
// Tested with PostgreSQL 15.
package pgtest
