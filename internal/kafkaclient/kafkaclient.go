// Package kafkaclient is what weir's two Kafka edges, the source and the producer, share: the options of every client, its log, the
// questions after the topic, and what stands behind a broker that does not answer.
package kafkaclient

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
)

const (
	defaultClientID     = "weir"
	defaultStartTimeout = 10 * time.Second

	// dialTimeout leaves room for a second address within the start timeout.
	dialTimeout = 4 * time.Second
	// maxBackoff is how long a client waits at most before it tries a broker again.
	maxBackoff = time.Second
	// graceForNewTopics is how long a topic that the broker does not know may still appear: a topic that was just created takes
	// a moment to reach every broker.
	graceForNewTopics = time.Second
	askAgainAfter     = 100 * time.Millisecond
)

// Config of a client.
type Config struct {
	// Brokers are the addresses (host:port) to start from.
	Brokers []string
	// Topic that the client is about.
	Topic string
	// Security is how to connect. Defaults to neither encryption nor login.
	Security Security
	// ClientID names this client to the brokers. Defaults to "weir".
	ClientID string
	// Logger takes the client's messages. Nil drops them. They hold names, numbers and errors, never the data of records.
	Logger *slog.Logger
	// Rights are the operations on the topic that the client needs, for the message when it is denied.
	Rights string
	// StartTimeout bounds how long a broker, or the topic, is looked for. Defaults to 10 s.
	StartTimeout time.Duration
}

// WithDefaults fills what is not set. Errors: BROKER_UNREACHABLE or TOPIC_MISSING when none was named.
func (c Config) WithDefaults() (Config, error) {
	switch {
	case len(c.Brokers) == 0:
		return c, codes.New(codes.BrokerUnreachable, "no broker address was given; name one with --brokers HOST:PORT")
	case c.Topic == "":
		return c, codes.New(codes.TopicMissing, "no topic was given; name one with --topic")
	}
	c.ClientID = cmp.Or(c.ClientID, defaultClientID)
	c.StartTimeout = cmp.Or(c.StartTimeout, defaultStartTimeout)
	return c, nil
}

// Addresses lists the brokers for a message.
func (c Config) Addresses() string { return strings.Join(c.Brokers, ", ") }

// Session is a client, and what it remembers of failed connections.
type Session struct {
	Config
	// Client is nil before Open.
	Client  *kgo.Client
	trouble trouble
}

// Open makes a client with the options that all have and those given. It does not connect.
func (c Config) Open(opts ...kgo.Opt) (*Session, error) {
	s := &Session{Config: c}
	common := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.SoftwareNameAndVersion("weir", "0"),
		kgo.DialTimeout(min(dialTimeout, c.StartTimeout/2)),
		kgo.RetryBackoffFn(backoff),
		kgo.MetadataMinAge(250 * time.Millisecond),
		// Without this the client pushes metrics, and closing it waits for a broker that is gone.
		kgo.DisableClientMetrics(),
		kgo.WithHooks(&s.trouble),
	}
	security, err := c.Security.options()
	if err != nil {
		return nil, err
	}
	common = append(common, security...)
	if c.Logger != nil {
		common = append(common, kgo.WithLogger(logger{c.Logger}))
	}
	client, err := kgo.NewClient(append(common, opts...)...)
	if err != nil {
		return nil, codes.New(codes.ConfigInvalid, "the broker addresses %s cannot be used: %w", c.Addresses(), err)
	}
	s.Client = client
	return s, nil
}

// Close gives the connections up.
func (s *Session) Close() { s.Client.Close() }

// backoff doubles from 50 ms to a second: a broker that restarts is back within seconds, and one that is down costs next to nothing.
func backoff(failures int) time.Duration {
	return min(25*time.Millisecond<<min(failures, 10), maxBackoff)
}

// TopicID is Kafka's UUID of a topic. It is zero for brokers that have none.
type TopicID [16]byte

