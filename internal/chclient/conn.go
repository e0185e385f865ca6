package chclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/weirstream/weir/secret"
)

// revision of the protocol that this client speaks at most, and that a server must speak at least.
const revision = 54401

// Config of a connection.
type Config struct {
	// Address is host:port of the native protocol, 9000 usually, or 9440 with TLS.
	Address string
	// Database and User default to "default".
	Database, User string
	Password       secret.Text
	// TLS, unless nil, encrypts the connection. ServerName defaults to the host of Address.
	TLS *tls.Config
	// ConnectTimeout bounds connecting and logging in, Timeout each call. They default to 5 s and 30 s.
	ConnectTimeout, Timeout time.Duration
	// Dial, unless nil, connects instead of a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Conn is a connection. It is used by one goroutine.
type Conn struct {
	conn    net.Conn
	in      reader
	out     []byte
	timeout time.Duration
	broken  bool
	// Server is the version of the server, such as 18.16.1.
	Server string
}

// Exception is an error that the server told.
type Exception struct {
	// Code is the server's number of the error, such as 60 for an unknown table.
	Code int32
	// Message is the server's text, which may be long and of several lines.
	Message string
}

// Error implements error.
func (e *Exception) Error() string { return fmt.Sprintf("ClickHouse error %d: %s", e.Code, e.Message) }

// ErrProtocol means that what came is not the native protocol, or a part of it that nobody asked for.
var ErrProtocol = errors.New("not an answer of ClickHouse's native protocol")

// Connect connects and logs in.
func Connect(ctx context.Context, cfg Config) (*Conn, error) {
	if cfg.ConnectTimeout <= 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
	defer cancel()
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	conn, err := dial(ctx, "tcp", cfg.Address)
	if err != nil {
		return nil, err
	}
	if cfg.TLS != nil {
		secured := cfg.TLS.Clone()
		if secured.ServerName == "" {
			secured.ServerName, _, _ = net.SplitHostPort(cfg.Address) // it was dialled
		}
		over := tls.Client(conn, secured)
		if err := over.HandshakeContext(ctx); err != nil {
			_ = conn.Close() // the reason says more
			return nil, err
		}
		conn = over
	}
	c := &Conn{conn: conn, in: reader{Reader: bufio.NewReaderSize(conn, 32<<10)}, timeout: cfg.Timeout}
	if err := c.bounded(ctx, func() error { return c.hello(cfg) }); err != nil {
		_ = conn.Close() // the reason says more
		return nil, err
	}
	return c, nil
}

// Broken says that the connection is of no use any more.
func (c *Conn) Broken() bool { return c.broken }

// Close closes the connection.
func (c *Conn) Close() error {
	c.broken = true
	return c.conn.Close()
}

var errBroken = errors.New("the connection was given up after an error")

// bounded does something with the connection within the time-out, and until ctx ends. An error that is not an Exception leaves it broken.
func (c *Conn) bounded(ctx context.Context, do func() error) error {
	if c.broken {
		return errBroken
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	deadline := time.Now().Add(c.timeout)
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		c.broken = true
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) }) // one that is closed needs none
	err := do()
	if !stop() {
		// The deadline is the past by now, or will be at any moment.
		c.broken = true
	}
	var told *Exception
	if err != nil && !errors.As(err, &told) {
		c.broken = true
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return err
}

// hello logs in:
//
//	0 │ client name │ major │ minor │ revision │ database │ user │ password
//	0 │ server name │ major │ minor │ revision │ time zone │ display name │ patch
func (c *Conn) hello(cfg Config) error {
	or := func(text, other string) string {
		if text == "" {
			return other
		}
		return text
	}
	b := append(c.out[:0], 0)
	b = AppendString(b, []byte("weir"))
	b = append(b, 1, 0)
	b = appendUvarint(b, revision)
	b = AppendString(b, []byte(or(cfg.Database, "default")))
	b = AppendString(b, []byte(or(cfg.User, "default")))
	b = AppendString(b, []byte(cfg.Password.Reveal()))
	if err := c.write(b); err != nil {
		return err
	}
	clear(b) // it has the password
	switch kind := c.in.uvarint(); {
	case c.in.err != nil:
		return c.in.err
	case kind == serverException:
		return c.exception()
	case kind != serverHello:
		return ErrProtocol
	}
	c.in.text()
	major, minor, spoken := c.in.uvarint(), c.in.uvarint(), c.in.uvarint()
	if c.in.err == nil && spoken < revision {
		return fmt.Errorf("%w: the server is %d.%d and speaks revision %d; 18.4 or later is needed", ErrProtocol, major, minor, spoken)
	}
	c.in.text()
	c.in.text()
	c.Server = fmt.Sprintf("%d.%d.%d", major, minor, c.in.uvarint())
	return c.in.err
}

// write writes and keeps the memory.
func (c *Conn) write(b []byte) error {
	c.out = b[:0]
	_, err := c.conn.Write(b)
	return err
}

// exception reads what follows the kind of a packet: code, name, message, stack, whether another follows.
func (c *Conn) exception() error {
	var first *Exception
	for {
		e := &Exception{Code: int32(c.in.fixed(4))}
		c.in.text()
		e.Message = c.in.text()
		c.in.text()
		more := c.in.fixed(1)
		if c.in.err != nil {
			return c.in.err
		}
		if first == nil {
			first = e
		}
		if more == 0 {
			return first
		}
	}
}
