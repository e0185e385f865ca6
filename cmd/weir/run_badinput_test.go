package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/internal/fixture"
)

// logArgs run the golden log from a file.
func logArgs(id, store string, more ...string) []string {
	return append([]string{"run", "flow.yaml", "--log", "arrivals.log", "--run-id", id, "--store", store}, more...)
}

func logDir(t *testing.T) string {
	t.Helper()
	dir := fixtureDir(t)
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--faults", "faults.json", "--out", "arrivals.log")
	return dir
}

func TestLeasesThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := logDir(t)
	refused(t, dir, 3, []string{"CONFIG_INVALID", "--ttl 100ms", "500ms"}, logArgs("a", "sqlite:a.db", "--ttl", "100ms")...)
	refused(t, dir, 3, []string{"CONFIG_INVALID", "--ttl 25h"}, logArgs("a", "sqlite:a.db", "--ttl", "25h")...)
	refused(t, dir, 2, []string{"USAGE", "--checkpoint-every"}, logArgs("a", "sqlite:a.db", "--checkpoint-every", "-1s")...)
	if !missing(filepath.Join(dir, "a.db")) {
		t.Error("a refused command line has made a store")
	}
}

// slowProxy answers on a socket of its own for a server's, each way after a delay; cut ends every connection and takes no more.
type slowProxy struct {
	delay time.Duration
	mu    sync.Mutex
	conns []net.Conn
	ln    net.Listener
	gone  bool
}

// proxied is the URL of a database through a proxy.
func proxied(t *testing.T, db string, delay time.Duration) (*slowProxy, string) {
	t.Helper()
	u, err := url.Parse(db)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	host, port := q.Get("host"), q.Get("port")
	if port == "" {
		port = "5432"
	}
	network, target := "unix", filepath.Join(host, ".s.PGSQL."+port)
	if !filepath.IsAbs(host) {
		network, target = "tcp", u.Host
	}
	p := &slowProxy{delay: delay}
	if p.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.cut)
	go p.serve(network, target)
	v := *u
	q.Del("host")
	q.Del("port")
	q.Set("sslmode", "disable")
	v.Host, v.RawQuery = p.ln.Addr().String(), q.Encode()
	return p, v.String()
}

func (p *slowProxy) serve(network, target string) {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(network, target)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		if p.gone {
			client.Close()
			server.Close()
		}
		p.mu.Unlock()
		go p.carry(server, client)
		go p.carry(client, server)
	}
}

