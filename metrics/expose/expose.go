// Package expose turns a status into samples of the table of metrics, at the moment of a scrape. Nothing is counted on the way of the data.
package expose

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirstream/weir/metrics"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/status"
)

// Collector is a prometheus.Collector over a status.
type Collector struct {
	report  func() status.Report
	version [2]string
	descs   map[string]*prometheus.Desc
}

// New makes a collector. report gives the status of the moment; version and goVersion are those of the program.
func New(report func() status.Report, version, goVersion string) *Collector {
	c := &Collector{report: report, version: [2]string{version, goVersion}, descs: map[string]*prometheus.Desc{}}
	for _, m := range metrics.Table() {
		c.descs[m.Name] = prometheus.NewDesc(m.Name, m.Help, m.AllLabels(), nil)
	}
	return c
}

// Handler serves the table, and nothing else: the client's own metrics are not ours to promise.
func (c *Collector) Handler() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Describe is prometheus.Collector's.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics.Table() {
		ch <- c.descs[m.Name]
	}
}

// Collect is prometheus.Collector's.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	s := samples{c: c, ch: ch}
	s.put(metrics.Build, 1, c.version[0], c.version[1])
	r := c.report()
	for i := range r.Runs {
		s.now, s.run = r.Runs[i].At, r.Runs[i].Run
		s.ofRun(&r.Runs[i])
		for k := range r.Runs[i].Partitions {
			s.ofPartition(&r.Runs[i], &r.Runs[i].Partitions[k])
		}
	}
}

type samples struct {
	c   *Collector
	ch  chan<- prometheus.Metric
	now time.Time
	run string
}

func (s samples) put(m metrics.Metric, v float64, labels ...string) {
	kind := prometheus.GaugeValue
	if m.Type == metrics.Counter {
		kind = prometheus.CounterValue
	}
	s.ch <- prometheus.MustNewConstMetric(s.c.descs[m.Name], kind, v, labels...)
}

func (s samples) of(m metrics.Metric, v float64, labels ...string) {
	s.put(m, v, append([]string{s.run}, labels...)...)
}

func (s samples) count(m metrics.Metric, n int64, labels ...string) { s.of(m, float64(n), labels...) }

func (s samples) flag(m metrics.Metric, on bool, labels ...string) {
	v := 0.0
	if on {
		v = 1
	}
	s.of(m, v, labels...)
}

// age is the time since a moment; absent without one.
func (s samples) age(m metrics.Metric, from *time.Time, labels ...string) {
	if from != nil {
		s.of(m, s.now.Sub(*from).Seconds(), labels...)
	}
}

// unix is an event time in seconds; ok is false when it is none.
func unix(t status.EventTime) (seconds float64, ok bool) {
	return float64(t.T) / 1e9, t.T != record.NoTime && t.T != record.MaxTime
}

func (s samples) ofRun(r *status.Snapshot) {
	for _, p := range []status.Phase{status.PhaseRunning, status.PhaseWaiting, status.PhaseRecoveryBlocked, status.PhaseStopped} {
		s.flag(metrics.Phase, r.Phase == p, string(p))
	}
	s.age(metrics.PhaseAge, r.PhaseSince)
	s.of(metrics.Epoch, float64(r.Epoch))
	s.of(metrics.Incarnation, float64(r.Incarnation))
	s.of(metrics.Restarts, float64(r.Restarts))
	s.flag(metrics.Lease, r.Lease.State == status.LeaseHeld || r.Lease.State == status.LeaseUnfenced)
	token := r.Lease.Token
	if r.Lease.State == status.LeaseOthers {
		token = 0
	}
	s.of(metrics.Token, float64(token))
	if r.Lease.State == status.LeaseHeld && r.Lease.Until != nil {
		s.of(metrics.LeaseLeft, r.Lease.Until.Sub(s.now).Seconds())
	}
	s.of(metrics.Commits, float64(r.Commit.Count), "committed")
	s.of(metrics.Commits, float64(r.Commit.Failed), "failed")
	s.of(metrics.CommitSeconds, r.Commit.Total)
	s.of(metrics.CommitLast, r.Commit.Seconds)
	s.age(metrics.CommitAge, r.Commit.Last)
	open := s.now
	if r.Commit.Began != nil {
		open = *r.Commit.Began
	}
	s.age(metrics.CommitOpen, &open)
	s.of(metrics.Refused, float64(r.Commit.Refused))
	s.of(metrics.Checkpoints, float64(r.Checkpoint.Made), "made")
	s.of(metrics.Checkpoints, float64(r.Checkpoint.Failed), "failed")
	s.age(metrics.CheckpointAge, r.Checkpoint.Last)
	if r.Checkpoint.Last != nil {
		s.count(metrics.CheckpointLen, r.Checkpoint.Bytes)
	}
	s.flag(metrics.Outage, r.Source.Outage == nil)
	s.age(metrics.Observed, r.Source.Observed)
	s.ofSinks(r)
	if w, ok := unix(r.Watermark); ok {
		s.of(metrics.Watermark, w)
		s.of(metrics.WatermarkAge, float64(s.now.UnixNano())/1e9-w)
	}
}

