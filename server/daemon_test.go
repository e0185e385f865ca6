package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/server"
	"github.com/weirstream/weir/status"
)

// stream is the server of a run that is told to be in some state.
type stream struct {
	plant
	mu     sync.Mutex
	report status.Report
	level  slog.LevelVar
	tap    server.Tap
	logged safeBuffer
}

// safeBuffer takes what requests log at the same time.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func newStream(t *testing.T, change func(*server.Config, *server.Daemon)) *stream {
	t.Helper()
	s := &stream{}
	now := time.Unix(1_800_000_000, 0).UTC()
	s.report = status.Report{Format: status.Format, Run: "ticks-1", At: now, Live: true, Runs: []status.Snapshot{{
		Run: "ticks-1", Live: true, At: now, Phase: status.PhaseRunning, PhaseSince: &now, Holders: []int32{}, Watermark: status.EventTime{T: record.EventTime(now.UnixNano())},
		Partitions: []status.Partition{{Partition: 0, State: status.Reading, Seconds: map[status.State]float64{status.Reading: 1}, Began: &now, MaxEventTime: status.NoEventTime}},
	}}}
	cfg := server.Config{Logger: slog.New(slog.NewTextHandler(&s.logged, &slog.HandlerOptions{Level: &s.level}))}
	d := server.Daemon{
		Report: func() status.Report {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.report
		},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "weir_run_epoch 1\n") }),
		Level:   &s.level, Tap: &s.tap,
	}
	if change != nil {
		change(&cfg, &d)
	}
	srv, err := server.NewDaemon(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(srv.Handler())
	t.Cleanup(s.Close)
	return s
}

func (s *stream) set(change func(*status.Snapshot)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	runs := []status.Snapshot{s.report.Runs[0]}
	change(&runs[0])
	s.report.Runs = runs
}

func operations(t *testing.T) (list []operation) {
	t.Helper()
	var doc struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(server.OpenAPIDaemon(), &doc); err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths {
		for method := range item {
			list = append(list, operation{strings.ToUpper(method), path})
		}
	}
	if len(list) != 8 {
		t.Fatalf("%d operations are described", len(list))
	}
	return list
}

