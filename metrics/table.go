// Package metrics is the table of weir's metrics: from it the exposition is made (metrics/expose) and docs/metrics.md is written. A metric that is not
// in the table cannot be exported, and one that is in it and is not exported fails a test.
package metrics

import "strings"

// Type of a metric.
type Type string

// The types. A Counter only grows, and starts again at 0 with the process unless its help says otherwise.
const (
	Counter Type = "counter"
	Gauge   Type = "gauge"
)

// Metric is one row of the table.
type Metric struct {
	// Name has the prefix weir_, its unit and, for a counter, _total at its end.
	Name string
	Type Type
	// Unit is a base unit as it stands in the name: seconds, bytes; or "" when the metric counts what its name says.
	Unit string
	Help string
	// Labels beside run, which every metric but Build has.
	Labels []string
}

// Label names.
const (
	LabelRun       = "run"
	LabelPartition = "partition"
	LabelPhase     = "phase"
	LabelState     = "state"
	LabelReason    = "reason"
	LabelOutcome   = "outcome"
	LabelSink      = "sink"
)

// The metrics.
var (
	Build = Metric{Name: "weir_build_info", Type: Gauge, Help: "Always 1; the labels say which weir runs.", Labels: []string{"version", "goversion"}}

	Phase       = Metric{Name: "weir_run_phase", Type: Gauge, Help: "1 for the phase that the run is in, 0 for the others.", Labels: []string{LabelPhase}}
	PhaseAge    = Metric{Name: "weir_run_phase_age_seconds", Type: Gauge, Unit: "seconds", Help: "Time since the run came into its phase."}
	Epoch       = Metric{Name: "weir_run_epoch", Type: Gauge, Help: "Last committed epoch."}
	Incarnation = Metric{Name: "weir_run_incarnation", Type: Gauge, Help: "Generation of the run's actors; 0 before the first."}
	Restarts    = Metric{Name: "weir_run_restarts_total", Type: Counter, Help: "Incarnations beyond the first: how often the run was restored after a failure."}
	Lease       = Metric{Name: "weir_lease_held", Type: Gauge, Help: "1 while this process holds the lease of the run, or the run needs none; 0 otherwise."}
	Token       = Metric{Name: "weir_lease_fence_token", Type: Gauge, Help: "Fence token of the lease as this process knows it; 0 when it has none."}
	LeaseLeft   = Metric{Name: "weir_lease_remaining_seconds", Type: Gauge, Unit: "seconds", Help: "Time until the lease runs out unless it is renewed, by the store's clock; negative when it has. Absent without a lease."}

	Commits       = Metric{Name: "weir_commits_total", Type: Counter, Help: "Epochs committed by this process, and commits that failed.", Labels: []string{LabelOutcome}}
	CommitSeconds = Metric{Name: "weir_commit_duration_seconds_total", Type: Counter, Unit: "seconds", Help: "Time that commits which stand have taken; its rate by that of the commits is the mean."}
	CommitLast    = Metric{Name: "weir_commit_last_duration_seconds", Type: Gauge, Unit: "seconds", Help: "Time that the last commit has taken."}
	CommitAge     = Metric{Name: "weir_commit_age_seconds", Type: Gauge, Unit: "seconds", Help: "Time since the last commit of this process. Absent before the first."}
	CommitOpen    = Metric{Name: "weir_commit_under_way_seconds", Type: Gauge, Unit: "seconds", Help: "How long the commit that is under way has been; 0 when none is."}
	Refused       = Metric{Name: "weir_effects_refused_total", Type: Counter, Help: "Effects of this process that the fence refused, since the lease was another owner's."}
	Checkpoints   = Metric{Name: "weir_checkpoints_total", Type: Counter, Help: "Checkpoints made, and tries that failed.", Labels: []string{LabelOutcome}}
	CheckpointAge = Metric{Name: "weir_checkpoint_age_seconds", Type: Gauge, Unit: "seconds", Help: "Time since the last checkpoint of this process. Absent before the first."}
	CheckpointLen = Metric{Name: "weir_checkpoint_size_bytes", Type: Gauge, Unit: "bytes", Help: "What the last checkpoint of this process refers to. Absent before the first."}
	Outage        = Metric{Name: "weir_source_up", Type: Gauge, Help: "0 while the source does not answer, 1 otherwise."}
	Observed      = Metric{Name: "weir_source_observed_age_seconds", Type: Gauge, Unit: "seconds", Help: "Age of what is known of the ends of the log, by which lag is reckoned. Absent when the log was never asked."}

	SinkUp      = Metric{Name: "weir_sink_up", Type: Gauge, Help: "0 while the sink is down and the run waits for it, 1 otherwise.", Labels: []string{LabelSink}}
	SinkRows    = Metric{Name: "weir_sink_rows_total", Type: Counter, Help: "Rows published to the sink by this process, without those that stood there already.", Labels: []string{LabelSink}}
	SinkBytes   = Metric{Name: "weir_sink_bytes_total", Type: Counter, Unit: "bytes", Help: "Bytes of them, as the journal keeps rows: the same for every sink.", Labels: []string{LabelSink}}
	SinkCalls   = Metric{Name: "weir_sink_publications_total", Type: Counter, Help: "Publications of rows that stand.", Labels: []string{LabelSink}}
	SinkSeconds = Metric{Name: "weir_sink_publish_duration_seconds_total", Type: Counter, Unit: "seconds", Help: "Time that they have taken; its rate by that of the publications is the mean. What was tried in vain is not in it.", Labels: []string{LabelSink}}
	SinkRetries = Metric{Name: "weir_sink_retries_total", Type: Counter, Help: "How often the sink failed and was tried again.", Labels: []string{LabelSink}}
	SinkLag     = Metric{Name: "weir_sink_lag_rows", Type: Gauge, Help: "Rows that the sink was handed, of the epoch in the making or of the journal, and that do not stand there yet.", Labels: []string{LabelSink}}

	Watermark    = Metric{Name: "weir_watermark_timestamp_seconds", Type: Gauge, Unit: "seconds", Help: "Merged watermark as Unix time. Absent before there is one, and once everything is closed."}
	WatermarkAge = Metric{Name: "weir_watermark_age_seconds", Type: Gauge, Unit: "seconds", Help: "The clock less the merged watermark. Absent as that is."}

	PartWatermark = Metric{Name: "weir_partition_watermark_age_seconds", Type: Gauge, Unit: "seconds", Help: "The clock less the watermark of the partition. Absent before there is one, and once it has ended.", Labels: []string{LabelPartition}}
	HoldsMark     = Metric{Name: "weir_partition_holds_watermark", Type: Gauge, Help: "1 for a partition at which the merged watermark stands, 0 for the others.", Labels: []string{LabelPartition}}
	LagRecords    = Metric{Name: "weir_partition_lag_records", Type: Gauge, Help: "Positions between the committed one and the end of the log. Absent when the log does not tell.", Labels: []string{LabelPartition}}
	Readable      = Metric{Name: "weir_partition_readable_records", Type: Gauge, Help: "The part of the lag that can be delivered now; less than the lag while a transaction is open.", Labels: []string{LabelPartition}}
	LagSeconds    = Metric{Name: "weir_partition_lag_seconds", Type: Gauge, Unit: "seconds", Help: "The clock less the highest event time that was accepted, 0 without lag; of Kinesis, how far the stream says that the reading is behind its end. Absent before the first event.", Labels: []string{LabelPartition}}
	Progress      = Metric{Name: "weir_partition_progress_age_seconds", Type: Gauge, Unit: "seconds", Help: "Time since the committed position last moved.", Labels: []string{LabelPartition}}
	Stalled       = Metric{Name: "weir_partition_stalled", Type: Gauge, Help: "1 for a partition that has had readable records for too long without moving.", Labels: []string{LabelPartition}}
	BlockedPart   = Metric{Name: "weir_partition_blocked", Type: Gauge, Help: "1 for a partition that is not read any more until somebody acts.", Labels: []string{LabelPartition}}
	AtRisk        = Metric{Name: "weir_partition_retention_at_risk", Type: Gauge, Help: "1 for a partition of which the log is about to remove what the run still needs.", Labels: []string{LabelPartition}}
	StateSeconds  = Metric{Name: "weir_partition_state_seconds_total", Type: Counter, Unit: "seconds", Help: "Time that the partition has spent in each state. The states exclude one another: their sum is the time it has been watched.", Labels: []string{LabelPartition, LabelState}}
	Gaps          = Metric{Name: "weir_partition_open_gaps", Type: Gauge, Help: "Open runs of missing sequence numbers.", Labels: []string{LabelPartition}}
	HeldKeys      = Metric{Name: "weir_partition_held_keys", Type: Gauge, Help: "Keys that wait for a record that is set aside, of a flow with hold_key.", Labels: []string{LabelPartition}}
	HeldRecords   = Metric{Name: "weir_partition_held_records", Type: Gauge, Help: "Records of them that wait.", Labels: []string{LabelPartition}}
	Credits       = Metric{Name: "weir_partition_in_flight_records", Type: Gauge, Help: "Records handed out and not yet processed, at the last change or commit.", Labels: []string{LabelPartition}}
	CreditBytes   = Metric{Name: "weir_partition_in_flight_bytes", Type: Gauge, Unit: "bytes", Help: "Bytes of them.", Labels: []string{LabelPartition}}
	Window        = Metric{Name: "weir_partition_window_bytes", Type: Gauge, Unit: "bytes", Help: "Limit of the bytes in flight.", Labels: []string{LabelPartition}}
	Aside         = Metric{Name: "weir_partition_waiting_records", Type: Gauge, Help: "Records that were read and wait for others to be processed, at the last change or commit.", Labels: []string{LabelPartition}}

	Records    = Metric{Name: "weir_records_total", Type: Counter, Help: "Records by what became of them: consumed, filtered, omitted, duplicate, late, future. They count over the whole life of the run, as the journal does.", Labels: []string{LabelPartition, LabelOutcome}}
	Outputs    = Metric{Name: "weir_outputs_total", Type: Counter, Help: "Rows of results, over the whole life of the run.", Labels: []string{LabelPartition}}
	Quarantine = Metric{Name: "weir_records_quarantined_total", Type: Counter, Help: "Records that this process has set aside, by reason.", Labels: []string{LabelPartition, LabelReason}}
)

