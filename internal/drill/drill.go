package drill

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/internal/kafkaclient"
)

// Config says what to drill against.
type Config struct {
	// Self is the program that is weir.
	Self string
	// Dir is a folder for everything that the drill makes. It has to exist; the drill leaves it to the caller.
	Dir string
	// Store is a store string; "" makes SQLite files in Dir. With SQLite every part has a file of its own, NAME.PART beside the one named,
	// since an owner that is stopped inside its transaction holds the whole file.
	Store string
	// Brokers are addresses, separated by commas; "" starts an embedded broker in a process of its own.
	Brokers string
	// Security is how to connect to them, and BrokerFlags the flags that say the same to a daemon.
	Security    kafkaclient.Security
	BrokerFlags []string
	// TopicPrefix begins the names of the topics that are made. They are left behind on a broker that was given.
	TopicPrefix string
	// TTL of the leases of the owners and kill parts. Defaults to 6 s. ShortTTL is that of all others; defaults to 2 s.
	TTL, ShortTTL time.Duration
	// Grace is what is added to every bound on time. Defaults to 1 s, which is a promise; a machine that does much else needs more.
	Grace time.Duration
	// Records, when above 0, is the long drill with so many records, over Partitions (defaults to 4), with so many Faults (defaults to 12).
	Records    int64
	Partitions int32
	Faults     int
	// Apart has daemons share the long drill out over a consumer group (--scope partition), of which others join and leave Moves times (defaults
	// to 10) beside the Faults.
	Apart bool
	Moves int
	// Targets, unless nil, makes the sinks that every run publishes to. They are compared with the journal when a run is over.
	Targets func(ctx context.Context, p Place) ([]Target, error)
	// Open opens a store string for the drill's own eyes.
	Open func(ctx context.Context, store string) (control.ControlStore, error)
	// OnCheck is told of every check as soon as it is known. Calls do not overlap.
	OnCheck func(Check)
	Logger  *slog.Logger
	// Parallel is how many parts run at a time. Defaults to four for each processor: they wait most of the time.
	Parallel int
	// Only, unless empty, are the parts to run.
	Only []string
	// OnStart, unless nil, is given what ends every process at once, for a drill that is itself ended at once.
	OnStart func(end func())
}

func (c *Config) defaults() {
	if c.TTL == 0 {
		c.TTL = 6 * time.Second
	}
	if c.ShortTTL == 0 {
		c.ShortTTL = min(c.TTL, 2*time.Second)
	}
	if c.Parallel == 0 {
		c.Parallel = 4 * runtime.GOMAXPROCS(0)
	}
	if c.Grace == 0 {
		c.Grace = time.Second
	}
	if c.TopicPrefix == "" {
		c.TopicPrefix = "weir-drill"
	}
	if c.Partitions == 0 {
		c.Partitions = 4
	}
	if c.Faults == 0 {
		c.Faults = 12
	}
	if c.Moves == 0 {
		c.Moves = 10
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// drill is one execution.
type drill struct {
	Config
	id      string
	started time.Time
	kind    control.StoreKind
	fleet   fleet
	brokers string
	plan    *flow.Plan
	topics  topics
	targets []Target

	mu     sync.Mutex
	report Report
	count  map[string]int
}

// storeEnv carries the store string to the processes: it may hold a password, which a command line would show to everybody.
const storeEnv = "WEIR_DRILL_STORE"

// Run drills. The report is valid beside an error too, which says why the drill could not be carried out; failed checks are in the report alone.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg.defaults()
	d := &drill{Config: cfg, started: time.Now(), count: map[string]int{}}
	d.report = Report{Records: cfg.Records, TTL: cfg.TTL, Figures: map[string]float64{}}
	if err := Supported(); err != nil {
		return &d.report, err
	}
	if cfg.OnStart != nil {
		cfg.OnStart(d.fleet.end)
	}
	err := d.run(ctx)
	d.fleet.end()
	if d.fleet.logs != "" {
		err = errors.Join(err, d.fleet.keepLogs())
	}
	d.report.Took = time.Since(d.started)
	return &d.report, err
}

func (d *drill) run(ctx context.Context) error {
	if err := d.prepare(ctx); err != nil {
		return err
	}
	if d.Records > 0 && d.Apart {
		return d.playApart(ctx)
	}
	if d.Records > 0 {
		return d.long(ctx)
	}
	d.report.Records = goldenRecords
	return d.parts(ctx)
}

// prepare lays out the files, finds the store's kind and sees to a broker.
func (d *drill) prepare(ctx context.Context) error {
	var id [4]byte
	rand.Read(id[:])
	d.id = fmt.Sprintf("%x", id)
	d.fleet.self, d.fleet.logs = d.Self, filepath.Join(d.Dir, "logs")
	if err := os.MkdirAll(d.fleet.logs, 0o700); err != nil {
		d.fleet.logs = ""
		return codes.New(codes.OutputUnwritable, "the folder of the drill: %w", err)
	}
	d.report.Logs = d.fleet.logs
	var err error
	if d.plan, err = d.layOut(); err != nil {
		return err
	}
	if d.Store == "" {
		d.Store = "sqlite:" + filepath.Join(d.Dir, "drill.db")
	}
	st, err := control.ParseStore(d.Store)
	if err != nil {
		return err
	}
	d.kind, d.report.Store = st.Kind, st.Redacted()
	if d.brokers = d.Brokers; d.brokers == "" {
		if d.brokers, err = d.startBroker(ctx); err != nil {
			return err
		}
	}
	d.report.Brokers = d.brokers
	if err := d.answers(ctx); err != nil {
		return err
	}
	return d.layTargets(ctx)
}

// layOut writes the flow that the processes run.
func (d *drill) layOut() (*flow.Plan, error) {
	text := fixture.Flow
	if d.Records > 0 {
		text = longFlow(d.Records)
	}
	path := d.flowFile()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, codes.New(codes.OutputUnwritable, "the folder of the drill: %w", err)
	}
	return flow.Parse(path, text, nil)
}

func (d *drill) flowFile() string { return filepath.Join(d.Dir, "flow.yaml") }

// check notes a check. It returns ok.
func (d *drill) check(part string, ok bool, what, evidence string, args ...any) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count[part]++
	c := Check{ID: fmt.Sprintf("%s.%02d", part, d.count[part]), What: what, Passed: ok, Evidence: fmt.Sprintf(evidence, args...)}
	d.report.Checks = append(d.report.Checks, c)
	if d.OnCheck != nil {
		d.OnCheck(c)
	}
	return ok
}

// fault notes a planned fault.
func (d *drill) fault(f Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report.Planned = append(d.report.Planned, f)
}

// figure notes something measured, in milliseconds.
func (d *drill) figure(name string, took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.report.Figures[name+"_ms"] = float64(took.Microseconds()) / 1000
}