// carry copies what comes, each piece after the delay.
func (p *slowProxy) carry(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if p.delay > 0 {
			<-time.After(p.delay)
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *slowProxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	p.ln.Close()
	for _, c := range p.conns {
		c.Close()
	}
}

// TestALeaseShorterThanTheStoreIsSlow is refused at the start, with what would do.
func TestALeaseShorterThanTheStoreIsSlow(t *testing.T) {
	t.Parallel()
	dir := logDir(t)
	_, slow := proxied(t, chaosStores["postgres"](t), 50*time.Millisecond)
	refused(t, dir, 3, []string{"CONFIG_INVALID", "--ttl 500ms is too short", "at least --ttl"}, logArgs("slow", slow, "--ttl", "500ms")...)
	doc := parse(t, must(t, dir, logArgs("slow", slow, "--ttl", "30s", "--json")...))
	if doc["values_hash"] != fixture.ValuesHash {
		t.Errorf("%v", doc["values_hash"])
	}
}

// TestStoresThatAreNotThere: each is told by its code before anything is read.
func TestStoresThatAreNotThere(t *testing.T) {
	t.Parallel()
	dir := logDir(t)
	refused(t, dir, 5, []string{"STORE_UNAVAILABLE"}, logArgs("a", "postgres://weir@127.0.0.1:1/weir")...)
	db := chaosStores["postgres"](t)
	readOnly := db + map[bool]string{true: "&", false: "?"}[strings.Contains(db, "?")] + "default_transaction_read_only=on"
	refused(t, dir, 5, []string{"STORE_UNAVAILABLE", "read-only"}, logArgs("a", readOnly)...)
	refused(t, dir, 3, []string{"CONFIG_INVALID", "SQLite"}, logArgs("a", "sqlite:a.db", "--checkpoints", "store")...)
}

// TestTheStoreIsLostInTheMiddle: the daemon says so, ends with the code of what went wrong, and the next one goes on without a loss.
func TestTheStoreIsLostInTheMiddle(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	addr := broker(t)
	publishLog(t, dir, addr, "lost", 2)
	db := chaosStores["postgres"](t)
	proxy, url := proxied(t, db, 0)
	args := func(store string) []string {
		return []string{"run", "flow.yaml", "--brokers", addr, "--topic", "lost", "--run-id", "lost", "--store", store, "--ttl", "4s", "--epoch", "50ms", "--once-n", "69", "--json", "--verbose"}
	}
	p := startLogged(t, dir, "lost", nil, args(url)...)
	p.await(t, "a commit of everything", func() bool { return strings.Contains(p.said(t), "records=46") })
	proxy.cut()
	publishLog(t, dir, addr, "lost", 1)
	code := p.end(t)
	said := p.said(t)
	if code != 5 || !strings.Contains(said, "weir: STORE_UNAVAILABLE") {
		t.Errorf("exit %d:\n%s", code, said)
	}
	doc := parse(t, must(t, dir, append(args(db), "--standby")...))
	if doc["values_hash"] != fixture.ValuesHash || doc["omitted"] != 3.0 {
		t.Errorf("after the loss: %v", doc)
	}
}

// TestTheStoresFileIsMoved: SQLite would write on into the file that nobody will find again.
func TestTheStoresFileIsMoved(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	addr := broker(t)
	publishLog(t, dir, addr, "moved", 1)
	p := startLogged(t, dir, "moved", nil, runArgs(addr, "moved", "moved", "--ttl", "4s", "--epoch", "50ms", "--verbose")...)
	p.await(t, "a commit", func() bool { return strings.Contains(p.said(t), "msg=committed") })
	if err := os.Rename(filepath.Join(dir, "moved.db"), filepath.Join(dir, "elsewhere.db")); err != nil {
		t.Fatal(err)
	}
	publishLog(t, dir, addr, "moved", 1)
	if code, said := p.end(t), p.said(t); code != 5 || !strings.Contains(said, "weir: STORE_UNAVAILABLE") || !strings.Contains(said, "moved or deleted") {
		t.Errorf("exit %d:\n%s", code, said)
	}
}

// TestFoldersOfArtifacts: what cannot be used is refused at the start; what is strange is left alone.
func TestFoldersOfArtifacts(t *testing.T) {
	t.Parallel()
	dir := logDir(t)
	write(t, dir, "file", "not a folder")
	refused(t, dir, 1, []string{"OUTPUT_UNWRITABLE", "file"}, logArgs("a", "sqlite:a.db", "--artifacts", "file")...)
	refused(t, dir, 1, []string{"OUTPUT_UNWRITABLE", "--artifacts"}, logArgs("a", "sqlite:a.db", "--artifacts", "file/below")...)
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, 1, []string{"OUTPUT_UNWRITABLE", "name a file"}, logArgs("a", "sqlite:a.db", "--emit", "folder")...)
	if err := os.Symlink(t.TempDir(), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, 3, []string{"CONFIG_INVALID", "links are not followed"}, logArgs("a", "sqlite:a.db", "--checkpoints", "link")...)

	doc := parse(t, must(t, dir, logArgs("a", "sqlite:a.db", "--artifacts", "art/new", "--json")...))
	if doc["values_hash"] != fixture.ValuesHash || doc["fence_token"] != 1.0 {
		t.Errorf("%v", doc)
	}
	if made, err := filepath.Glob(filepath.Join(dir, "art/new/checkpoints/sha256/*")); err != nil || len(made) < 2 {
		t.Errorf("checkpoint blobs: %v, %v", made, err)
	}
	refused(t, dir, 3, []string{"CONFIG_INVALID", "belongs to the store"}, logArgs("b", "sqlite:b.db", "--artifacts", "art/new")...)
	if err := os.WriteFile(filepath.Join(dir, "art/new/checkpoints/sha256/notes.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := weir(t, dir, "", logArgs("c", "sqlite:a.db", "--artifacts", "art/new")...)
	if r.code != 0 || !strings.Contains(r.stderr, "not weir's") || !strings.Contains(r.stderr, "notes.txt") {
		t.Errorf("foreign files: exit %d\n%s", r.code, r.stderr)
	}
	if left, err := os.ReadFile(filepath.Join(dir, "art/new/checkpoints/sha256/notes.txt")); err != nil || string(left) != "mine" {
		t.Errorf("a foreign file was touched: %q, %v", left, err)
	}
}

// TestArtifactsOnAReadOnlyAndAFullDisk: a folder that cannot be written is refused at the start.
func TestArtifactsOnAReadOnlyAndAFullDisk(t *testing.T) {
	t.Parallel()
	outside := logDir(t)
	files := map[string][]byte{"flow.yaml": fixture.Flow}
	args := func(id string) []string {
		return []string{"run", "flow.yaml", "--log", filepath.Join(outside, "arrivals.log"), "--run-id", id, "--store", "sqlite:" + filepath.Join(outside, id+".db"), "--artifacts", "art"}
	}
	if r := inMount(t, "ro", files, args("ro")...); r.code != 1 || !strings.Contains(r.stderr, "OUTPUT_UNWRITABLE") || !strings.Contains(r.stderr, "read-only") {
		t.Errorf("read-only: exit %d\n%s", r.code, r.stderr)
	}
	files["fill"] = make([]byte, 900<<10)
	r := inMount(t, "size=1m,nr_inodes=8", files, args("full")...)
	if r.code != 1 || !strings.Contains(r.stderr, "OUTPUT_UNWRITABLE") || !strings.Contains(r.stderr, "no space left") {
		t.Errorf("full: exit %d\n%s", r.code, r.stderr)
	}
}

// TestAFinishedRunAndAnothersRun: neither is resumed by accident, and the lease is free again afterwards.
func TestAFinishedRunAndAnothersRun(t *testing.T) {
	t.Parallel()
	dir := logDir(t)
	must(t, dir, logArgs("a", "sqlite:a.db")...)
	refused(t, dir, 3, []string{"RUN_FINISHED", `"a"`}, logArgs("a", "sqlite:a.db")...)
	write(t, dir, "flow.yaml", strings.Replace(string(fixture.Flow), "period: 3", "period: 4", 1))
	refused(t, dir, 3, []string{"RUN_MISMATCH", "fingerprint"}, logArgs("a", "sqlite:a.db")...)
	if out := must(t, dir, "lease", "list", "--store", "sqlite:a.db", "--json"); strings.Contains(out, `"valid":true`) {
		t.Errorf("a refused run keeps its lease: %s", out)
	}
}

func TestFailpointsThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := logDir(t)
	for points, word := range map[string]string{
		"nowhere=kill": "no failpoint", "before_commit": "=kill", "before_commit=explode": "=kill", "before_commit@0=kill": "from 1 on",
		"before_commit@x=kill": "from 1 on", "store:=kill": "no failpoint", "before_commit@+=stop": "from 1 on",
		"after_step@3=tell": "every time", "store:commit=tell": "every time",
	} {
		cmd := command(t, dir, logArgs("a", "sqlite:a.db")...)
		cmd.Env = append(cmd.Env, failpointsEnv+"="+points)
		out, _ := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 3 || !strings.Contains(string(out), "CONFIG_INVALID") || !strings.Contains(string(out), word) {
			t.Errorf("%s: exit %d\n%s", points, cmd.ProcessState.ExitCode(), out)
		}
	}
}

// TestAPanicAtAFailpointIsOneFailure: the run goes on from its last commit, and the fault is told.
func TestAPanicAtAFailpointIsOneFailure(t *testing.T) {
	t.Parallel()
	dir := logDir(t)
	stores := []string{"sqlite:p.db", chaosStores["postgres"](t)}
	points := []string{"before_commit", "after_step", "store:begin@1", "store:commit@1", "store:committed@1", "after_offsets"}
	for i := range 2 * len(points) {
		point, store := points[i/2], stores[i%2]
		t.Run(fmt.Sprintf("%s %.6s", point, store), func(t *testing.T) {
			t.Parallel()
			cmd := command(t, dir, logArgs(fmt.Sprintf("p%d", i), store, "--epoch-records", "5", "--json")...)
			cmd.Env = append(cmd.Env, failpointsEnv+"="+point+"=panic")
			var errs strings.Builder
			cmd.Stderr = &errs
			out, err := cmd.Output()
			if err != nil || !strings.Contains(errs.String(), `{"action":"panic"`) {
				t.Fatalf("%v\n%s", err, errs.String())
			}
			if doc := parse(t, string(out)); doc["values_hash"] != fixture.ValuesHash {
				t.Errorf("%v", doc)
			}
		})
	}
}

func TestDrillsThatCannotBe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, c := range []struct {
		exit  int
		words []string
		args  string
	}{
		{3, []string{"STORE_INVALID"}, "drill --store nonsense"},
		{5, []string{"STORE_UNAVAILABLE"}, "drill --store sqlite:no/such/folder/x.db --only handover"},
		{5, []string{"BROKER_UNREACHABLE", "127.0.0.1:1"}, "drill --brokers 127.0.0.1:1 --only handover"},
		{1, []string{"OUTPUT_UNWRITABLE", "no/such"}, "drill --report no/such/report.json"},
		{3, []string{"CONFIG_INVALID", "--ttl"}, "drill --ttl 1ms"},
		{3, []string{"CONFIG_INVALID", "nothing"}, "drill --only nothing"},
		{2, []string{"USAGE", "--records"}, "drill --records 10"},
		{2, []string{"USAGE", "--brokers"}, "drill --brokers a:1,,b:2"},
	} {
		refused(t, dir, c.exit, c.words, strings.Fields(c.args)...)
	}
}
