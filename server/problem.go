package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// problem is an error as RFC 9457 has it. It holds what the caller may know.
type problem struct {
	status       int
	code, detail string
}

func (p problem) Error() string { return p.code + ": " + p.detail }

// Codes of requests that never reach the store.
const (
	codeUnauthorized = "UNAUTHORIZED"
	codeForbidden    = "FORBIDDEN"
	codeNotFound     = "NOT_FOUND"
	codeMethod       = "METHOD_NOT_ALLOWED"
	codeMediaType    = "UNSUPPORTED_MEDIA_TYPE"
	codeTooLarge     = "BODY_TOO_LARGE"
	codeTooMany      = "TOO_MANY_REQUESTS"
	codeInternal     = "INTERNAL"
)

// statuses of the codes that the store and the catalogue give.
var statuses = map[*codes.Code]int{
	codes.IdempotencyConflict: http.StatusConflict,
	codes.RunUnknown:          http.StatusNotFound,
	codes.NameUnknown:         http.StatusUnprocessableEntity,
	codes.NameInvalid:         http.StatusUnprocessableEntity,
	codes.RequestInvalid:      http.StatusBadRequest,
	codes.StoreUnavailable:    http.StatusServiceUnavailable,
	codes.BlobMissing:         http.StatusNotFound,
}

// toProblem says what of an error a caller may know: the code always, the text only where it is about the request itself.
func toProblem(err error) problem {
	var p problem
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &big):
		return problem{http.StatusRequestEntityTooLarge, codeTooLarge, "the body is larger than this server takes"}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return problem{http.StatusServiceUnavailable, codes.StoreUnavailable.Name, "the request was not finished in time"}
	}
	c := codes.Of(err)
	if c == nil {
		return problem{http.StatusInternalServerError, codeInternal, codes.Internal.Meaning}
	}
	status, ok := statuses[c]
	if !ok {
		return problem{http.StatusInternalServerError, c.Name, c.Meaning}
	}
	if status >= http.StatusInternalServerError {
		return problem{status, c.Name, c.Meaning}
	}
	if c == codes.RunUnknown {
		return problem{status, c.Name, "there is no run of this id"} // the store's message names its own place
	}
	var e *codes.Error
	errors.As(err, &e)
	return problem{status, c.Name, e.Msg}
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := toProblem(err)
	if p.status >= http.StatusInternalServerError {
		s.cfg.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "status", p.status, "cause", err.Error())
	}
	body, _ := record.AppendJSON(nil, map[string]any{
		"type": "about:blank", "title": http.StatusText(p.status), "status": p.status, "code": p.code, "detail": p.detail,
	})
	if p.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	}
	if p.status == http.StatusServiceUnavailable || p.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.status)
	w.Write(append(body, '\n'))
}
