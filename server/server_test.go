package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weirstream/weir/batch/catalog"
	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/dir"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/server"
)

// plant is a server on real parts.
type plant struct {
	*httptest.Server
	store *sqlite.Store
	blobs *dir.Store
}

func newPlant(t *testing.T, change func(*server.Config)) *plant {
	t.Helper()
	root := t.TempDir()
	put := func(path string, data []byte) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, path), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("flows/ema.yaml", fixture.Flow)
	put("snapshots/fixture.jsonl", fixture.Snapshot)
	names, err := catalog.Open(filepath.Join(root, "flows"), filepath.Join(root, "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { names.Close() })
	p := &plant{}
	if p.blobs, err = dir.Open(filepath.Join(root, "artifacts")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.blobs.Close() })
	if p.store, err = sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(root, "weir.db")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.store.Close() })
	cfg := server.Config{Store: p.store, Names: names, Artifacts: p.blobs, Poll: 5 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.Server = httptest.NewServer(s.Handler())
	t.Cleanup(p.Server.Close)
	return p
}

// call is one request; header is a list of names and values.
func (p *plant) call(t *testing.T, method, path, body string, header ...string) (int, http.Header, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(method, p.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := p.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var doc map[string]any
	if strings.Contains(resp.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
	return resp.StatusCode, resp.Header, doc
}

const asks = `{"flow":"ema","snapshot":"fixture"}`

func (p *plant) submit(t *testing.T, key, body string, more ...string) (int, map[string]any) {
	t.Helper()
	status, _, doc := p.call(t, "POST", "/v1/runs", body, append([]string{"Content-Type", "application/json", "Idempotency-Key", key}, more...)...)
	return status, doc
}

func TestAdmissionTable(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	status, first := p.submit(t, "k", asks)
	if status != 201 || first["phase"] != "QUEUED" || first["principal"] != "local" {
		t.Fatalf("%d %v", status, first)
	}
	status, again := p.submit(t, "k", ` { "snapshot" : "fixture", "flow" : "ema" } `)
	if status != 200 || again["id"] != first["id"] {
		t.Errorf("the same in another spelling: %d %v", status, again)
	}
	status, other := p.submit(t, "k2", asks)
	if status != 201 || other["id"] == first["id"] {
		t.Errorf("another key: %d %v", status, other)
	}
	for _, c := range []struct {
		body   string
		status int
		code   string
	}{
		{`{"flow":"emma","snapshot":"fixture"}`, 422, "NAME_UNKNOWN"},
		{`{"flow":"../ema","snapshot":"fixture"}`, 422, "NAME_INVALID"},
		{`{"flow":"http://evil","snapshot":"fixture"}`, 422, "NAME_INVALID"},
		{`{"flow":"ema","snapshot":"/etc/passwd"}`, 422, "NAME_INVALID"},
		{`{"flow":"ema"}`, 400, "REQUEST_INVALID"},
		{`{"flow":"ema","snapshot":"fixture","code":"rm -rf"}`, 400, "REQUEST_INVALID"},
		{`{"flow":"ema","flow":"ema","snapshot":"fixture"}`, 400, "REQUEST_INVALID"},
		{`{"flow":1,"snapshot":"fixture"}`, 400, "REQUEST_INVALID"},
		{`[]`, 400, "REQUEST_INVALID"}, {``, 400, "REQUEST_INVALID"}, {`{`, 400, "REQUEST_INVALID"},
		{`{"flow":"` + strings.Repeat("x", 100<<10) + `"}`, 413, "BODY_TOO_LARGE"},
	} {
		if status, doc := p.submit(t, "bad", c.body); status != c.status || doc["code"] != c.code {
			t.Errorf("%.60s: %d %v, want %d %s", c.body, status, doc, c.status, c.code)
		}
	}
	if status, _, doc := p.call(t, "POST", "/v1/runs", asks, "Content-Type", "application/json"); status != 400 || doc["code"] != "REQUEST_INVALID" {
		t.Errorf("no key: %d %v", status, doc)
	}
	_, _, page := p.call(t, "GET", "/v1/runs", "")
	if runs := page["runs"].([]any); len(runs) != 2 {
		t.Errorf("%d runs were admitted", len(runs))
	}
}

// TestOneRunFromManyClients: the same key and body from 32 clients at once is one run, created once.
func TestOneRunFromManyClients(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			status, doc := p.submit(t, "same", asks)
			mu.Lock()
			defer mu.Unlock()
			seen[fmt.Sprint(status, " ", doc["id"])]++
		})
	}
	wg.Wait()
	created := 0
	for k, n := range seen {
		if strings.HasPrefix(k, "201 ") {
			created += n
		}
	}
	if len(seen) != 2 || created != 1 {
		t.Errorf("%v", seen)
	}
}

