package server

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/status"
)

// Daemon is a stream that runs, as its process serves it.
//
//	GET  /v1/status      everything known about it at this moment
//	GET  /v1/why         what holds it, since when, and what would release it
//	GET  /v1/tap         records, outputs and what is set aside as they come, server-sent; only if the process was started with --tap
//	PUT  /v1/loglevel    debug, info, warn or error
//	GET  /metrics        for Prometheus
//	GET  /livez, /readyz probes; /readyz?verbose says what is wrong
//	GET  /v1/openapi.json
type Daemon struct {
	Report func() status.Report
	// Metrics serves /metrics.
	Metrics http.Handler
	// Level is the level of the log.
	Level *slog.LevelVar
	// Tap is nil when record data is not shown.
	Tap *Tap
}

// NewDaemon makes the server of a stream: of Config it needs no store, names or artifacts. The error carries codes.ConfigInvalid.
func NewDaemon(cfg Config, d Daemon) (*Server, error) { return build(cfg, &d) }

func (s *Server) daemonRoutes() []route {
	d := s.daemon
	return []route{
		{"GET", "/v1/status", "showStatus", "Everything known about the run at this moment", []int{200}, s.timed(d.status)},
		{"GET", "/v1/why", "showWhy", "What holds the run, since when, and what would release it", []int{200}, s.timed(d.why)},
		{"GET", "/v1/tap", "tap", "Records, outputs, late and other quarantined records as they come (server-sent events); off unless the process was started with --tap", []int{200, 400, 403, 429}, s.tap},
		{"PUT", "/v1/loglevel", "setLogLevel", "Change the level of the log: debug, info, warn or error", []int{200, 400, 413, 415}, s.timed(s.setLevel)},
		{"GET", "/metrics", "metrics", "Metrics in the text format of Prometheus", []int{200}, func(w http.ResponseWriter, r *http.Request) { d.Metrics.ServeHTTP(w, r) }},
		{"GET", "/v1/openapi.json", "describe", "This interface", []int{200}, s.openAPI},
		{"GET", "/livez", "live", "The process answers", []int{200}, s.live},
		{"GET", "/readyz", "ready", "The run does its work: 503 while its recovery is blocked, or a partition does not move although it could", []int{200, 503}, s.timed(d.ready)},
	}
}

func (d *Daemon) status(w http.ResponseWriter, _ *http.Request) error {
	return answerStruct(w, http.StatusOK, d.Report())
}

// Reasons is the answer of GET /v1/why.
type Reasons struct {
	Run     string          `json:"run"`
	Reasons []status.Reason `json:"reasons"`
}

func (d *Daemon) why(w http.ResponseWriter, _ *http.Request) error {
	r := d.Report()
	return answerStruct(w, http.StatusOK, Reasons{Run: r.Run, Reasons: r.Why()})
}

func (d *Daemon) ready(w http.ResponseWriter, r *http.Request) error {
	code := http.StatusOK
	ok, wrong := d.Report().Ready()
	if !ok {
		code = http.StatusServiceUnavailable
	}
	if _, verbose := r.URL.Query()["verbose"]; !verbose {
		return answer(w, code, map[string]any{"ready": ok})
	}
	checks := map[string]any{}
	for place, what := range wrong {
		checks[place] = what
	}
	return answer(w, code, map[string]any{"ready": ok, "checks": checks})
}

// answerStruct writes a document whose form is that of a Go type.
func answerStruct(w http.ResponseWriter, code int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return codes.New(codes.Internal, "the answer cannot be written as JSON: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(append(body, '\n'))
	return nil
}

// levels are the names of the levels of a log.
var levels = map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// ParseLevel reads the name of a level; the error carries codes.RequestInvalid.
func ParseLevel(name string) (slog.Level, error) {
	level, ok := levels[name]
	if !ok {
		return 0, codes.New(codes.RequestInvalid, "%.40q is no level of a log; the levels are debug, info, warn and error", name)
	}
	return level, nil
}

func (s *Server) setLevel(w http.ResponseWriter, r *http.Request) error {
	var asked struct {
		Level string `json:"level"`
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&asked); err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			return err
		}
		return codes.New(codes.RequestInvalid, `the body is not {"level": "debug"}`)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return codes.New(codes.RequestInvalid, "the body has more than one document")
	}
	level, err := ParseLevel(asked.Level)
	if err != nil {
		return err
	}
	before := s.daemon.Level.Level()
	s.daemon.Level.Set(min(before, level)) // so that the change itself is logged under both
	s.cfg.Logger.Info("the level of the log is changed", "from", strings.ToLower(before.String()), "to", asked.Level, "by", principalOf(r))
	s.daemon.Level.Set(level)
	return answer(w, http.StatusOK, map[string]any{"level": asked.Level})
}
