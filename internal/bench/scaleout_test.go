package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/control/postgres"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/internal/heap"
	"github.com/weirstream/weir/internal/pgtest"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kafka"
)

const (
	// envScaleRecords is the number of ticks of the topic that daemons share out, envScalePairs how often each contestant runs.
	envScaleRecords     = "WEIR_BENCH_SCALE_RECORDS"
	defaultScaleRecords = 3_000_000
	envScalePairs       = "WEIR_BENCH_SCALE_PAIRS"
	defaultScalePairs   = 7
	// scaleEpoch is short, so that the wait for the last commit weighs little.
	scaleEpoch = 100 * time.Millisecond
	scaleFor   = 2 * time.Minute
)

// envScale makes this binary one of the daemons: a scaleSpec in JSON.
const envScale = "WEIR_BENCH_SCALE_CHILD"

// scaleSpec is what a daemon is to do.
type scaleSpec struct {
	Addr, Store string
	// Run is the name of the run and of its group.
	Run string
	// Whole is --scope run: one run over all partitions and one client, instead of a run and a client for each.
	Whole bool
	// Records of each partition.
	Records []int64
}

// scaleReport is what a daemon says, one document a line: how many partitions wait for the start, or that those it has are done.
type scaleReport struct {
	Waiting int64
	Done    bool
	CPU     time.Duration
	Error   string
}

// scaleChild is a daemon, when this process was started for it; else it returns at once.
func scaleChild() {
	text, ok := os.LookupEnv(envScale)
	if !ok {
		return
	}
	d := daemon{out: json.NewEncoder(os.Stdout), gate: make(chan struct{}), done: map[int32]int64{}}
	err := json.Unmarshal([]byte(text), &d.spec)
	if err == nil {
		err = d.run()
	}
	if err != nil && !errors.Is(err, actors.ErrInterrupted) {
		d.say(scaleReport{Error: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
}

// daemon is one process that works on a topic. It opens its readers when it is told to start: leases and assignment stand by then.
type daemon struct {
	spec    scaleSpec
	gate    chan struct{}
	waiting atomic.Int64

	mu   sync.Mutex
	out  *json.Encoder
	from time.Duration
	done map[int32]int64
}

func (d *daemon) say(r scaleReport) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_ = d.out.Encode(r) // who has started us reads, or is gone
}

// held is a source that opens only once the gate is open.
type held struct {
	sources.Source
	d *daemon
}

// Open implements sources.Source.
func (h held) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	h.d.say(scaleReport{Waiting: h.d.waiting.Add(1)})
	select {
	case <-h.d.gate:
	case <-ctx.Done():
		h.d.say(scaleReport{Waiting: h.d.waiting.Add(-1)})
		return nil, ctx.Err()
	}
	return h.Source.Open(ctx, from)
}

func (d *daemon) run() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store, err := postgres.Open(ctx, postgres.Config{URL: d.spec.Store, TTL: actors.DefaultTTL})
	if err != nil {
		return err
	}
	defer store.Close()
	source, err := kafka.New(kafka.Config{Brokers: []string{d.spec.Addr}, Topic: topicName})
	if err != nil {
		return err
	}
	plan, err := flow.Parse("ticks.yaml", []byte(strings.TrimSpace(tickFlow)), nil)
	if err != nil {
		return err
	}
	go d.listen(stop)
	defer heap.Floor(128 << 20)() // as `weir run` does
	cfg := func(p int32) actors.Config {
		c := actors.Config{Plan: plan, Source: held{source, d}, Journal: store, EpochEvery: scaleEpoch, Fencing: &actors.Fencing{Leases: store}, RunID: d.spec.Run,
			OnProgress: func(now actors.Progress) { d.progress(p, now.Counts.Records) }}
		if p >= 0 {
			c.Source = sources.Only(c.Source, p)
		}
		return c
	}
	if d.spec.Whole {
		_, err = actors.Run(ctx, cfg(-1))
		return err
	}
	assigner, err := source.Group(kafka.GroupConfig{Group: d.spec.Run})
	if err != nil {
		return err
	}
	member, err := group.New(group.Config{Run: d.spec.Run, Assigner: assigner, Engine: func(_ context.Context, p int32) (actors.Config, error) { return cfg(p), nil }})
	if err != nil {
		return err
	}
	return member.Run(ctx)
}