func TestConflictIs409(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	// The key was used, with another snapshot that is not registered any more.
	_, _, err := p.store.Admit(t.Context(), control.Request{Principal: "local", Operation: server.Operation, Key: "k", Body: []byte(`{"flow":"ema","snapshot":"gone"}`), Flow: "ema", Snapshot: "gone"})
	if err != nil {
		t.Fatal(err)
	}
	if status, doc := p.submit(t, "k", asks); status != 409 || doc["code"] != "IDEMPOTENCY_CONFLICT" || doc["status"] != 409.0 {
		t.Errorf("%d %v", status, doc)
	}
}

func TestListShowCancelResult(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	var ids []string
	for i := range 5 {
		_, doc := p.submit(t, fmt.Sprint("k", i), asks)
		ids = append(ids, doc["id"].(string))
	}
	var got []string
	cursor := ""
	for range 10 {
		_, _, page := p.call(t, "GET", "/v1/runs?limit=2&phase=queued&cursor="+cursor, "")
		for _, r := range page["runs"].([]any) {
			got = append(got, r.(map[string]any)["id"].(string))
		}
		next, more := page["next"].(string)
		if !more {
			break
		}
		cursor = next
	}
	slices.Reverse(got)
	if !slices.Equal(got, ids) {
		t.Errorf("pages give %v, want %v", got, ids)
	}
	for _, bad := range []string{"limit=0", "limit=x", "limit=501", "phase=lost", "color=red", "cursor=%00"} {
		if status, _, doc := p.call(t, "GET", "/v1/runs?"+bad, ""); status != 400 || doc["code"] != "REQUEST_INVALID" {
			t.Errorf("%s: %d %v", bad, status, doc)
		}
	}
	if status, _, doc := p.call(t, "GET", "/v1/runs/"+ids[1], ""); status != 200 || doc["id"] != ids[1] {
		t.Errorf("show: %d %v", status, doc)
	}
	if status, _, doc := p.call(t, "POST", "/v1/runs/"+ids[1]+"/cancel", ""); status != 200 || doc["cancel_requested"] != true {
		t.Errorf("cancel: %d %v", status, doc)
	}
	for _, path := range []string{"/v1/runs/run_0", "/v1/runs/run_0/result", "/v1/runs/" + ids[0] + "/result", "/v1/nothing", "/"} {
		if status, header, _ := p.call(t, "GET", path, ""); status != 404 || header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %v", path, status, header)
		}
	}
	if status, _, doc := p.call(t, "DELETE", "/v1/runs/"+ids[0], ""); status != 405 || doc["code"] != "METHOD_NOT_ALLOWED" {
		t.Errorf("%d %v", status, doc)
	}
	publish(t, p, ids[0])
	if status, _, doc := p.call(t, "GET", "/v1/runs/"+ids[0]+"/result", ""); status != 200 || doc["rows"] != 6.0 {
		t.Errorf("result: %d %v", status, doc)
	}
}

