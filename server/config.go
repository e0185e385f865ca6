package server

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// Store is what the API needs of a control store.
type Store interface {
	control.Admission
	// ListLeases answers the readiness probe: it is a cheap read.
	ListLeases(ctx context.Context) ([]control.LeaseInfo, error)
	Publications(ctx context.Context, prefix string, fn func(p control.Publication, digest string) error) error
}

// Names are the registered flows and snapshots.
type Names interface {
	Flows() ([]string, error)
	Snapshots() ([]string, error)
	CheckFlow(name string) error
	CheckSnapshot(name string) error
}

// Artifacts are documents by content address (64 hex digits). Get verifies what it reads.
type Artifacts interface {
	Get(ctx context.Context, name string) (io.ReadCloser, int64, error)
	Has(ctx context.Context, name string) (bool, error)
}

// Config of a server.
type Config struct {
	Store     Store
	Names     Names
	Artifacts Artifacts
	// Listen is HOST:PORT. Defaults to 127.0.0.1:8787.
	Listen string
	// Tokens, unless nil, are the principals that may come in. Without them everybody on this machine is the principal "local".
	Tokens *Tokens
	// TLS is needed on an address that is not loopback.
	TLS *tls.Config
	// Hosts are further names under which the server is reached, beside its address and localhost.
	Hosts []string
	// MaxBody bounds the body of a request in bytes. Defaults to 64 KiB.
	MaxBody int64
	// MaxStreams bounds the event streams at one time. Defaults to 64.
	MaxStreams int
	// Poll is how often event streams look for changes. Defaults to 1 s.
	Poll   time.Duration
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.Listen == "" {
		c.Listen = "127.0.0.1:8787"
	}
	if c.MaxBody <= 0 {
		c.MaxBody = 64 << 10
	}
	if c.MaxStreams <= 0 {
		c.MaxStreams = 64
	}
	if c.Poll <= 0 {
		c.Poll = time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return c, codes.New(codes.ConfigInvalid, "the address %q to listen on is not HOST:PORT", c.Listen)
	}
	if !loopback(host) && (c.Tokens == nil || c.TLS == nil) {
		return c, codes.New(codes.ConfigInvalid, "%s is not loopback: it needs a token file (--tokens) and a TLS certificate with its key", c.Listen)
	}
	return c, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// hosts are the names under which a request may ask for us.
func (c Config) hosts() []string {
	host, _, _ := net.SplitHostPort(c.Listen)
	return slices.Concat([]string{"localhost", "127.0.0.1", "::1", host}, c.Hosts)
}