// Every route of the description asks for a token, a host and an origin, /metrics and the tap among them; only /livez answers without a token.
func TestStreamKeepsStrangersOut(t *testing.T) {
	t.Parallel()
	const good = "0123456789abcdef0123456789abcdef"
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("alice "+good+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := server.ReadTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	s := newStream(t, func(c *server.Config, _ *server.Daemon) { c.Tokens = tokens })
	bearer := []string{"Authorization", "Bearer " + good}
	for _, op := range operations(t) {
		want := 401
		if op.path == "/livez" {
			want = 200
		}
		if got, _, _ := s.call(t, op.method, op.path, ""); got != want {
			t.Errorf("%s %s without a token: %d", op.method, op.path, got)
		}
		if got, _, _ := s.call(t, op.method, op.path+"?token="+good, ""); got != want {
			t.Errorf("%s %s?token=: %d", op.method, op.path, got)
		}
		if got, _, _ := s.call(t, op.method, op.path, "", append(bearer, "Host", "evil.example")...); got != 403 {
			t.Errorf("%s %s under another host: %d", op.method, op.path, got)
		}
		if got, _, _ := s.call(t, op.method, op.path, "", append(bearer, "Origin", "http://evil.example")...); got != 403 {
			t.Errorf("%s %s of another origin: %d", op.method, op.path, got)
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/vars", "/config", "/v1/runs", "/..%2f..%2fetc"} {
		if got, _, _ := s.call(t, "GET", path, "", bearer...); got != 404 {
			t.Errorf("%s: %d", path, got)
		}
	}
	if got, _, _ := s.call(t, "PUT", "/v1/loglevel", `{"level":"debug"}`, append(bearer, "Content-Type", "text/plain")...); got != 415 {
		t.Errorf("a write that is no JSON: %d", got)
	}
	if got, _, _ := s.call(t, "PUT", "/v1/loglevel", `{"level":"debug"}`, append(bearer, "Content-Type", "application/json")...); got != 200 {
		t.Errorf("a write by alice: %d", got)
	}
	if !strings.Contains(s.logged.String(), "by=alice") || strings.Contains(s.logged.String(), good) {
		t.Errorf("the log does not name who changed its level, or shows the token:\n%s", s.logged.String())
	}
}

// What is answered fits the description, and the description has every type.
func TestStreamAnswersFitTheDescription(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(server.OpenAPIDaemon()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	for path, name := range map[string]string{"/v1/status": "Report", "/v1/why": "Reasons", "/nowhere": "Problem"} {
		schema, err := c.Compile("openapi.json#/components/schemas/" + name)
		if err != nil {
			t.Fatal(err)
		}
		_, _, got := s.call(t, "GET", path, "")
		if err := schema.Validate(got); err != nil {
			t.Errorf("%s is no %s: %v", path, name, err)
		}
	}
	// What is filled in all over fits too.
	frozen, err := os.ReadFile(filepath.Join("..", "status", "testdata", "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(frozen, &got); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("openapi.json#/components/schemas/Report")
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(got); err != nil {
		t.Errorf("the frozen report is no Report: %v", err)
	}
}

// A run whose recovery is blocked lives and is not ready, and so is a partition that does not move; it says why.
func TestReadyAndLive(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	if got, _, doc := s.call(t, "GET", "/readyz?verbose", ""); got != 200 || doc["ready"] != true {
		t.Errorf("%d %v", got, doc)
	}
	for name, change := range map[string]func(*status.Snapshot){
		"OFFSET_LOST": func(r *status.Snapshot) {
			r.Phase, r.Cause = status.PhaseRecoveryBlocked, &status.Cause{Code: "OFFSET_LOST"}
		},
		status.WhyNoProgress: func(r *status.Snapshot) { r.Partitions = []status.Partition{{Stalled: true}} },
	} {
		s := newStream(t, nil)
		s.set(change)
		got, _, doc := s.call(t, "GET", "/readyz?verbose", "")
		if got != 503 || doc["ready"] != false || !strings.Contains(fmt.Sprint(doc["checks"]), name) {
			t.Errorf("%s: %d %v", name, got, doc)
		}
		if got, _, doc := s.call(t, "GET", "/readyz", ""); got != 503 || doc["checks"] != nil {
			t.Errorf("%s: %d %v", name, got, doc)
		}
		if got, _, _ := s.call(t, "GET", "/livez", ""); got != 200 {
			t.Errorf("%s: livez %d", name, got)
		}
		if _, _, doc := s.call(t, "GET", "/v1/why", ""); !strings.Contains(fmt.Sprint(doc["reasons"]), name) {
			t.Errorf("%s: why says %v", name, doc)
		}
	}
}

func TestLevelOfTheLog(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	s.level.Set(slog.LevelWarn)
	put := func(body string) (int, map[string]any) {
		got, _, doc := s.call(t, "PUT", "/v1/loglevel", body, "Content-Type", "application/json")
		return got, doc
	}
	if got, doc := put(`{"level":"debug"}`); got != 200 || doc["level"] != "debug" || s.level.Level() != slog.LevelDebug {
		t.Errorf("%d %v, %s", got, doc, s.level.Level())
	}
	for _, body := range []string{`{"level":"loud"}`, `{"level":"DEBUG"}`, `{}`, `"debug"`, `{"level":"debug","file":"/etc/passwd"}`, `{"level":"debug"}{}`, ``, `{`} {
		if got, doc := put(body); got != 400 || doc["code"] != "REQUEST_INVALID" {
			t.Errorf("%s: %d %v", body, got, doc)
		}
	}
	if got, _ := put(`{"level":"` + strings.Repeat("x", 10<<20) + `"}`); got != 413 {
		t.Errorf("10 MB: %d", got)
	}
	if s.level.Level() != slog.LevelDebug {
		t.Errorf("the level is %s after requests that were refused", s.level.Level())
	}
}

// open begins a tap, and returns once it is there.
func (s *stream) openTap(t *testing.T, query string) *bufio.Scanner {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/v1/tap"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %d", query, resp.StatusCode)
	}
	scan := bufio.NewScanner(resp.Body)
	scan.Buffer(nil, 1<<20)
	if !scan.Scan() || scan.Text() != ": open" {
		t.Fatalf("%s begins with %q", query, scan.Text())
	}
	return scan
}

// event is the next one of a stream; those that say what was left out are passed over.
func event(t *testing.T, scan *bufio.Scanner) (e server.TapEvent, raw string) {
	t.Helper()
	kind := ""
	for scan.Scan() {
		if name, ok := strings.CutPrefix(scan.Text(), "event: "); ok {
			kind = name
		}
		if data, ok := strings.CutPrefix(scan.Text(), "data: "); ok && kind != "left-out" {
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatal(err)
			}
			return e, data
		}
	}
	t.Fatal("the stream ended", scan.Err())
	return e, ""
}

func TestTap(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	if s.tap.Wants(server.TapRecord) {
		t.Error("somebody listens already")
	}
	all := s.openTap(t, "")
	late := s.openTap(t, "?kinds=late,quarantined&partition=1&rate=1000")
	now := time.Now()
	hostile := "<img onerror=alert(1)>\nevent: forged\ndata: {}\u202e\x1b[31m"
	s.tap.Publish(now, server.TapRecord, 0, func() server.TapEvent {
		return server.TapEvent{Position: "5", Key: server.NewTapText([]byte(hostile)), Value: server.NewTapText(bytes.Repeat([]byte("é"), 5000))}
	})
	s.tap.Publish(now, server.TapLate, 0, func() server.TapEvent { return server.TapEvent{Position: "6", Reason: "LATE"} })
	s.tap.Publish(now, server.TapLate, 1, func() server.TapEvent {
		return server.TapEvent{Position: "7", Reason: "LATE", Value: server.NewTapText([]byte{0xff, 0})}
	})
	e, raw := event(t, all)
	if e.Kind != "record" || e.Position != "5" || e.Key.Text != hostile || strings.ContainsAny(raw, "\n\x1b<") {
		t.Errorf("%+v, as %q", e, raw)
	}
	if e.Value.Bytes != 10_000 || len(e.Value.Text) > 4096 || strings.Trim(e.Value.Text, "é") != "" {
		t.Errorf("a long value has %d of %d bytes", len(e.Value.Text), e.Value.Bytes)
	}
	for _, want := range []string{"6", "7"} {
		if e, _ := event(t, all); e.Position != want {
			t.Errorf("%+v, want position %s", e, want)
		}
	}
	if e, _ := event(t, late); e.Position != "7" || e.Value.Base64 != "/wA=" || e.Partition != 1 {
		t.Errorf("%+v", e)
	}
}

// A stream gets no more than its rate, who publishes never waits, and only so many streams are open at a time.
func TestTapIsBounded(t *testing.T) {
	t.Parallel()
	s := newStream(t, nil)
	scan := s.openTap(t, "?rate=10")
	now, made := time.Now(), 0
	for i := range 100_000 {
		s.tap.Publish(now, server.TapRecord, 0, func() server.TapEvent {
			made++
			return server.TapEvent{Position: fmt.Sprint(i)}
		})
	}
	s.tap.Publish(now.Add(time.Second), server.TapOutput, 0, func() server.TapEvent { return server.TapEvent{} })
	got := 0
	for e, _ := event(t, scan); e.Kind != server.TapOutput; e, _ = event(t, scan) {
		got++
	}
	if got != 10 || made != 10 {
		t.Errorf("%d events of %d that were made came through, at a rate of 10", got, made)
	}
	for range 3 {
		s.openTap(t, "")
	}
	if code, _, doc := s.call(t, "GET", "/v1/tap", ""); code != 429 || doc["code"] != "TOO_MANY_REQUESTS" {
		t.Errorf("a fifth stream: %d %v", code, doc)
	}
	for _, query := range []string{"?kinds=all", "?rate=0", "?rate=99999", "?partition=-1", "?file=x"} {
		if code, _, doc := s.call(t, "GET", "/v1/tap"+query, ""); code != 400 || doc["code"] != "REQUEST_INVALID" {
			t.Errorf("%s: %d %v", query, code, doc)
		}
	}
	off := newStream(t, func(_ *server.Config, d *server.Daemon) { d.Tap = nil })
	if code, _, doc := off.call(t, "GET", "/v1/tap", ""); code != 403 || !strings.Contains(fmt.Sprint(doc["detail"]), "--tap") {
		t.Errorf("a tap that is off: %d %v", code, doc)
	}
}

// A tap that nobody listens to costs a load, and one that is nil nothing.
func TestTapWithoutListeners(t *testing.T) { // not parallel: it counts allocations
	var none *server.Tap
	none.Publish(time.Now(), server.TapRecord, 0, func() server.TapEvent { t.Error("made for nobody"); return server.TapEvent{} })
	var tap server.Tap
	n := testing.AllocsPerRun(1000, func() {
		tap.Publish(time.Time{}, server.TapRecord, 0, func() server.TapEvent { return server.TapEvent{} })
	})
	if n != 0 || none.Wants(server.TapRecord) {
		t.Errorf("%v allocations for nobody", n)
	}
}
