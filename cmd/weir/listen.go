package main

import (
	"context"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/metrics/expose"
	"github.com/weirstream/weir/server"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/status"
	"github.com/weirstream/weir/status/board"
)

// listenFlags say how a run can be looked at.
type listenFlags struct {
	listen, tokens, listenCert, listenKey string
	hosts                                 []string
	tap                                   bool
	stalled, observe                      time.Duration
}

func (o *listenFlags) addListen(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "", "serve status, probes and metrics on HOST:PORT while the run goes on; port 0 takes a free one. Another address than loopback needs --tokens and a certificate (default: not served)")
	f.StringVar(&o.tokens, "tokens", "", "file of principals and their bearer tokens, readable by its owner alone")
	f.StringVar(&o.listenCert, "listen-cert", "", "certificate for --listen, PEM")
	f.StringVar(&o.listenKey, "listen-key", "", "its key, PEM")
	f.StringSliceVar(&o.hosts, "host", nil, "further name under which --listen is reached; may be repeated")
	f.BoolVar(&o.tap, "tap", false, "let 'weir tap' see records and results, and status the keys of gaps: whoever may ask sees record data")
	f.DurationVar(&o.stalled, "stalled-after", board.DefaultStalled, "a partition that has records to read and does not move for so long is not ready")
	f.DurationVar(&o.observe, "observe-every", 5*time.Second, "how often the ends of the log are asked for, by which lag is reckoned")
}

func (o *listenFlags) checkListen() error {
	switch {
	case o.listen == "" && (o.tokens != "" || o.listenCert != "" || o.listenKey != "" || o.tap || len(o.hosts) > 0):
		return usagef("--tokens, --listen-cert, --listen-key, --host and --tap are for --listen, which is missing")
	case (o.listenCert == "") != (o.listenKey == ""):
		return usagef("give both --listen-cert and --listen-key, or neither")
	case o.stalled <= 0 || o.observe <= 0:
		return usagef("--stalled-after and --observe-every must be more than 0")
	}
	return nil
}

// watching is what a process that listens knows of the runs in it. A nil one does nothing.
type watching struct {
	app   *app
	o     listenFlags
	every time.Duration
	plan  *flow.Plan
	set   *board.Set
	tap   *server.Tap
	// first stands for the run until it begins.
	first *board.Board
	end   context.CancelFunc
	ended chan error
}

// listenTo begins to serve what the run does, if that was asked for. The listener lives until close, beyond the end of ctx.
func (a *app) listenTo(ctx context.Context, o listenFlags, runID string, epoch time.Duration, plan *flow.Plan) error {
	if o.listen == "" {
		return nil
	}
	w := &watching{app: a, o: o, every: epoch, plan: plan, set: board.NewSet(runID, nil), ended: make(chan error, 1)}
	w.first = board.New(board.Config{Run: runID, Flow: plan.Name})
	w.set.Add(w.first)
	if o.tap {
		w.tap = &server.Tap{}
	}
	cfg, err := serveOptions{listen: o.listen, tokens: o.tokens, cert: o.listenCert, key: o.listenKey, hosts: o.hosts}.config()
	if err != nil {
		return err
	}
	cfg.Logger = a.log
	v, _ := versionOf()
	s, err := server.NewDaemon(cfg, server.Daemon{
		Report: w.set.Report, Metrics: expose.New(w.set.Report, v, runtime.Version()).Handler(), Level: &a.level, Tap: w.tap,
	})
	if err != nil {
		return err
	}
	ctx, w.end = context.WithCancel(context.WithoutCancel(ctx))
	listens := make(chan string, 1)
	go func() { w.ended <- s.Serve(ctx, func(addr string) { listens <- addr }) }()
	select {
	case err := <-w.ended:
		w.end()
		return err
	case addr := <-listens:
		scheme := "http"
		if cfg.TLS != nil {
			scheme = "https"
		}
		a.notice("weir: listening on %s://%s\n", scheme, addr)
	}
	a.watch = w
	return nil
}

