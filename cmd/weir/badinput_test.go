package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/fixture"
)

// needs skips a test that cannot run here, visibly, and fails it in CI.
func needs(t *testing.T, ok bool, what string) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("CI lacks %s", what)
	}
	t.Skipf("this machine lacks %s", what)
}

func TestMissingAndWrongFiles(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	write(t, dir, "empty.log", "")
	write(t, dir, "notalog.log", "hello\n")
	write(t, dir, "notadb.db", strings.Repeat("this is no database ", 500))
	write(t, dir, "bad.jsonl", "{\"event_id\":\"a\",\"instrument\":\"1\",\"event_time\":\"2026-01-05T14:30:00Z\",\"close\":1.0}\n{\"event_id\":\n")
	write(t, dir, "ragged.csv", "event_id,instrument,event_time,close\na,1,2026-01-05T14:30:00Z,1\nb,1\n")
	write(t, dir, "zone.jsonl", `{"event_id":"a","instrument":"1","event_time":"2026-01-05T14:30:00","close":1.0}`+"\n")
	write(t, dir, "text.jsonl", `{"event_id":"a","instrument":"1","event_time":"2026-01-05T14:30:00Z","close":"1.0"}`+"\n")
	write(t, dir, "schedule.json", `{"format":"fault-schedule/1","seed":1,"faults":[
{"event_id":"nobody","kind":"GAP"},
{"event_id":"fixture.event.0.1","kind":"GAP"},
{"event_id":"fixture.event.0.1","kind":"GAP"},
{"event_id":"fixture.event.0.2","kind":"DELAY","domain_ms":-5},
{"event_id":"fixture.event.0.2","kind":"EXPLODE"}]}`)
	write(t, dir, "unknown.json", `{"format":"fault-schedule/1","seed":1,"faults":[
{"event_id":"nobody","kind":"GAP"}]}`)
	for _, c := range []struct {
		exit  int
		words []string
		args  string
	}{
		{3, []string{"FILE_MISSING", "nowhere.yaml"}, "lint nowhere.yaml"},
		{3, []string{"FILE_MISSING", "nowhere.jsonl"}, "batch run --flow flow.yaml --snapshot nowhere.jsonl"},
		{3, []string{"FILE_MISSING", "nowhere.log"}, "batch run --flow flow.yaml --log nowhere.log"},
		{3, []string{"LOG_INVALID", "empty.log"}, "batch run --flow flow.yaml --log empty.log"},
		{3, []string{"LOG_INVALID", "notalog.log"}, "run flow.yaml --log notalog.log --run-id x --store sqlite:x.db"},
		{3, []string{"SNAPSHOT_INVALID", "bad.jsonl:2"}, "batch run --flow flow.yaml --snapshot bad.jsonl"},
		{3, []string{"SNAPSHOT_INVALID", "ragged.csv:3"}, "batch run --flow flow.yaml --snapshot ragged.csv"},
		{3, []string{"SNAPSHOT_INVALID", "zone.jsonl:1", "zone"}, "batch run --flow flow.yaml --snapshot zone.jsonl"},
		{3, []string{"SNAPSHOT_INVALID", "close"}, "batch run --flow flow.yaml --snapshot text.jsonl"},
		{3, []string{"SCHEDULE_INVALID", "schedule.json:4", "schedule.json:5", "schedule.json:6"}, "replay build --snapshot snapshot.jsonl --faults schedule.json --out out.log"},
		{3, []string{"SCHEDULE_INVALID", "nobody"}, "replay build --snapshot snapshot.jsonl --faults unknown.json --out out.log"},
		{3, []string{"STORE_INVALID", "notadb.db"}, "run flow.yaml --log x.log --run-id x --store sqlite:notadb.db"},
		{3, []string{"STORE_INVALID", "sqlite:PATH"}, "run flow.yaml --log x.log --run-id x --store weir.db"},
		{5, []string{"STORE_UNAVAILABLE", "no/such/folder"}, "run flow.yaml --log x.log --run-id x --store sqlite:no/such/folder/x.db"},
		{1, []string{"OUTPUT_UNWRITABLE", "no/such/folder"}, "batch run --flow flow.yaml --snapshot snapshot.jsonl --emit no/such/folder/out.json"},
		{1, []string{"OUTPUT_UNWRITABLE", "/dev/full"}, "batch run --flow flow.yaml --snapshot snapshot.jsonl --emit /dev/full"},
		{1, []string{"OUTPUT_UNWRITABLE", "/dev/full"}, "replay build --snapshot snapshot.jsonl --out /dev/full"},
	} {
		r := refused(t, dir, c.exit, c.words, strings.Fields(c.args)...)
		if r.stdout != "" {
			t.Errorf("%s: stdout %q", c.args, r.stdout)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "out.log")); err == nil {
		t.Error("a refused schedule left a log behind")
	}
}

func TestBrokersAndTopicsThatAreNotThere(t *testing.T) {
	t.Parallel()
	dir := fixtureDir(t)
	refused(t, dir, 5, []string{"BROKER_UNREACHABLE", "127.0.0.1:1"}, runArgs("127.0.0.1:1", "ticks", "a")...)
	must(t, dir, "replay", "build", "--snapshot", "snapshot.jsonl", "--out", "arrivals.log")
	refused(t, dir, 5, []string{"BROKER_UNREACHABLE", "127.0.0.1:1"}, "replay", "publish", "--log", "arrivals.log", "--brokers", "127.0.0.1:1", "--topic", "ticks")
	addr := broker(t)
	refused(t, dir, 3, []string{"TOPIC_MISSING", "tikcs"}, runArgs(addr, "tikcs", "b")...)
	refused(t, dir, 3, []string{"TOPIC_MISSING", "tikcs"}, "replay", "publish", "--log", "arrivals.log", "--brokers", addr, "--topic", "tikcs")
}

