package server

import (
	"context"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// local is the principal of a server without tokens.
const local = "local"

type principalKey struct{}

// principalOf is who asks.
func principalOf(r *http.Request) string {
	name, _ := r.Context().Value(principalKey{}).(string)
	return name
}

// secured checks host, origin, principal, media type and size before any route sees a request.
func (s *Server) secured(next http.Handler) http.Handler {
	hosts := s.cfg.hosts()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		if err := checkOrigin(r, hosts); err != nil {
			s.fail(w, r, err)
			return
		}
		name, err := s.authenticate(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if err := checkBody(r); err != nil {
			s.fail(w, r, err)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, s.cfg.MaxBody)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), principalKey{}, name)))
	})
}

// checkOrigin keeps pages of other sites out, whatever name they have given to our address.
func checkOrigin(r *http.Request, hosts []string) error {
	if !slices.Contains(hosts, hostname(r.Host)) {
		return problem{http.StatusForbidden, codeForbidden, "the host of the request is not this server"}
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host != r.Host {
		return problem{http.StatusForbidden, codeForbidden, "requests of pages of another origin are not answered"}
	}
	return nil
}

func hostname(hostport string) string {
	if host, _, err := net.SplitHostPort(hostport); err == nil {
		return host
	}
	return strings.Trim(hostport, "[]")
}

func (s *Server) authenticate(r *http.Request) (string, error) {
	if s.cfg.Tokens == nil {
		return local, nil
	}
	if r.URL.Path == "/livez" {
		return "", nil
	}
	from := hostname(r.RemoteAddr)
	if !s.guard.allows(from) {
		return "", problem{http.StatusTooManyRequests, codeTooMany, "too many requests with a wrong token"}
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		if name, ok := s.cfg.Tokens.principal(strings.TrimSpace(token)); ok {
			return name, nil
		}
		s.guard.failed(from)
	}
	return "", problem{http.StatusUnauthorized, codeUnauthorized, "a bearer token of this server is needed"}
}

// checkBody takes JSON alone, so that no form of a page can write.
func checkBody(r *http.Request) error {
	if r.Method != http.MethodPost && r.Method != http.MethodPut || r.ContentLength == 0 && r.Header.Get("Content-Type") == "" && strings.HasSuffix(r.URL.Path, "/cancel") {
		return nil
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" {
		return problem{http.StatusUnsupportedMediaType, codeMediaType, "the body must be application/json"}
	}
	return nil
}

// recovered turns a panic into a problem without a stack; the log gets the value alone.
func (s *Server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil || v == http.ErrAbortHandler {
				return
			}
			s.cfg.Logger.Error("a handler panicked", "method", r.Method, "path", r.URL.Path, "value", v)
			s.fail(w, r, problem{http.StatusInternalServerError, codeInternal, "the request could not be answered"})
		}()
		next.ServeHTTP(w, r)
	})
}

// guard slows down whoever tries tokens: so many wrong ones in a window, then none is looked at until it is over.
type guard struct {
	mu    sync.Mutex
	now   func() time.Time
	since time.Time
	tries map[string]int
}

const (
	guardWindow = time.Minute
	guardTries  = 20
	guardHosts  = 10_000
)

func newGuard() *guard { return &guard{now: time.Now, tries: map[string]int{}} }

func (g *guard) allows(from string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := g.now(); now.Sub(g.since) > guardWindow {
		g.since = now
		clear(g.tries)
	}
	return g.tries[from] < guardTries
}

func (g *guard) failed(from string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.tries) < guardHosts {
		g.tries[from]++
	}
}
