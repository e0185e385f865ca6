package server

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// artifactTimeout bounds the writing of one artifact.
const artifactTimeout = 10 * time.Minute

// artifact streams a document. What turns out damaged ends in the middle, never as a whole answer: the length was announced.
func (s *Server) artifact(w http.ResponseWriter, r *http.Request) {
	// A reference as results give it, sha256:HEX, is taken too.
	hash := strings.TrimPrefix(r.PathValue("hash"), record.HashPrefix)
	in, size, err := s.cfg.Artifacts.Get(r.Context(), hash)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	defer in.Close()
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(artifactTimeout))
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("ETag", `"sha256:`+hash+`"`)
	if _, err := io.Copy(w, in); err != nil {
		s.cfg.Logger.Error("an artifact could not be sent whole", "artifact", hash, "cause", err.Error())
		panic(http.ErrAbortHandler)
	}
}

func (s *Server) names(list func() ([]string, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, _ *http.Request) error {
		names, err := list()
		if err != nil {
			return err
		}
		rows := make([]any, len(names))
		for i, n := range names {
			rows[i] = n
		}
		return answer(w, http.StatusOK, map[string]any{"names": rows})
	}
}

func (s *Server) live(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, "ok\n")
}

// ready asks the store. With ?verbose it says what it found.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) error {
	status, store := http.StatusOK, "ok"
	if _, err := s.cfg.Store.ListLeases(r.Context()); err != nil {
		s.cfg.Logger.Warn("not ready", "cause", err.Error())
		status, store = http.StatusServiceUnavailable, toProblem(err).code
	}
	if _, verbose := r.URL.Query()["verbose"]; verbose {
		return answer(w, status, map[string]any{"ready": status == http.StatusOK, "checks": map[string]any{"store": store}})
	}
	return answer(w, status, map[string]any{"ready": status == http.StatusOK})
}

// watched is how many of the newest runs an event stream looks at.
const watched = control.MaxPage

// events tells phases as they change. It begins with the runs that stand, so that a client that comes back misses nothing that matters.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if s.streams.Add(1) > int64(s.cfg.MaxStreams) {
		s.streams.Add(-1)
		s.fail(w, r, problem{http.StatusTooManyRequests, codeTooMany, "too many event streams are open"})
		return
	}
	defer s.streams.Add(-1)
	control := http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	seen := map[string]string{}
	tick := time.NewTicker(s.cfg.Poll)
	defer tick.Stop()
	for {
		control.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if err := s.changes(w, r, seen); err != nil {
			s.cfg.Logger.Warn("an event stream ends", "cause", err.Error())
			return
		}
		if control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// changes writes an event for every run whose phase or revision is another than before, oldest first, or a comment that keeps the connection.
func (s *Server) changes(w http.ResponseWriter, r *http.Request, seen map[string]string) error {
	runs, _, err := s.cfg.Store.ListRuns(r.Context(), control.RunFilter{Limit: watched})
	if err != nil {
		return err
	}
	wrote := false
	for i := len(runs) - 1; i >= 0; i-- {
		run := runs[i]
		state := fmt.Sprint(run.Phase, run.Revision, run.CancelRequested)
		if seen[run.ID] == state {
			continue
		}
		seen[run.ID] = state
		data, err := record.AppendJSON(nil, Document(run))
		if err != nil {
			return codes.New(codes.Internal, "an event cannot be written as JSON: %w", err)
		}
		if _, err := fmt.Fprintf(w, "event: run\ndata: %s\n\n", data); err != nil {
			return err
		}
		wrote = true
	}
	if !wrote {
		_, err = io.WriteString(w, ": nothing new\n\n")
	}
	return err
}
