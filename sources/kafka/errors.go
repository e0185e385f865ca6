package kafka

import (
	"context"
	"errors"
	"fmt"
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
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there; is the broker running?"
	case errors.As(err, &dns):
		return "the host name cannot be resolved"
	case strings.Contains(err.Error(), "tls alert"), strings.Contains(err.Error(), "first record does not look like a TLS handshake"):
		return "the broker speaks TLS, which this version of weir does not"
	case strings.Contains(err.Error(), "response size"):
		return "what listens there is not a Kafka broker"
	case errors.As(err, &firstRead), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "the broker closed the connection at once; it may expect TLS or SASL, which this version of weir does not speak, or not be a Kafka broker"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return "no answer in time; a firewall, or an address that cannot be reached from here?"
	}
	return "the connection failed"
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

// unreachable is BROKER_UNREACHABLE with the addresses and the cause, or the end of the caller's own context.
func (c Config) unreachable(ctx context.Context, t *trouble, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if denied := c.denied(err); denied != nil {
		return denied
	}
	cause := t.cause(err)
	return codes.New(codes.BrokerUnreachable, "no broker answered at %s: %s (%w)", addresses(c.Brokers), hint(cause), cause)
}

// denied is ACCESS_DENIED if that is what the broker said, else nil.
func (c Config) denied(err error) error {
	for _, e := range []error{kerr.TopicAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.SaslAuthenticationFailed} {
		if errors.Is(err, e) {
			return codes.New(codes.AccessDenied, "the broker denied access to topic %q: %w", c.Topic, err)
		}
	}
	return nil
}

func (c Config) missing() error {
	return codes.New(codes.TopicMissing, "topic %q does not exist on %s; weir does not create input topics: check the spelling, or create it", c.Topic, addresses(c.Brokers))
}

func (c Config) recreated(was, is topicID) error {
	now := "and no topic of that name is there now"
	if is != (topicID{}) {
		now = fmt.Sprintf("it is %s now", is)
	}
	return codes.New(codes.TopicRecreated, "topic %q was deleted and created again: the run reads topic id %s, %s; the old positions mean nothing in the new topic", c.Topic, was, now)
}

// poison is POISON_BATCH for an error in the bytes of a batch.
func (c Config) poison(partition int32, next int64, err error) error {
	var large *kgo.ErrDecompressTooLarge
	if errors.As(err, &large) {
		return codes.New(codes.PoisonBatch, "topic %q partition %d offset %d: the batch decompresses to more than %d bytes; the log goes on at offset %d after it",
			c.Topic, partition, large.Offset, c.BatchBytes, large.NextOffset)
	}
	return codes.New(codes.PoisonBatch, "topic %q partition %d: the batch at or after offset %d cannot be read: %w", c.Topic, partition, next, err)
}
