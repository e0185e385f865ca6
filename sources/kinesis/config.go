package kinesis

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"regexp"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/smithy-go/logging"

	"github.com/weirstream/weir/codes"
)

const (
	defaultCallsPerSecond = 5       // what Kinesis allows for one shard, all consumers together
	defaultBytesPerSecond = 2 << 20 // likewise
	defaultPageRecords    = 10_000
	defaultMaxWait        = 500 * time.Millisecond
	defaultCallTimeout    = 10 * time.Second
	defaultStartTimeout   = 10 * time.Second
)

// Config of a stream. Sizes are in bytes.
type Config struct {
	// Client to ask with; Connect makes one. Required.
	Client *kinesis.Client
	// Stream is its name. Required.
	Stream string
	// StartAt is where a shard that the run has not read yet begins: at the first record that arrived then or later. The zero time, the
	// default, is the oldest record that is held. "Latest" is resolved to a time once and kept by the caller, so that a restart does not
	// leave out what came in between; a child of a shard that was read begins at its first record whatever this says.
	StartAt time.Time
	// AcceptGap goes on at the oldest record held when those that come next are gone; otherwise that is OFFSET_LOST.
	AcceptGap bool

	// CallsPerSecond and BytesPerSecond are the budget for one shard. Default to 5 and 2 MiB, what Kinesis allows.
	CallsPerSecond, BytesPerSecond float64
	// FanOut is the name of a consumer with enhanced fan-out, which is registered if it is not: Kinesis pushes, 2 MB/s of each shard for this consumer
	// alone, and charges for it. "" polls. Budgets and PageRecords are for polling.
	FanOut string
	// Renew is how long a subscription may last, Silence how long it may say nothing. Default to 5 minutes and 35 s.
	Renew, Silence time.Duration
	// Subscribe makes a subscription. Defaults to the client's.
	Subscribe func(ctx context.Context, in *kinesis.SubscribeToShardInput) (Subscription, error)
	// PageRecords bounds the records of one answer. Defaults to 10,000, the most there is.
	PageRecords int32
	// MaxWait is how long Poll waits before it says that there is nothing. Defaults to 500 ms.
	MaxWait time.Duration
	// CallTimeout bounds one call, StartTimeout the questions after stream and shards with all their tries. Both default to 10 s.
	CallTimeout, StartTimeout time.Duration
	// OnThrottle is told of every call that Kinesis refused because of its limits, which is normal, and how long the reader waits then.
	// It is called from goroutines of the reader.
	OnThrottle func(shard int32, pause time.Duration)
	// Logger takes what happens. Nil drops it. Nothing that it gets holds the data of records.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.CallsPerSecond = cmp.Or(c.CallsPerSecond, defaultCallsPerSecond)
	c.BytesPerSecond = cmp.Or(c.BytesPerSecond, defaultBytesPerSecond)
	c.PageRecords = cmp.Or(c.PageRecords, defaultPageRecords)
	c.MaxWait = cmp.Or(c.MaxWait, defaultMaxWait)
	c.Renew = cmp.Or(c.Renew, defaultRenew)
	c.Silence = cmp.Or(c.Silence, defaultSilence)
	if c.Subscribe == nil {
		c.Subscribe = subscribeBy(c.Client)
	}
	c.CallTimeout = cmp.Or(c.CallTimeout, defaultCallTimeout)
	c.StartTimeout = cmp.Or(c.StartTimeout, defaultStartTimeout)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Connection says how to reach Kinesis. Credentials come from the chain that every tool of AWS uses: environment, shared files, roles.
type Connection struct {
	// Region defaults to that of the chain. Named is how whoever is at fault names it, --region by default.
	Region, Named string
	// Endpoint replaces AWS's own. Plain HTTP is taken on loopback only.
	Endpoint string
	// Logger takes what the SDK has to say. Nil drops it.
	Logger *slog.Logger
}

// Connect makes a client. It does not connect yet. Errors: CONFIG_INVALID for an endpoint that is no URL or would send credentials in the clear, for a
// region that nobody names.
func Connect(ctx context.Context, c Connection) (*kinesis.Client, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	opts := []func(*awsconfig.LoadOptions) error{awsconfig.WithLogger(sdkLog(c.Logger))}
	if c.Region != "" {
		opts = append(opts, awsconfig.WithRegion(c.Region))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return nil, codes.New(codes.ConfigInvalid, "the configuration of AWS cannot be read: %w", err)
	}
	if cfg.Region == "" {
		return nil, codes.New(codes.ConfigInvalid, "no region is named: give %s, or set AWS_REGION", cmp.Or(c.Named, "--region"))
	}
	if !regionName.MatchString(cfg.Region) {
		return nil, codes.New(codes.ConfigInvalid, "%.80q is no region: give %s, or set AWS_REGION, to a name such as eu-west-1", cfg.Region, cmp.Or(c.Named, "--region"))
	}
	return kinesis.NewFromConfig(cfg, func(o *kinesis.Options) {
		// The reader has its own patience, with budgets that the SDK's does not know.
		o.Retryer = aws.NopRetryer{}
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
		}
	}), nil
}

// regionName is what can be part of a host's name.
var regionName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// sdkLog hands on what the SDK would write to standard error by itself.
func sdkLog(l *slog.Logger) logging.Logger {
	if l == nil {
		return logging.Nop{}
	}
	return logging.LoggerFunc(func(class logging.Classification, format string, args ...any) {
		level := slog.LevelDebug
		if class == logging.Warn {
			level = slog.LevelWarn
		}
		l.Log(context.Background(), level, "the AWS SDK says: "+fmt.Sprintf(format, args...))
	})
}

func (c Connection) check() error {
	if c.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https":
		return codes.New(codes.ConfigInvalid, "the endpoint of Kinesis is not a URL such as https://kinesis.eu-west-1.amazonaws.com")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		return codes.New(codes.ConfigInvalid, "the endpoint %s is plain HTTP and not on this machine: records and signatures would go in the clear; use https", u.Host)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