// publish ends a run as a worker does.
func publish(t *testing.T, p *plant, id string) {
	t.Helper()
	ctx := t.Context()
	l, err := p.store.Acquire(ctx, control.RunLease(id), control.NewOwner(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.store.Fenced(ctx, l, control.StartRun{RunID: id, Moved: new(control.RunPhase)}); err != nil {
		t.Fatal(err)
	}
	err = p.store.Fenced(ctx, l, control.Publish{Publications: []control.Publication{{Key: control.ResultKey(id), RunID: id, Value: []byte(`{"rows":6}`)}}},
		control.FinishRun{RunID: id, Phase: control.Succeeded, ResultRefs: []string{"sha256:" + strings.Repeat("a", 64)}})
	if err != nil {
		t.Fatal(err)
	}
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	info, err := checkpoint.PutBytes(t.Context(), p.blobs, []byte(`{"values":[1.0]}`))
	if err != nil {
		t.Fatal(err)
	}
	status, header, doc := p.call(t, "GET", "/v1/artifacts/"+info.Name, "")
	if status != 200 || header.Get("ETag") != `"sha256:`+info.Name+`"` || doc["values"] == nil {
		t.Errorf("%d %v %v", status, header, doc)
	}
	if status, _, _ := p.call(t, "GET", "/v1/artifacts/sha256:"+info.Name, ""); status != 200 {
		t.Errorf("by reference: %d", status)
	}
	for path, want := range map[string]int{
		strings.Repeat("0", 64): 404, "..%2f..%2fetc%2fpasswd": 422, "short": 422, strings.ToUpper(info.Name): 422, info.Name + "%00": 422,
	} {
		if status, _, doc := p.call(t, "GET", "/v1/artifacts/"+path, ""); status != want {
			t.Errorf("%s: %d %v, want %d", path, status, doc, want)
		}
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *server.Config) { c.MaxStreams = 1 })
	_, doc := p.submit(t, "k", asks)
	id := doc["id"].(string)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", p.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	scan := bufio.NewScanner(resp.Body)
	next := func() (phase string) {
		for scan.Scan() {
			if data, ok := strings.CutPrefix(scan.Text(), "data: "); ok {
				var run map[string]any
				if err := json.Unmarshal([]byte(data), &run); err != nil || run["id"] != id {
					t.Fatalf("%v %s", err, data)
				}
				return run["phase"].(string)
			}
		}
		t.Fatal(scan.Err())
		return ""
	}
	if got := next(); got != "QUEUED" {
		t.Errorf("first %s", got)
	}
	if status, _, doc := p.call(t, "GET", "/v1/events", ""); status != 429 || doc["code"] != "TOO_MANY_REQUESTS" {
		t.Errorf("a second stream: %d %v", status, doc)
	}
	publish(t, p, id)
	for phase := next(); phase != "SUCCEEDED"; phase = next() {
		if phase != "RUNNING" {
			t.Fatalf("then %s", phase)
		}
	}
}

func TestProbes(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	if status, _, _ := p.call(t, "GET", "/livez", ""); status != 200 {
		t.Errorf("livez: %d", status)
	}
	status, _, doc := p.call(t, "GET", "/readyz?verbose", "")
	if status != 200 || doc["ready"] != true || doc["checks"] == nil {
		t.Errorf("readyz: %d %v", status, doc)
	}
	p.store.Close()
	if status, _, doc := p.call(t, "GET", "/readyz?verbose", ""); status != 503 || doc["ready"] != false {
		t.Errorf("readyz without a store: %d %v", status, doc)
	}
}

// TestStrangersAreKeptOut: host, origin, media type and token, on every route of the description.
func TestStrangersAreKeptOut(t *testing.T) {
	t.Parallel()
	const good = "0123456789abcdef0123456789abcdef"
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("# who may come in\nalice "+good+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := server.ReadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	p := newPlant(t, func(c *server.Config) { c.Tokens = tokens })
	bearer := []string{"Authorization", "Bearer " + good}
	for _, r := range described(t) {
		path := strings.NewReplacer("{id}", "run_0", "{hash}", strings.Repeat("0", 64)).Replace(r.path)
		want := 401
		if r.path == "/livez" {
			want = 200
		}
		for _, header := range [][]string{nil, {"Authorization", "Basic " + good}, {"Authorization", "Bearer"}} {
			if status, h, _ := p.call(t, r.method, path, "", header...); status != want || want == 401 && h.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s with %v: %d", r.method, path, header, status)
			}
		}
		if status, _, _ := p.call(t, r.method, path+"?token="+good, ""); status != want {
			t.Errorf("%s %s?token=: %d", r.method, path, status)
		}
		if status, _, _ := p.call(t, r.method, path, "", append(bearer, "Host", "evil.example")...); status != 403 {
			t.Errorf("%s %s under another host: %d", r.method, path, status)
		}
		if status, _, _ := p.call(t, r.method, path, "", append(bearer, "Origin", "http://evil.example")...); status != 403 {
			t.Errorf("%s %s of another origin: %d", r.method, path, status)
		}
	}
	if status, _, _ := p.call(t, "POST", "/v1/runs", asks, append(bearer, "Content-Type", "text/plain", "Idempotency-Key", "k")...); status != 415 {
		t.Errorf("text: %d", status)
	}
	status, doc := p.submit(t, "k", asks, bearer...)
	if status != 201 || doc["principal"] != "alice" {
		t.Errorf("%d %v", status, doc)
	}
	last := 0
	for range 25 {
		last, _, _ = p.call(t, "GET", "/v1/runs", "", "Authorization", "Bearer wrong-wrong-wrong-wrong-wrong")
	}
	if last != 429 {
		t.Errorf("wrong tokens are answered for ever: %d", last)
	}
}

type operation struct{ method, path string }

func described(t *testing.T) (list []operation) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]any
	}
	if err := json.Unmarshal(server.OpenAPI(), &doc); err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths {
		for method := range item {
			list = append(list, operation{strings.ToUpper(method), path})
		}
	}
	if len(list) < 12 {
		t.Fatalf("only %d operations are described", len(list))
	}
	return list
}