func (s samples) ofSinks(r *status.Snapshot) {
	for _, p := range r.Published {
		s.flag(metrics.SinkUp, !slices.ContainsFunc(r.Sinks, func(down status.Sink) bool { return down.Name == p.Sink }), p.Sink)
		s.count(metrics.SinkRows, p.Rows, p.Sink)
		s.count(metrics.SinkBytes, p.Bytes, p.Sink)
		s.count(metrics.SinkCalls, int64(p.Publications), p.Sink)
		s.of(metrics.SinkSeconds, p.Seconds, p.Sink)
		s.count(metrics.SinkRetries, int64(p.Retries), p.Sink)
		s.count(metrics.SinkLag, p.Lag, p.Sink)
	}
}

func (s samples) ofPartition(r *status.Snapshot, p *status.Partition) {
	n := strconv.Itoa(int(p.Partition))
	if w, ok := unix(p.Watermark); ok {
		s.of(metrics.PartWatermark, float64(s.now.UnixNano())/1e9-w, n)
	}
	holds := false
	for _, h := range r.Holders {
		holds = holds || h == p.Partition
	}
	s.flag(metrics.HoldsMark, holds, n)
	if p.LagRecords != nil {
		s.count(metrics.LagRecords, *p.LagRecords, n)
	}
	if p.Readable != nil {
		s.count(metrics.Readable, *p.Readable, n)
	}
	if p.LagSeconds != nil {
		s.of(metrics.LagSeconds, *p.LagSeconds, n)
	}
	s.age(metrics.Progress, p.Progress, n)
	s.flag(metrics.Stalled, p.Stalled, n)
	s.flag(metrics.BlockedPart, p.Blocked != nil, n)
	s.flag(metrics.AtRisk, p.Risk != nil, n)
	for _, state := range status.States() {
		s.of(metrics.StateSeconds, p.Seconds[state], n, string(state))
	}
	gaps := 0
	if p.Gap != nil {
		gaps = p.Gap.Open
	}
	s.count(metrics.Gaps, int64(gaps), n)
	var held status.Held
	if p.Held != nil {
		held = *p.Held
	}
	s.count(metrics.HeldKeys, int64(held.Keys), n)
	s.count(metrics.HeldRecords, int64(held.Records), n)
	s.count(metrics.Credits, p.Queue.Records, n)
	s.count(metrics.CreditBytes, p.Queue.Bytes, n)
	s.count(metrics.Window, p.Queue.WindowBytes, n)
	s.count(metrics.Aside, p.Queue.Aside, n)
	c := p.Counts
	for _, o := range []struct {
		name string
		n    int64
	}{{"consumed", c.Consumed}, {"filtered", c.Filtered}, {"omitted", c.Omitted}, {"duplicate", c.Duplicates}, {"late", c.Late}, {"future", c.Future}} {
		s.count(metrics.Records, o.n, n, o.name)
	}
	s.count(metrics.Outputs, c.Outputs, n)
	for _, a := range p.Aside {
		s.count(metrics.Quarantine, a.Total, n, a.Reason)
	}
}