// close stops serving.
func (w *watching) close() {
	if w == nil {
		return
	}
	w.end()
	if err := <-w.ended; err != nil {
		w.app.log.Warn("the listener", "cause", err.Error())
	}
}

// attach makes a run tell a new board, and the tap. runID is its own: of the whole run, or of one partition.
func (w *watching) attach(cfg *actors.Config, runID string) *board.Board {
	if w == nil {
		return nil
	}
	c := board.Config{Run: runID, Flow: w.plan.Name, Every: w.every, Stalled: w.o.stalled, ShowKeys: w.tap != nil}
	if cfg.Fencing != nil {
		if cfg.Fencing.Owner == "" {
			cfg.Fencing.Owner = control.NewOwner()
		}
		c.Owner = cfg.Fencing.Owner
	}
	b := board.New(c)
	var committed func(control.Commit)
	if w.tap != nil {
		t := tapping{w.tap, runID, len(w.plan.Outputs)}
		cfg.Source = t.source(cfg.Source)
		committed = t.committed
	}
	b.Attach(cfg, committed)
	w.set.Add(b)
	return b
}

// apart says that the run has no board of its own: its partitions have, those that this process is given.
func (w *watching) apart() {
	if w != nil {
		w.set.Remove(w.first)
	}
}

// over takes how a run has ended.
func (w *watching) over(b *board.Board, r actors.Result, err error) {
	if w != nil {
		b.Ended(r, err)
	}
}

// outage tells the boards that the source does not answer, or with nil that it does again.
func (w *watching) outage(cause error) {
	if w != nil {
		w.set.Each(func(b *board.Board) { b.Outage(cause) })
	}
}

// troubled tells that this process is no member of its group, or with nil that it is.
func (w *watching) troubled(cause error) {
	if w != nil {
		w.set.Group(cause)
	}
}

// atRisk tells the board of a partition that its oldest record that is not done comes near the end of the retention, or does not any more.
func (w *watching) atRisk(runID string, partition int32, is bool, age, kept time.Duration) {
	if w == nil {
		return
	}
	var risk *status.Risk
	if is {
		a, k := age.Seconds(), kept.Seconds()
		risk = &status.Risk{Age: &a, Kept: &k}
	}
	w.set.Each(func(b *board.Board) {
		if b.Run() == runID {
			b.AtRisk(partition, risk, kept-age)
		}
	})
}

// observing asks how the log stands, until the returned function is called.
func (w *watching) observing(ctx context.Context, source sources.Source) (stop func()) {
	by, ok := source.(sources.Observer)
	if w == nil || !ok {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.observe(ctx, by)
	}()
	return func() {
		cancel()
		<-done
	}
}

// firstLook is when the log is asked for the first time: once the run is likely to know its partitions.
const firstLook = 500 * time.Millisecond

func (w *watching) observe(ctx context.Context, by sources.Observer) {
	timer := time.NewTimer(min(firstLook, w.o.observe))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		asked, cancel := context.WithTimeout(ctx, 2*w.o.observe)
		o, err := by.Observe(asked)
		cancel()
		if ctx.Err() != nil {
			return
		}
		w.set.Each(func(b *board.Board) { b.Observed(o, err) })
		timer.Reset(w.o.observe)
	}
}

// partitions makes the boards follow what a group says of its partitions.
func (w *watching) partitions(tell func(group.Change), boards *boards) func(group.Change) {
	if w == nil {
		return tell
	}
	w.apart()
	return func(c group.Change) {
		if b := boards.of(c.Partition); b != nil {
			switch c.Phase {
			case group.Waiting:
				b.Again(c.Cause, c.Pause)
			case group.Draining:
				b.Revoked()
			case group.Absent:
				w.set.Remove(b)
			}
		}
		tell(c)
	}
}
