package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirstream/weir/codes"
)

// Limits of connections.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeader         = 16 << 10
	// requestTimeout bounds everything but streams and artifacts.
	requestTimeout = 15 * time.Second
	// drainTimeout is how long requests may take to end when the server stops.
	drainTimeout = 5 * time.Second
)

// Server is the HTTP API.
type Server struct {
	cfg     Config
	handler http.Handler
	streams atomic.Int64
	guard   *guard
	// daemon is nil unless this is the server of a stream.
	daemon *Daemon
}

// New makes a server. The error carries codes.ConfigInvalid.
func New(cfg Config) (*Server, error) { return build(cfg, nil) }

func build(cfg Config, d *Daemon) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, guard: newGuard(), daemon: d}
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		mux.HandleFunc(r.pattern(), r.handler)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { s.fail(w, r, s.noRoute(r)) })
	s.handler = s.recovered(s.secured(mux))
	return s, nil
}

// Handler is the API as a handler, with every check.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve answers until ctx ends, then lets the requests in hand end. ready is called with the address once it listens. Errors carry
// codes.PortInUse or codes.Internal.
func (s *Server) Serve(ctx context.Context, ready func(addr string)) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.cfg.Listen)
	if err != nil {
		return codes.New(codes.PortInUse, "cannot listen on %s: %w", s.cfg.Listen, err)
	}
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		TLSConfig: s.cfg.TLS, BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog: slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
	}
	ended := make(chan error, 1)
	go func() {
		if s.cfg.TLS != nil {
			ended <- server.ServeTLS(listener, "", "")
			return
		}
		ended <- server.Serve(listener)
	}()
	if ready != nil {
		ready(listener.Addr().String())
	}
	select {
	case err := <-ended:
		return codes.New(codes.Internal, "the server ended: %w", err)
	case <-ctx.Done():
	}
	within, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	drained := make(chan error, 1)
	server.RegisterOnShutdown(stop) // streams end at once
	go func() { drained <- server.Shutdown(within) }()
	if err := <-drained; err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return codes.New(codes.Internal, "the server did not stop well: %w", err)
	}
	return server.Close()
}
