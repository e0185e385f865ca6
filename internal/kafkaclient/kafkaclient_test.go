package kafkaclient

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
)

func TestBackoffIsCapped(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{1: 50 * time.Millisecond, 2: 100 * time.Millisecond, 5: 800 * time.Millisecond, 6: time.Second, 1000: time.Second} {
		if got := backoff(failures); got != want {
			t.Errorf("after %d failures: %v, want %v", failures, got, want)
		}
	}
}

func TestHints(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"is the broker running":  &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"cannot be resolved":     &net.DNSError{Err: "no such host", Name: "x"},
		"speaks TLS":             errors.New("the first three bytes received appear to be a tls alert record"),
		"not a Kafka broker":     errors.New("invalid large response size 1213486160"),
		"want TLS (--tls)":       fmt.Errorf("read: %w", io.EOF),
		"no answer in time":      &net.OpError{Op: "dial", Err: syscall.ETIMEDOUT},
		"the connection failed":  errors.New("something else"),
		"closed the connection ": syscall.ECONNRESET,
	} {
		if got := (Security{}).hint(err); !strings.Contains(got, want) {
			t.Errorf("%v: got %q, want %q", err, got, want)
		}
	}
}

func TestNothingNamed(t *testing.T) {
	t.Parallel()
	if _, err := (Config{Topic: "t"}).WithDefaults(); !codes.Has(err, codes.BrokerUnreachable) {
		t.Errorf("got %v", err)
	}
	if _, err := (Config{Brokers: []string{"b:1"}}).WithDefaults(); !codes.Has(err, codes.TopicMissing) {
		t.Errorf("got %v", err)
	}
	c, err := Config{Brokers: []string{"b:1", "c:2"}, Topic: "t"}.WithDefaults()
	if err != nil || c.Addresses() != "b:1, c:2" || c.ClientID != "weir" || c.StartTimeout != 10*time.Second {
		t.Errorf("got %+v, %v", c, err)
	}
	if _, err := (Config{Brokers: []string{"b:no port"}, Topic: "t"}).Open(); !codes.Has(err, codes.ConfigInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestTopicID(t *testing.T) {
	t.Parallel()
	if got := (TopicID{}).String(); got != "" {
		t.Errorf("got %q for none", got)
	}
	if got := (TopicID{1, 2, 3}).String(); got != "AQIDAAAAAAAAAAAAAAAAAA" {
		t.Errorf("got %q", got)
	}
}