// TestAnswersFitTheDescription checks real answers against the schemas of the OpenAPI document.
func TestAnswersFitTheDescription(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	_, run := p.submit(t, "k", asks)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(server.OpenAPI()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ path, schema string }{
		{"/v1/runs", "Runs"}, {"/v1/runs/" + run["id"].(string), "Run"}, {"/v1/flows", "Names"}, {"/v1/snapshots", "Names"}, {"/v1/runs/none", "Problem"}, {"/nowhere", "Problem"},
	} {
		schema, err := c.Compile("openapi.json#/components/schemas/" + x.schema)
		if err != nil {
			t.Fatal(err)
		}
		_, _, answer := p.call(t, "GET", x.path, "")
		if err := schema.Validate(answer); err != nil {
			t.Errorf("%s is no %s: %v", x.path, x.schema, err)
		}
	}
}

// TestErrorsTellNothing: no stack, path, statement or address, whatever is asked.
func TestErrorsTellNothing(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	p.store.Close()
	for _, path := range []string{"/v1/runs", "/v1/runs/x", "/v1/runs/x/result", "/v1/artifacts/x", "/v1/runs?cursor=%ff", "/..%2f..%2fetc"} {
		status, _, doc := p.call(t, "GET", path, "")
		text := fmt.Sprint(doc)
		for _, secret := range []string{"goroutine", "SELECT", ".db", os.TempDir(), "sqlite"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %d tells %q: %s", path, status, secret, text)
			}
		}
	}
}

func TestConfigAndTokenFiles(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{"0.0.0.0:8080", ":8080", "192.0.2.1:80", "nonsense"} {
		if _, err := server.New(server.Config{Listen: listen}); !codes.Has(err, codes.ConfigInvalid) {
			t.Errorf("%s: %v", listen, err)
		}
	}
	dir := t.TempDir()
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"open":  {"alice 0123456789abcdef0123456789abcdef\n", 0o644},
		"short": {"alice hunter2\n", 0o600},
		"bare":  {"alice\n", 0o600},
		"twice": {"a 0123456789abcdef0123456789abcdef\na 0123456789abcdef0123456789abcdee\n", 0o600},
		"empty": {"# nobody\n", 0o600},
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		_, err := server.ReadTokens(path)
		if !codes.Has(err, codes.ConfigInvalid) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := server.ReadTokens(filepath.Join(dir, "missing")); !codes.Has(err, codes.FileMissing) {
		t.Errorf("missing: %v", err)
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	s, err := server.New(server.Config{Store: p.store, Artifacts: p.blobs, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	addr := make(chan string, 1)
	go func() { ended <- s.Serve(ctx, func(a string) { addr <- a }) }()
	resp, err := http.Get("http://" + <-addr + "/v1/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("%v", err)
	}
	busy, err := server.New(server.Config{Store: p.store, Listen: strings.TrimPrefix(p.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	if err := busy.Serve(t.Context(), nil); !codes.Has(err, codes.PortInUse) {
		t.Errorf("a port in use: %v", err)
	}
}
