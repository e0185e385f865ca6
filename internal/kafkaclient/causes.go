package kafkaclient

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
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

// hint says in words what most often stands behind a failed connection.
func hint(err error) string {
	var dns *net.DNSError
	var firstRead *kgo.ErrFirstReadEOF
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there; is the broker running?"
	case errors.As(err, &dns):
		return "the host name cannot be resolved"
	case strings.Contains(err.Error(), "tls alert"):
		return "the broker speaks TLS, which this version of weir does not"
	case strings.Contains(err.Error(), "response size"):
		return "what listens there is not a Kafka broker"
	case errors.As(err, &firstRead), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "the broker closed the connection at once; it may expect TLS or SASL, which this version of weir does not speak, or not be a Kafka broker"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time; a firewall, or an address that cannot be reached from here?"
	}
	return "the connection failed"
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
	return codes.New(codes.BrokerUnreachable, "no broker answered at %s: %s (%w)", s.Addresses(), hint(cause), cause)
}

// Denied is ACCESS_DENIED if that is what the broker said, else nil.
func (c Config) Denied(err error) error {
	for _, e := range []error{kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.SaslAuthenticationFailed} {
		if errors.Is(err, e) {
			return codes.New(codes.AccessDenied, "the broker denied access to topic %q: %w", c.Topic, err)
		}
	}
	return nil
}

// Missing is TOPIC_MISSING.
func (c Config) Missing() error {
	return codes.New(codes.TopicMissing, "topic %q does not exist on %s; check the spelling, or create it: weir creates no topic unasked", c.Topic, c.Addresses())
}
