package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirstream/weir/internal/fixture"
)

// plane lays out folders of flows and snapshots, and gives the flags that name them.
func planeDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, folder := range []string{"flows", "snapshots"} {
		if err := os.Mkdir(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "flows/ema.yaml", string(fixture.Flow))
	write(t, dir, "snapshots/fixture.jsonl", string(fixture.Snapshot))
	return dir
}

var (
	onStore   = []string{"--store", "sqlite:weir.db"}
	onFolders = []string{"--artifacts", "artifacts", "--flows", "flows", "--snapshots", "snapshots"}
)

func args(command string, more ...[]string) []string {
	list := strings.Fields(command)
	for _, m := range more {
		list = append(list, m...)
	}
	return list
}

// TestRunsOnTheCommandLine: submit, again, conflict, cancel, work, show, reconcile.
func TestRunsOnTheCommandLine(t *testing.T) {
	t.Parallel()
	dir := planeDir(t)
	first := parse(t, must(t, dir, args("runs submit --flow ema --snapshot fixture --key k1 --json", onStore)...))
	again := parse(t, must(t, dir, args("runs submit --flow ema --snapshot fixture --key k1 --json", onStore)...))
	if first["created_now"] != true || again["created_now"] != false || first["id"] != again["id"] || first["phase"] != "QUEUED" {
		t.Errorf("%v\n%v", first, again)
	}
	refused(t, dir, 3, []string{"IDEMPOTENCY_CONFLICT"}, args("runs submit --flow ema --snapshot other --key k1", onStore)...)
	refused(t, dir, 3, []string{"NAME_UNKNOWN", "other"}, args("runs submit --flow ema --snapshot other --flows flows --snapshots snapshots", onStore)...)
	refused(t, dir, 3, []string{"NAME_INVALID"}, args("runs submit --flow ../ema --snapshot fixture", onStore)...)

	second := parse(t, must(t, dir, args("runs submit --flow ema --snapshot fixture --json", onStore)...))
	must(t, dir, args("runs cancel "+second["id"].(string), onStore)...)
	if events := parse(t, must(t, dir, args("outbox list --json", onStore)...))["events"].([]any); len(events) != 2 {
		t.Errorf("%d events wait", len(events))
	}
	for range 2 {
		must(t, dir, args("batch worker --once", onStore, onFolders)...)
	}
	done := parse(t, must(t, dir, args("runs show --json "+first["id"].(string), onStore)...))
	refs, _ := done["result_refs"].([]any)
	if done["phase"] != "SUCCEEDED" || done["run_revision"] != 1.0 || len(refs) != 1 {
		t.Fatalf("%v", done)
	}
	artefact, err := os.ReadFile(filepath.Join(dir, "artifacts", "sha256", strings.TrimPrefix(refs[0].(string), "sha256:")))
	if err != nil || parse(t, string(artefact))["values_hash"] != fixture.ValuesHash {
		t.Errorf("%v %.300s", err, artefact)
	}
	if gone := parse(t, must(t, dir, args("runs show --json "+second["id"].(string), onStore)...)); gone["phase"] != "CANCELLED" || len(gone["result_refs"].([]any)) != 0 {
		t.Errorf("%v", gone)
	}
	if found := parse(t, must(t, dir, args("reconcile --json", onStore)...)); found["open"] != 0.0 {
		t.Errorf("%v", found)
	}
	if list := must(t, dir, args("runs list", onStore)...); !strings.Contains(list, "SUCCEEDED") || !strings.Contains(list, "CANCELLED") {
		t.Errorf("%s", list)
	}
	leases := parse(t, must(t, dir, args("lease list --json", onStore)...))["leases"].([]any)
	if len(leases) == 0 {
		t.Error("no lease was ever taken")
	}
	for _, l := range leases {
		if l := l.(map[string]any); l["valid"] != false || l["until"] != nil {
			t.Errorf("a released lease: %v", l)
		}
	}
	refused(t, dir, 3, []string{"RUN_UNKNOWN"}, args("runs show run_0", onStore)...)
	refused(t, dir, 3, []string{"LEASE_UNKNOWN", "lease list"}, args("lease show nobody", onStore)...)
	refused(t, dir, 2, []string{"--store"}, "runs", "list")
	refused(t, dir, 2, []string{"not the id"}, args("outbox release x", onStore)...)
}

