//go:build unix

package pgtest_test

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/pgtest"
)

const childEnv = "WEIR_PGTEST_CHILD"

// TestChild is run in a process of its own by TestWatchdog: it starts a server, tells where, and waits to be killed.
func TestChild(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		return // it is a part of TestWatchdog
	}
	db := pgtest.Database(t, nil)
	u, err := url.Parse(db.Super)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(u.Query().Get("host") + "/data/postmaster.pid")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("server", strings.Fields(string(pid))[0], u.Query().Get("host"))
	select {}
}

// A server does not outlive a test binary that is killed, and its folder goes too.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	if os.Getenv("WEIR_TEST_POSTGRES") != "" {
		t.Skip("WEIR_TEST_POSTGRES: there is no private server to look after")
	}
	pgtest.Database(t, nil) // skips where there is no server to be had
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$", "-test.timeout=10m")
	child.Env = append(os.Environ(), childEnv+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var pid, dir string
	for scan := bufio.NewScanner(out); pid == "" && scan.Scan(); {
		if f := strings.Fields(scan.Text()); len(f) == 3 && f[0] == "server" {
			pid, dir = f[1], f[2]
		}
	}
	n, err := strconv.Atoi(pid)
	if err != nil || syscall.Kill(n, 0) != nil {
		t.Fatalf("the child has no server: %q, %v", pid, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Minute); ; <-tick.C {
		_, err := os.Stat(dir)
		if gone := syscall.Kill(n, 0) != nil; gone && os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("5 minutes after the kill the server %d or its folder %s is still there", n, dir)
		}
	}
}