// inMount runs weir in a folder that is a small file system of its own, mounted with options, in a user namespace.
func inMount(t *testing.T, options string, files map[string][]byte, args ...string) result {
	t.Helper()
	dir := t.TempDir()
	probe := exec.Command("unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", dir)
	needs(t, probe.Run() == nil, "unshare with user namespaces and tmpfs, to play a full disk and a read-only folder")
	source := t.TempDir()
	for name, data := range files {
		write(t, source, name, string(data))
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`mount -t tmpfs -o size=%s tmpfs %q && cp %q/* %q && mount -o remount,%s %q && cd %q && exec "$@"`, "4m", dir, source, dir, options, dir, dir)
	cmd := exec.Command("unshare", append([]string{"-Urm", "bash", "-c", script, "bash", self}, args...)...)
	cmd.Env = append(os.Environ(), asWeir+"=1")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	r := result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	if strings.Contains(r.stderr, "goroutine ") {
		t.Errorf("a stack trace: %s", r.stderr)
	}
	return r
}

func TestReadOnlyFolder(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{"flow.yaml": fixture.Flow, "snapshot.jsonl": fixture.Snapshot, "faults.json": fixture.Schedule}
	for _, c := range []struct {
		exit int
		code string
		args string
	}{
		{5, "STORE_UNAVAILABLE", "run flow.yaml --log arrivals.log --run-id x --store sqlite:x.db"},
		{1, "OUTPUT_UNWRITABLE", "batch run --flow flow.yaml --snapshot snapshot.jsonl --emit out.json"},
		{1, "OUTPUT_UNWRITABLE", "replay build --snapshot snapshot.jsonl --out out.log"},
		{5, "STORE_UNAVAILABLE", "broker --port 0 --data data"},
	} {
		r := inMount(t, "ro", files, strings.Fields(c.args)...)
		if r.code != c.exit || !strings.Contains(r.stderr, c.code) || !strings.Contains(r.stderr, "read-only") {
			t.Errorf("%s: exit %d, %s", c.args, r.code, r.stderr)
		}
	}
}

// TestFullDisk: the run stops with a clear error, what was committed stays whole, and with room again it ends with the right hash.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, dir, "replay", "generate", "--events", "60000", "--instruments", "3", "--snapshot", "big.jsonl")
	must(t, dir, "replay", "build", "--snapshot", "big.jsonl", "--out", "big.log")
	log, err := os.ReadFile(filepath.Join(dir, "big.log"))
	if err != nil {
		t.Fatal(err)
	}
	source := t.TempDir()
	write(t, source, "big.log", string(log))
	flow := strings.Replace(string(fixture.Flow), `select: {field: instrument, equals: "1"}`, "", 1)
	r := inMount(t, "size=1m", map[string][]byte{"flow.yaml": []byte(flow)}, "run", "flow.yaml", "--log", filepath.Join(source, "big.log"), "--run-id", "x", "--store", "sqlite:x.db", "--epoch-records", "5000")
	if r.code != 5 || !strings.Contains(r.stderr, "STORE_UNAVAILABLE") || !strings.Contains(r.stderr, "full") {
		t.Errorf("exit %d\n%s", r.code, r.stderr)
	}
}

// TestRecordsThatCannotBeUsed: each is set aside with its reason, none stops the stream, none is lost.
func TestRecordsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	good := func(id, when, close string) string {
		return fmt.Sprintf(`{"close":%s,"event_id":%q,"event_time":%q,"instrument":"1"}`, close, id, when)
	}
	values := []string{
		good("a", "2026-01-05T14:30:00Z", "1.0"),
		`{"close":1.0,"event_id":`,
		good("b", "2026-01-05T14:31:00Z", "NaN"),
		good("c", "2026-01-05T14:32:00Z", "1e400"),
		good("d", "2026-01-05T14:33:00", "4.0"),
		good("e", "2026-01-05T14:33:00Z", `"4.0"`),
		`{"close":1.0,"event_id":"f","event_time":"2026-01-05T14:34:00Z","instrument":"1","pad":"` + strings.Repeat("x", 10<<20) + `"}`,
		good("g", "2099-01-01T00:00:00Z", "5.0"),
		"null", "", "\xff\xfe",
		good("h", "2026-01-05T14:35:00Z", strings.Repeat("9", 400)),
		good("i", "2026-01-05T14:36:00Z", "2.0"),
	}
	dir := fixtureDir(t)
	addr := broker(t)
	produce(t, addr, "odd", values)
	doc := parse(t, must(t, dir, runArgs(addr, "odd", "odd", "--once-n", fmt.Sprint(len(values)+1), "--json", "--artifacts", "left")...))
	for key, want := range map[string]float64{"consumed": 6, "omitted": 7, "future": 1, "filtered": 0, "late": 0, "duplicates_skipped": 0} {
		if doc[key] != want {
			t.Errorf("%s: %v, want %v", key, doc[key], want)
		}
	}
	left, err := os.ReadFile(filepath.Join(dir, "left", "odd.quarantine.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]int{}
	for line := range strings.Lines(string(left)) {
		var q struct{ Reason, Detail string }
		if err := json.Unmarshal([]byte(line), &q); err != nil || q.Detail == "" {
			t.Errorf("%v: %s", err, line)
		}
		reasons[q.Reason]++
	}
	if want := map[string]int{"UNREADABLE": 6, "TOMBSTONE": 1, "FUTURE": 1}; fmt.Sprint(reasons) != fmt.Sprint(want) {
		t.Errorf("set aside %v, want %v", reasons, want)
	}
}