// String writes the id as Kafka's own tools do, or "" for none.
func (id TopicID) String() string {
	if id == (TopicID{}) {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// Topic is what the brokers say of the topic.
type Topic struct {
	ID TopicID
	// Partitions in ascending order.
	Partitions []int32
	// Leaderless are those of them that no broker answers for at present.
	Leaderless []int32
	// Brokers is how many brokers the cluster has.
	Brokers int
	// Cluster is the id of the cluster, "" for brokers that tell none.
	Cluster string
}

// Find asks for the topic until the brokers know it, within the start timeout. Errors: BROKER_UNREACHABLE, TOPIC_MISSING, ACCESS_DENIED,
// BROKER_REFUSED, or that of ctx.
func (s *Session) Find(ctx context.Context) (Topic, error) {
	within, cancel := context.WithTimeout(ctx, s.StartTimeout)
	defer cancel()
	for began := time.Now(); ; {
		t, err := s.Describe(within)
		var ke *kerr.Error
		switch {
		case err == nil:
			return t, nil
		case !errors.As(err, &ke):
			return Topic{}, s.Unreachable(ctx, err)
		case s.Denied(err) != nil:
			return Topic{}, s.Denied(err)
		case errors.Is(err, kerr.UnknownTopicOrPartition) && time.Since(began) > graceForNewTopics:
			return Topic{}, s.Missing()
		case !ke.Retriable:
			return Topic{}, codes.New(codes.BrokerRefused, "topic %q: the broker answered: %w", s.Topic, err)
		}
		select {
		case <-within.Done():
			if errors.Is(err, kerr.UnknownTopicOrPartition) && ctx.Err() == nil {
				return Topic{}, s.Missing()
			}
			return Topic{}, s.Unreachable(ctx, err)
		case <-time.After(askAgainAfter):
		}
	}
}

// GraceOver says whether a topic that has been unknown since then is to be taken as missing.
func GraceOver(since time.Time) bool { return time.Since(since) > graceForNewTopics }

// Describe asks the brokers once, past every cache, and never creates the topic. An error of the topic itself is a *kerr.Error.
func (s *Session) Describe(ctx context.Context) (Topic, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(s.Topic)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, s.Client)
	if err != nil {
		return Topic{}, err
	}
	if len(resp.Topics) != 1 {
		return Topic{}, kerr.UnknownTopicOrPartition
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil {
		return Topic{}, err
	}
	t := Topic{ID: resp.Topics[0].TopicID, Brokers: len(resp.Brokers)}
	if resp.ClusterID != nil {
		t.Cluster = *resp.ClusterID
	}
	for _, p := range resp.Topics[0].Partitions {
		t.Partitions = append(t.Partitions, p.Partition)
		if p.Leader < 0 {
			t.Leaderless = append(t.Leaderless, p.Partition)
		}
	}
	slices.Sort(t.Partitions)
	slices.Sort(t.Leaderless)
	return t, nil
}

// logger hands the client's messages to slog. What kgo calls info is detail here.
type logger struct{ log *slog.Logger }

// trace is below slog's debug: kgo tells of every request there.
const trace = slog.LevelDebug - 4

func (l logger) Level() kgo.LogLevel {
	switch {
	case l.log.Enabled(context.Background(), trace):
		return kgo.LogLevelDebug
	case l.log.Enabled(context.Background(), slog.LevelDebug):
		return kgo.LogLevelInfo
	}
	return kgo.LogLevelWarn
}

func (l logger) Log(level kgo.LogLevel, msg string, keyvals ...any) {
	to := trace
	switch level {
	case kgo.LogLevelError:
		to = slog.LevelError
	case kgo.LogLevelWarn:
		to = slog.LevelWarn
	case kgo.LogLevelInfo:
		to = slog.LevelDebug
	}
	l.log.Log(context.Background(), to, "kafka: "+msg, keyvals...)
}