// Table is every metric, in the order of the documentation.
func Table() []Metric {
	return []Metric{
		Build,
		Phase, PhaseAge, Epoch, Incarnation, Restarts, Lease, Token, LeaseLeft,
		Commits, CommitSeconds, CommitLast, CommitAge, CommitOpen, Refused, Checkpoints, CheckpointAge, CheckpointLen, Outage, Observed,
		SinkUp, SinkRows, SinkBytes, SinkCalls, SinkSeconds, SinkRetries, SinkLag,
		Watermark, WatermarkAge,
		PartWatermark, HoldsMark, LagRecords, Readable, LagSeconds, Progress, Stalled, BlockedPart, AtRisk, StateSeconds, Gaps, HeldKeys, HeldRecords, Credits, CreditBytes, Window, Aside,
		Records, Outputs, Quarantine,
	}
}

// AllLabels are the labels of a metric, the run first.
func (m Metric) AllLabels() []string {
	if m.Name == Build.Name {
		return m.Labels
	}
	return append([]string{LabelRun}, m.Labels...)
}

// Page is docs/metrics.md.
func Page() []byte {
	var b strings.Builder
	b.WriteString("# Metrics\n\nGenerated from the package `metrics` by `make docs`. `weir run --listen HOST:PORT` serves them at `/metrics`, in the text format of Prometheus.\n" +
		"Units are base units, and a name keeps its meaning. Values are of the moment of the scrape. Counters start again with the process, unless they say otherwise.\n\n" +
		"| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n")
	for _, m := range Table() {
		unit := m.Unit
		if unit == "" {
			unit = "-"
		}
		b.WriteString("| `" + m.Name + "` | " + string(m.Type) + " | " + unit + " | " + strings.Join(m.AllLabels(), ", ") + " | " + m.Help + " |\n")
	}
	b.WriteString("\nAlerts worth having: `weir_run_phase{phase=\"RECOVERY_BLOCKED\"} == 1`, `weir_partition_stalled == 1`, `weir_partition_blocked == 1`, `weir_source_up == 0`, `weir_sink_up == 0`,\n" +
		"`rate(weir_effects_refused_total[5m]) > 0`, `weir_watermark_age_seconds` above what the flow promises, and `weir_lease_held` that adds up to 0 over all processes of a run.\n")
	return []byte(b.String())
}