// TestServe: a run admitted over HTTP is executed by a worker and read over HTTP.
func TestServe(t *testing.T) {
	t.Parallel()
	dir := planeDir(t)
	base := listening(t, dir, args("serve --listen 127.0.0.1:0", onStore, onFolders)...)
	req, err := http.NewRequest("POST", base+"/v1/runs", strings.NewReader(`{"flow":"ema","snapshot":"fixture"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", "k")
	run := fetch(t, req, 201)
	must(t, dir, args("batch worker --once", onStore, onFolders)...)
	get := func(path string) map[string]any {
		req, err := http.NewRequest("GET", base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		return fetch(t, req, 200)
	}
	id := run["id"].(string)
	if shown := get("/v1/runs/" + id); shown["phase"] != "SUCCEEDED" {
		t.Fatalf("%v", shown)
	}
	result := get("/v1/runs/" + id + "/result")
	if result["values_hash"] != fixture.ValuesHash {
		t.Errorf("%v", result)
	}
	artefact := get("/v1/artifacts/" + strings.TrimPrefix(result["artifact"].(string), "sha256:"))
	if artefact["values_hash"] != fixture.ValuesHash {
		t.Errorf("%v", artefact)
	}
}

func fetch(t *testing.T, req *http.Request, status int) map[string]any {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var doc map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil || resp.StatusCode != status {
		t.Fatalf("%s: %d, %v, %v", req.URL, resp.StatusCode, err, doc)
	}
	return doc
}

func TestServeRefusals(t *testing.T) {
	t.Parallel()
	dir := planeDir(t)
	write(t, dir, "tokens", "alice 0123456789abcdef0123456789abcdef\n")
	for _, c := range []struct {
		exit  int
		words []string
		args  []string
	}{
		{3, []string{"CONFIG_INVALID", "0.0.0.0:0", "TLS"}, args("serve --listen 0.0.0.0:0", onStore, onFolders)},
		{3, []string{"CONFIG_INVALID", "TLS"}, args("serve --listen 0.0.0.0:0 --tokens tokens", onStore, onFolders)},
		{3, []string{"FILE_MISSING", "nowhere"}, args("serve --tokens nowhere", onStore, onFolders)},
		{2, []string{"--tls-key"}, args("serve --tls-cert x", onStore, onFolders)},
		{2, []string{"--flows"}, args("serve --artifacts a", onStore)},
	} {
		refused(t, dir, c.exit, c.words, c.args...)
	}
}

// TestStoreReferences: a store string, and the password in it, can stay off the command line, and is never shown.
func TestStoreReferences(t *testing.T) {
	t.Parallel()
	dir := planeDir(t)
	write(t, dir, "secret", "sqlite:weir.db\n")
	refused(t, dir, 3, []string{"FILE_MISSING", "weir.db"}, args("runs list --store file:secret")...)
	if !missing(filepath.Join(dir, "weir.db")) {
		t.Error("looking made a store")
	}
	must(t, dir, args("runs submit --flow ema --snapshot fixture --store file:secret")...)
	must(t, dir, args("runs list --store file:secret")...)
	refused(t, dir, 2, []string{"--phase"}, args("runs list --store file:secret --phase BANANA")...)
	must(t, dir, args("runs list --store file:secret --phase queued")...)
	if err := os.Chmod(filepath.Join(dir, "secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, 3, []string{"CONFIG_INVALID", "chmod 600"}, args("runs list --store file:secret")...)
	refused(t, dir, 3, []string{"CONFIG_INVALID", "WEIR_NO_SUCH"}, args("runs list --store env:WEIR_NO_SUCH")...)
	for _, s := range []string{"postgres://weir:hunter2@127.0.0.1:1/weir", "postgres://weir@127.0.0.1:1/weir?password=hunter2", "mysql://weir:hunter2@h/db"} {
		for _, command := range []string{"runs list", "migrate", "migrate --check", "lease list"} {
			r := weir(t, dir, "", args(command+" --json --store "+s)...)
			if r.code == 0 || strings.Contains(r.stdout+r.stderr, "hunter2") {
				t.Errorf("%s: exit %d\n%s%s", command, r.code, r.stdout, r.stderr)
			}
		}
	}
}

func TestMigratePrintsSQL(t *testing.T) {
	t.Parallel()
	if sql := must(t, t.TempDir(), "migrate", "--print"); !strings.Contains(sql, "CREATE TABLE") || !strings.HasSuffix(strings.TrimSpace(sql), "COMMIT;") {
		t.Errorf("%.500s", sql)
	}
	dir := t.TempDir()
	refused(t, dir, 2, []string{"--print"}, "migrate", "--print", "--store", "sqlite:weir.db")
	refused(t, dir, 5, []string{"STORE_UNAVAILABLE"}, "migrate", "--print", "--store", "postgres://weir@127.0.0.1:1/weir")
	must(t, dir, "migrate", "--store", "sqlite:weir.db")
	if missing(filepath.Join(dir, "weir.db")) {
		t.Error("no store was made")
	}
}
