package kafkaclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/codes"
)

// trouble remembers why the last connection failed, since a request that runs out of time only says that it did.
type trouble struct {
	mu   sync.Mutex
	last error
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (t *trouble) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	t.mu.Lock()
	t.last = err
	t.mu.Unlock()
}

// cause is err, or what stands behind it when err only says that time ran out.
func (t *trouble) cause(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last != nil {
		return t.last
	}
	return err
}

// hint says in words what most often stands behind a failed connection of a client with this security.
func (c Security) hint(err error) string {
	var dns *net.DNSError
	var firstRead *kgo.ErrFirstReadEOF
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there; is the broker running?"
	case errors.As(err, &dns):
		return "the host name cannot be resolved"
	case certificate(err) != "":
		return certificate(err)
	case strings.Contains(err.Error(), "tls alert"):
		return "the broker speaks TLS; connect with --tls"
	case strings.Contains(err.Error(), "response size"):
		return "what listens there is not a Kafka broker"
	case errors.As(err, &firstRead), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.As(err, new(tls.RecordHeaderError)):
		return c.closedAtOnce(firstRead)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time; a firewall, or an address that cannot be reached from here?"
	}
	return "the connection failed"
}

// certificate says what is wrong with a broker's certificate, or "".
func certificate(err error) string {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &authority):
		return "the broker's certificate is not signed by an authority that is trusted here; name its authority with --tls-ca"
	case errors.As(err, &name):
		return "the broker's certificate is for another name than the one it was asked under; use that name in --brokers, or --tls-server-name"
	case errors.As(err, &invalid):
		return "the broker's certificate is not valid"
	}
	return ""
}

// closedAtOnce is for a broker that hangs up on the first words. What the client makes of it tells apart a broker that hung up after the
// connection was made and one that did so after the first request; if its words change, the last answer is still right.
func (c Security) closedAtOnce(first *kgo.ErrFirstReadEOF) string {
	says := func(text string) bool { return first != nil && strings.Contains(first.Error(), text) }
	switch {
	case c.TLS && c.Mechanism == NoLogin && says("SASL"):
		return "the broker closed the connection at the first request: it wants a login (--sasl)"
	case c.TLS:
		return "what listens there does not speak TLS, or is not a Kafka broker; without TLS, leave --tls out"
	}
	return "the broker closed the connection at once: it may want TLS (--tls) or a login (--sasl), or not be a Kafka broker"
}

// Unreachable is BROKER_UNREACHABLE with the addresses and the cause; ACCESS_DENIED if that is what the broker said; or the end of the
// caller's own context.
func (s *Session) Unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if denied := s.Denied(err); denied != nil {
		return denied
	}
	cause := s.trouble.cause(err)
	return codes.New(codes.BrokerUnreachable, "no broker answered at %s: %s (%w)", s.Addresses(), s.Security.hint(cause), cause)
}

// Denied is ACCESS_DENIED if that is what the broker said, else nil.
func (c Config) Denied(err error) error {
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return codes.New(codes.AccessDenied, "the broker does not know this user or password (%s): %w", c.Security.Mechanism, err)
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return codes.New(codes.AccessDenied, "the broker does not offer the mechanism %s: %w", c.Security.Mechanism, err)
	case errors.Is(err, kerr.IllegalSaslState):
		return codes.New(codes.AccessDenied, "the broker takes no login on this listener; leave --sasl out, or use another of its addresses: %w", err)
	}
	for _, e := range []error{kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.GroupAuthorizationFailed} {
		if errors.Is(err, e) {
			return codes.New(codes.AccessDenied, "the broker denied %s access to topic %q (weir needs %s): %w", c.Security.who(), c.Topic, cmp.Or(c.Rights, "Describe"), err)
		}
	}
	return nil
}

// DeniedGroup is ACCESS_DENIED for a consumer group if that is what the broker said, else nil.
func (c Config) DeniedGroup(group string, err error) error {
	if !errors.Is(err, kerr.GroupAuthorizationFailed) {
		return nil
	}
	return codes.New(codes.AccessDenied, "the broker denied %s access to the consumer group %q (weir needs Read): %w", c.Security.who(), group, err)
}

// who is the principal that a broker takes this client for, as far as the client knows.
func (s Security) who() string {
	if s.User == "" {
		return "this client"
	}
	return strconv.Quote(s.User)
}

// Missing is TOPIC_MISSING.
func (c Config) Missing() error {
	return codes.New(codes.TopicMissing, "topic %q does not exist on %s; check the spelling, or create it: weir creates no topic unasked", c.Topic, c.Addresses())
}
