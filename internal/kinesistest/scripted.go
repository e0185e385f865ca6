package kinesistest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// Answer is what a scripted Kinesis says to one call: a document, or an error of Kinesis by its type.
type Answer struct {
	Out  any
	Type string
}

// Scripted is an HTTP client behind which a script answers instead of Kinesis, for what the emulator does not show. Give it to the SDK as its
// HTTPClient. Calls are answered one at a time.
type Scripted struct {
	// Answer gets the operation, such as "ListShards", and the request's document.
	Answer func(operation string, in map[string]any) Answer

	mu    sync.Mutex
	calls []string
}

// Calls are the operations that were asked for, in order.
func (s *Scripted) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.calls...)
}

// Do answers a request.
func (s *Scripted) Do(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	_, operation, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	in := map[string]any{}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("kinesistest: the request is no JSON: %w", err)
	}
	s.mu.Lock()
	s.calls = append(s.calls, operation)
	a := s.Answer(operation, in)
	s.mu.Unlock()
	status, out := http.StatusOK, a.Out
	if a.Type != "" {
		status, out = http.StatusBadRequest, map[string]any{"__type": a.Type, "message": "scripted"}
	}
	if out == nil {
		out = map[string]any{}
	}
	doc, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/x-amz-json-1.1"}}, Request: req,
		Body: io.NopCloser(bytes.NewReader(doc)), ContentLength: int64(len(doc)),
	}, nil
}

// ServeHTTP answers over a connection, for a client in another process.
func (s *Scripted) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	out, err := s.Do(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer out.Body.Close()
	w.Header().Set("Content-Type", out.Header.Get("Content-Type"))
	w.WriteHeader(out.StatusCode)
	_, _ = io.Copy(w, out.Body)
}
