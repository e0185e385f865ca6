package server

import (
	"net/http"
)

// route is one operation of the interface: what the multiplexer, the description and the tests know of it.
type route struct {
	method, path string
	id, summary  string
	// answers are the statuses it may give beside those that every route may.
	answers []int
	handler http.HandlerFunc
}

func (r route) pattern() string { return r.method + " " + r.path }

func (s *Server) routes() []route {
	if s.daemon != nil {
		return s.daemonRoutes()
	}
	return []route{
		{"POST", "/v1/runs", "admitRun", "Admit a run of a registered flow over a registered snapshot", []int{200, 201, 400, 409, 413, 415, 422}, s.timed(s.admit)},
		{"GET", "/v1/runs", "listRuns", "A page of runs, newest first", []int{200, 400}, s.timed(s.list)},
		{"GET", "/v1/runs/{id}", "showRun", "One run", []int{200, 404}, s.timed(s.show)},
		{"POST", "/v1/runs/{id}/cancel", "cancelRun", "Ask that a run not start; one that has started is not touched", []int{200, 404, 415}, s.timed(s.cancel)},
		{"GET", "/v1/runs/{id}/result", "showResult", "What a run has published", []int{200, 404}, s.timed(s.result)},
		{"GET", "/v1/artifacts/{hash}", "readArtifact", "A document by the hex digits of its SHA-256", []int{200, 404, 422}, s.artifact},
		{"GET", "/v1/flows", "listFlows", "Names of the registered flows", []int{200}, s.timed(s.names(func() ([]string, error) { return s.cfg.Names.Flows() }))},
		{"GET", "/v1/snapshots", "listSnapshots", "Names of the registered snapshots", []int{200}, s.timed(s.names(func() ([]string, error) { return s.cfg.Names.Snapshots() }))},
		{"GET", "/v1/events", "watchRuns", "Phases of runs as they change (server-sent events)", []int{200, 429}, s.events},
		{"GET", "/v1/openapi.json", "describe", "This interface", []int{200}, s.openAPI},
		{"GET", "/livez", "live", "The process answers", []int{200}, s.live},
		{"GET", "/readyz", "ready", "The store answers", []int{200, 503}, s.timed(s.ready)},
	}
}

// timed bounds the time of a request and turns the error of a handler into a problem.
func (s *Server) timed(fn func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := contextWithTimeout(r, requestTimeout)
		defer cancel()
		if err := fn(w, r.WithContext(ctx)); err != nil {
			s.fail(w, r, err)
		}
	}
}

// noRoute says whether the path is wrong or only the method.
func (s *Server) noRoute(r *http.Request) error {
	for _, known := range s.routes() {
		if known.method != r.Method && samePath(known.path, r.URL.Path) {
			return problem{http.StatusMethodNotAllowed, codeMethod, "this address does not know the method " + r.Method}
		}
	}
	return problem{http.StatusNotFound, codeNotFound, "there is nothing at this address; GET /v1/openapi.json describes what is"}
}
