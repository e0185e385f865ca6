// Package chtest gives tests a ClickHouse server and a database each.
//
//	func TestMain(m *testing.M) { os.Exit(chtest.Run(m)) }
//
//	func TestX(t *testing.T) {
//		db := chtest.Database(t) // db.URL(chtest.Super): a connection string
//	}
//
// The server is Debian's clickhouse-server (18.16), started by the first test that asks for one, once for each test binary: its data in a temporary
// folder, its ports on loopback, one of them with TLS. It is ended when Run returns, and by a watchdog when the test binary dies without returning.
//
// Where the program is missing, the package is installed if root runs the tests, CI is set and there is apt-get; otherwise tests that need it are skipped
// with the reason and the cure, and with CI set they fail with them.
package chtest