// listen opens the gate at the first line, and stops at the end of the input.
func (d *daemon) listen(stop func()) {
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err == nil {
		d.mu.Lock()
		d.from = cpuTime()
		d.mu.Unlock()
		close(d.gate)
	}
	_, _ = io.Copy(io.Discard, in) // its end is what is awaited
	stop()
}

// progress notes what is committed of a partition, or of all (-1), and tells when nothing is left.
func (d *daemon) progress(p int32, records int64) {
	d.mu.Lock()
	d.done[p] = records
	left := d.waiting.Load() // as many partitions as were held at the gate
	for n, records := range d.done {
		want := int64(0)
		for i, part := range d.spec.Records {
			if n < 0 || int32(i) == n {
				want += part
			}
		}
		if records == want {
			left--
		}
	}
	cpu := cpuTime() - d.from
	d.mu.Unlock()
	if left == 0 {
		d.say(scaleReport{Done: true, CPU: cpu})
	}
}

// scaleFleet is the daemons of one pass.
type scaleFleet struct {
	said chan said
	all  []*scaleProcess
}

type scaleProcess struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	stderr strings.Builder
	ended  chan error
}

// said is what a daemon has said, or that it has nothing more to say.
type said struct {
	by   int
	over bool
	scaleReport
}

func (f *scaleFleet) start(ctx context.Context, spec scaleSpec) error {
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p := &scaleProcess{cmd: exec.CommandContext(ctx, self), ended: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), envScale+"="+string(text))
	p.cmd.Stderr = &p.stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	by := len(f.all)
	f.all = append(f.all, p)
	go func() {
		for in := json.NewDecoder(out); ; {
			one := said{by: by}
			if one.over = in.Decode(&one.scaleReport) != nil; one.over {
				p.ended <- p.cmd.Wait()
			}
			f.said <- one
			if one.over {
				return
			}
		}
	}()
	return nil
}

