package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

// Operation is the operation of the scope under which runs of this API are admitted.
const Operation = "batch"

// The phases that a list may be filtered by.
var phases = []control.RunPhase{control.Queued, control.Running, control.Succeeded, control.Failed, control.Cancelled}

func contextWithTimeout(r *http.Request, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), d)
}

func samePath(pattern, path string) bool {
	a, b := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && !strings.HasPrefix(a[i], "{") {
			return false
		}
	}
	return true
}

// answer writes one canonical document.
func answer(w http.ResponseWriter, status int, v any) error {
	body, err := record.AppendJSON(nil, v)
	if err != nil {
		return codes.New(codes.Internal, "the answer cannot be written as JSON: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
	return nil
}

// asked is the body of POST /v1/runs.
type asked struct {
	Flow     string `json:"flow"`
	Snapshot string `json:"snapshot"`
}

func (s *Server) admit(w http.ResponseWriter, r *http.Request) error {
	key := r.Header.Get("Idempotency-Key")
	switch {
	case len(r.Header.Values("Idempotency-Key")) > 1:
		return problem{http.StatusBadRequest, codes.RequestInvalid.Name, "the header Idempotency-Key is there several times: a request has one key"}
	case key == "":
		return problem{http.StatusBadRequest, codes.RequestInvalid.Name, "the header Idempotency-Key is missing: choose a key for this request, so that it can be sent again"}
	}
	body, a, err := readAsked(r.Body)
	if err != nil {
		return err
	}
	run, created, err := Admit(r.Context(), s.cfg.Store, control.Request{
		Principal: principalOf(r), Operation: Operation, Key: key, Body: body, Flow: a.Flow, Snapshot: a.Snapshot,
	}, errors.Join(s.cfg.Names.CheckFlow(a.Flow), s.cfg.Names.CheckSnapshot(a.Snapshot)))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	w.Header().Set("Location", "/v1/runs/"+run.ID)
	return answer(w, status, Document(run))
}

// Admit admits a run whose names were checked, with this result: a request that was admitted before is the same run still, even if its flow or snapshot is
// not registered any more.
func Admit(ctx context.Context, store control.Admission, r control.Request, names error) (run control.BatchRun, created bool, err error) {
	if names == nil {
		return store.Admit(ctx, r)
	}
	if run, err = store.LookupRun(ctx, control.RunIDOf(r)); codes.Has(err, codes.RunUnknown) {
		err = names
	}
	return run, false, err
}

// readAsked reads the body strictly and brings it to canonical form: the same request gives the same bytes, whatever its spelling.
func readAsked(in io.Reader) ([]byte, asked, error) {
	var a asked
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, a, err
	}
	body, err := record.Canonical(text)
	if err != nil {
		return nil, a, problem{http.StatusBadRequest, codes.RequestInvalid.Name, "the body is not strict JSON: " + err.Error()}
	}
	dec := json.NewDecoder(strings.NewReader(string(body)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil || a.Flow == "" || a.Snapshot == "" {
		return nil, a, problem{http.StatusBadRequest, codes.RequestInvalid.Name, `the body must be {"flow": NAME, "snapshot": NAME}, with nothing else`}
	}
	return body, a, nil
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	f, err := filterOf(r)
	if err != nil {
		return err
	}
	runs, next, err := s.cfg.Store.ListRuns(r.Context(), f)
	if err != nil {
		return err
	}
	rows := make([]any, len(runs))
	for i, run := range runs {
		rows[i] = Document(run)
	}
	return answer(w, http.StatusOK, map[string]any{"runs": rows, "next": textOrNull(next)})
}

func filterOf(r *http.Request) (control.RunFilter, error) {
	var f control.RunFilter
	for name, values := range r.URL.Query() {
		value := values[0]
		switch name {
		case "principal":
			f.Principal = value
		case "cursor":
			f.Cursor = value
		case "phase":
			var err error
			if f.Phase, err = ParsePhase(value); err != nil {
				return f, problem{http.StatusBadRequest, codes.RequestInvalid.Name, err.Error()}
			}
		case "limit":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > control.MaxPage {
				return f, problem{http.StatusBadRequest, codes.RequestInvalid.Name, "limit is a number from 1 to " + strconv.Itoa(control.MaxPage)}
			}
			f.Limit = n
		default:
			return f, problem{http.StatusBadRequest, codes.RequestInvalid.Name, "the parameters are principal, phase, limit and cursor"}
		}
	}
	return f, nil
}

// ParsePhase reads a phase, in any case; "" is every phase.
func ParsePhase(text string) (control.RunPhase, error) {
	p := control.RunPhase(strings.ToUpper(text))
	if text == "" || slices.Contains(phases, p) {
		return p, nil
	}
	return "", errors.New("a phase is QUEUED, RUNNING, SUCCEEDED, FAILED or CANCELLED")
}

func (s *Server) show(w http.ResponseWriter, r *http.Request) error {
	run, err := s.cfg.Store.LookupRun(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, Document(run))
}

func (s *Server) cancel(w http.ResponseWriter, r *http.Request) error {
	run, err := s.cfg.Store.CancelRun(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	s.cfg.Logger.Info("cancellation asked", "run", run.ID, "principal", principalOf(r), "phase", string(run.Phase))
	return answer(w, http.StatusOK, Document(run))
}

// result is the publication of a run, byte for byte.
func (s *Server) result(w http.ResponseWriter, r *http.Request) error {
	run, err := s.cfg.Store.LookupRun(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	key := control.ResultKey(run.ID)
	var value []byte
	err = s.cfg.Store.Publications(r.Context(), key, func(p control.Publication, _ string) error {
		if p.Key == key {
			value = append([]byte(nil), p.Value...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if value == nil {
		return problem{http.StatusNotFound, codeNotFound, "the run is " + string(run.Phase) + " and has published nothing"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(value, '\n'))
	return nil
}

// Document is a run as the API and the command line show it.
func Document(run control.BatchRun) map[string]any {
	refs := make([]any, len(run.ResultRefs))
	for i, ref := range run.ResultRefs {
		refs[i] = ref
	}
	return map[string]any{
		"id": run.ID, "principal": run.Principal, "operation": run.Operation, "flow": run.Flow, "snapshot": run.Snapshot, "phase": string(run.Phase),
		"run_revision": run.Revision, "result_refs": refs, "error": textOrNull(run.Error), "cancel_requested": run.CancelRequested,
		"created": stamp(run.Created), "updated": stamp(run.Updated),
	}
}

func stamp(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return record.EventTime(t.UnixNano()).String()
}

func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
