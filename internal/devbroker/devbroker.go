// Package devbroker starts an embedded Kafka-compatible broker for development, demos and tests.
//
// The broker is kfake: one process, one node, no replication, no access control. It listens on 127.0.0.1 only, whatever it is asked
// for. With a data folder its topics and records survive a restart, also after a kill of the process; without one they live in
// memory. It is not a broker for production.
//
// A data folder belongs to one process at a time: the broker holds an exclusive lock on the file "lock" in it, which the operating
// system gives back however the process ends.
package devbroker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/codes"
)

const (
	// maxMessageBytes is the largest batch that the broker accepts, so that a record of 10 MB can be tried out.
	maxMessageBytes = 16 << 20
	lockName        = "lock"
	createTimeout   = 10 * time.Second
)

// Config of a broker.
type Config struct {
	// Port on 127.0.0.1. 0 takes a free one.
	Port int
	// Nodes of the cluster, all in this process, for tests of leaders that move. Defaults to 1; more need Port 0.
	Nodes int
	// DataDir keeps topics and records. It is made when it is missing. Empty: everything lives in memory.
	DataDir string
	// Partitions of the topics that are created, here and by clients that leave it to the broker. Defaults to 4; at most MaxPartitions.
	Partitions int32
	// Topics that must exist. One that exists keeps its partitions and its records.
	Topics []string
	// SyncWrites makes every write wait for the disk. Without it a power failure, but not a kill, can lose the last writes.
	SyncWrites bool
	// Logger takes the broker's own messages. Nil drops them.
	Logger *slog.Logger
}

// Broker is a broker that runs.
type Broker struct {
	cluster *kfake.Cluster
	addr    string
	lock    *os.File
	close   sync.Once
}

// Start starts a broker and waits until it answers. Errors: CONFIG_INVALID for topics that Kafka would not
// have; PORT_IN_USE; STORE_UNAVAILABLE when the data folder cannot be written, is
// damaged, or is locked by another broker.
func Start(cfg Config) (*Broker, error) {
	if cfg.Partitions <= 0 {
		cfg.Partitions = 4
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	lock, err := openDataDir(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	if lock != nil {
		if err := cfg.take(lock); err != nil {
			_ = lock.Close()
			return nil, err
		}
	}
	cluster, err := kfake.NewCluster(cfg.options()...)
	if err != nil {
		unlock(lock)
		return nil, cfg.startError(err)
	}
	bound(cluster)
	b := &Broker{cluster: cluster, addr: cluster.ListenAddrs()[0], lock: lock}
	if err := b.ensureTopics(cfg); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (c Config) options() []kfake.Opt {
	ports := make([]int, max(c.Nodes, 1))
	ports[0] = c.Port
	opts := []kfake.Opt{
		kfake.Ports(ports...),
		kfake.ListenFn(listenLoopback),
		kfake.ClusterID("weir-dev"),
		kfake.DefaultNumPartitions(int(c.Partitions)),
		kfake.BrokerConfigs(map[string]string{
			// Replayed records carry timestamps of their own time, which may be long ago: retention by age would drop them.
			"log.retention.ms":  "-1",
			"message.max.bytes": strconv.Itoa(maxMessageBytes),
			// A member of a group that was killed is not waited for as long as in production.
			"group.min.session.timeout.ms": "1000",
		}),
	}
	if c.DataDir != "" {
		opts = append(opts, kfake.DataDir(c.DataDir))
	}
	if c.SyncWrites {
		opts = append(opts, kfake.SyncWrites())
	}
	if c.Logger != nil {
		opts = append(opts, kfake.WithLogger(logger{c.Logger}))
	}
	return opts
}

// listenLoopback listens on the port of address, on 127.0.0.1.
func listenLoopback(network, address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return net.Listen(network, net.JoinHostPort("127.0.0.1", port))
}

func (c Config) startError(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return codes.New(codes.PortInUse, "port %d on 127.0.0.1 is in use; choose another one, or 0 for a free one: %w", c.Port, err)
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return codes.New(codes.PortInUse, "the broker cannot listen on 127.0.0.1 port %d: %w", c.Port, err)
	}
	return codes.New(codes.StoreUnavailable, "the data folder %s of the broker cannot be used: %w", c.DataDir, err)
}

// openDataDir makes the folder and takes its lock. Nil without a folder.
func openDataDir(dir string) (*os.File, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, codes.New(codes.StoreUnavailable, "the data folder of the broker cannot be made: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, codes.New(codes.StoreUnavailable, "the data folder of the broker cannot be written: %w", err)
	}
	if err := tryLock(lock); err != nil {
		_ = lock.Close()
		return nil, codes.New(codes.StoreUnavailable, "the data folder %s is in use by another broker; stop that one, or choose another folder: %w", dir, err)
	}
	return lock, nil
}

// unlock gives the lock back of a folder that nothing has to be mended in. Closing the file does that; the file stays, since removing it would race with the next owner.
func unlock(lock *os.File) {
	if lock != nil {
		_ = lock.Truncate(0) // should it fail, the next broker looks for what there is not
		_ = lock.Close()
	}
}

func (b *Broker) ensureTopics(cfg Config) error {
	if len(cfg.Topics) == 0 {
		return nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.DisableClientMetrics())
	if err != nil {
		return codes.New(codes.Internal, "the broker's own client: %w", err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), createTimeout)
	defer cancel()
	// kfake applies the broker's limit to a topic, and says the default when it is asked for it: so the topic has it too.
	limit := strconv.Itoa(maxMessageBytes)
	made, err := kadm.NewClient(cl).CreateTopics(ctx, cfg.Partitions, 1, map[string]*string{"max.message.bytes": &limit}, cfg.Topics...)
	if err != nil {
		return codes.New(codes.BrokerUnreachable, "the broker that was just started does not answer: %w", err)
	}
	for _, t := range made.Sorted() {
		if t.Err != nil && !errors.Is(t.Err, kerr.TopicAlreadyExists) {
			return codes.New(codes.BrokerRefused, "topic %q cannot be created: %w", t.Topic, t.Err)
		}
	}
	return nil
}

// Addr is where clients reach the broker: 127.0.0.1 and the port.
func (b *Broker) Addr() string { return b.addr }

// Cluster is the broker inside, for tests that steer it.
func (b *Broker) Cluster() *kfake.Cluster { return b.cluster }

// Close stops the broker, writes what is not written yet and gives the data folder back. Closing again does nothing.
func (b *Broker) Close() {
	b.close.Do(func() {
		b.cluster.Close()
		unlock(b.lock)
	})
}

// logger hands the broker's messages to slog.
type logger struct{ log *slog.Logger }

func (l logger) Logf(level kfake.LogLevel, format string, args ...any) {
	to := slog.LevelDebug
	switch level {
	case kfake.LogLevelError:
		to = slog.LevelError
	case kfake.LogLevelWarn:
		to = slog.LevelWarn
	}
	if l.log.Enabled(context.Background(), to) {
		l.log.Log(context.Background(), to, "broker: "+fmt.Sprintf(format, args...))
	}
}