// until takes what the daemons say until it is enough.
func (f *scaleFleet) until(ctx context.Context, enough func(said) bool) error {
	for {
		select {
		case one := <-f.said:
			if one.over || one.Error != "" {
				return fmt.Errorf("a daemon has ended: %s", one.Error)
			}
			if enough(one) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// end lets all commit and end.
func (f *scaleFleet) end() (err error) {
	for _, p := range f.all {
		err = errors.Join(err, p.in.Close())
	}
	for left := len(f.all); left > 0; {
		if one := <-f.said; one.over {
			left--
		}
	}
	for _, p := range f.all {
		if e := <-p.ended; e != nil {
			err = errors.Join(err, fmt.Errorf("%w: %s", e, p.stderr.String()))
		}
	}
	return err
}

// scaled is what one pass was like: from the start to the last commit, and the CPU time of all daemons meanwhile.
type scaled struct{ wall, cpu time.Duration }

// scalePass has so many daemons do the whole topic.
func scalePass(ctx context.Context, spec scaleSpec, daemons int) (out scaled, err error) {
	ctx, cancel := context.WithTimeout(ctx, scaleFor)
	defer cancel()
	f := &scaleFleet{said: make(chan said)}
	defer func() { err = errors.Join(err, f.end()) }()
	for range daemons {
		if err := f.start(ctx, spec); err != nil {
			return out, err
		}
	}
	share := int64(len(spec.Records) / daemons)
	if spec.Whole {
		share = 1
	}
	has := make([]int64, daemons)
	err = f.until(ctx, func(one said) bool {
		has[one.by] = one.Waiting
		return !slices.ContainsFunc(has, func(n int64) bool { return n != share })
	})
	if err != nil {
		return out, err
	}
	began := time.Now()
	for _, p := range f.all {
		if _, err := io.WriteString(p.in, "go\n"); err != nil {
			return out, err
		}
	}
	done := 0
	err = f.until(ctx, func(one said) bool {
		if one.Done {
			out.cpu += one.CPU
			done++
		}
		return done == daemons
	})
	out.wall = time.Since(began)
	return out, err
}

// sizes asks how many records the partitions of the topic have.
func sizes(ctx context.Context, addr string) ([]int64, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DisableClientMetrics())
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(ctx, topicName)
	if err = errors.Join(err, ends.Error()); err != nil {
		return nil, err
	}
	out := make([]int64, topicPartitions)
	ends.Each(func(o kadm.ListedOffset) { out[o.Partition] = o.Offset })
	return out, nil
}

// BenchmarkScaleOut has a topic of four partitions computed by one daemon in partition scope, by two that have two partitions each, and by one in the
// scope of a run, in turns: real processes beside a broker of its own and PostgreSQL, all on this machine. Readers are opened when every daemon has its
// partitions and their leases; a pass ends with the last commit.
//
//	two/one         throughput of two daemons over that of one; wanted at least 1
//	two/one-cpu     the same by CPU time of the daemons
//	one/whole       throughput in partition scope, a client and a run for each partition, over that of one run with one client
//	one/whole-cpu   the same by CPU time
//
// Each is the median over the rounds; the log has the spread.
func BenchmarkScaleOut(b *testing.B) {
	db := pgtest.Database(b, func(ctx context.Context, url string) error {
		_, err := postgres.Migrate(ctx, url)
		return err
	})
	t := loadTopic(b, setting(b, envScaleRecords, defaultScaleRecords))
	debug.FreeOSMemory() // the log is in the broker now
	records, err := sizes(b.Context(), t.addr)
	if err != nil {
		b.Fatal(err)
	}
	contestants := []struct {
		name    string
		daemons int
		whole   bool
	}{{"one", 1, false}, {"two", 2, false}, {"whole", 1, true}}
	passes, order := make([][]scaled, len(contestants)), []int{0, 1, 2}
	rounds := setting(b, envScalePairs, defaultScalePairs)
	for round := range rounds {
		for _, i := range order {
			c := contestants[i]
			spec := scaleSpec{Addr: t.addr, Store: db.Runtime, Run: fmt.Sprintf("%s-%d", c.name, round), Whole: c.whole, Records: records}
			out, err := scalePass(b.Context(), spec, c.daemons)
			if err != nil {
				b.Fatal(err)
			}
			passes[i] = append(passes[i], out)
		}
		slices.Reverse(order)
	}
	b.ReportMetric(0, "ns/op")
	wall := func(s scaled) float64 { return s.wall.Seconds() }
	cpu := func(s scaled) float64 { return s.cpu.Seconds() }
	var text strings.Builder
	fmt.Fprintf(&text, "%d records, %d rounds", t.records, rounds)
	for i, c := range contestants {
		walls, cpus := sorted(passes[i], wall), sorted(passes[i], cpu)
		n := float64(t.records)
		fmt.Fprintf(&text, "\n%-6s %9.0f records/s (%.0f to %.0f), %4.0f CPU ns a record (%.0f to %.0f)", c.name,
			n/walls[len(walls)/2], n/walls[len(walls)-1], n/walls[0], 1e9*cpus[len(cpus)/2]/n, 1e9*cpus[0]/n, 1e9*cpus[len(cpus)-1]/n)
	}
	for _, pair := range []struct {
		name     string
		one, two int
	}{{"two/one", 1, 0}, {"one/whole", 0, 2}} {
		for name, cost := range map[string]func(scaled) float64{pair.name: wall, pair.name + "-cpu": cpu} {
			ratios := make([]float64, rounds)
			for i := range ratios {
				ratios[i] = cost(passes[pair.two][i]) / cost(passes[pair.one][i])
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[rounds/2], name)
			fmt.Fprintf(&text, "\n%-14s %.2f (%.2f to %.2f)", name, ratios[rounds/2], ratios[0], ratios[rounds-1])
		}
	}
	b.Log(text.String())
}

func sorted(passes []scaled, of func(scaled) float64) []float64 {
	out := make([]float64, len(passes))
	for i, p := range passes {
		out[i] = of(p)
	}
	slices.Sort(out)
	return out
}
