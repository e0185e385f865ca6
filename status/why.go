package status

import (
	"fmt"
	"strings"
	"time"
)

// Reason is one thing that holds a run, or a part of it, in words.
type Reason struct {
	// Code is a stable name: one of the list below, or that of the error that is the cause.
	Code string `json:"code"`
	// Run and Partition say where; Partition is null when it is the whole run.
	Run       string `json:"run"`
	Partition *int32 `json:"partition"`
	// Holder is who or what holds; Since since when, null if nobody knows.
	Holder string     `json:"holder"`
	Since  *time.Time `json:"since"`
	// Text says what is so, Release what would end it.
	Text    string `json:"text"`
	Release string `json:"release"`
	// Holds says that something does not go on because of this; otherwise it is only said.
	Holds bool `json:"holds"`
}

// Codes of reasons, beside those of errors.
const (
	WhyNothing         = "NOTHING_HOLDS"
	WhyFinished        = "FINISHED"
	WhyStopped         = "STOPPED"
	WhyNobodyRuns      = "NOBODY_RUNS"
	WhyStandingBy      = "STANDING_BY"
	WhyStarting        = "STARTING"
	WhyEnding          = "ENDING"
	WhyBackoff         = "BACKOFF"
	WhyRecoveryBlocked = "RECOVERY_BLOCKED"
	WhySourceOutage    = "SOURCE_OUTAGE"
	WhySourceUnknown   = "SOURCE_NOT_OBSERVED"
	WhyCommitSlow      = "COMMIT_SLOW"
	WhyCheckpoints     = "CHECKPOINTS_FAIL"
	WhySink            = "SINK_DOWN"
	WhyBlocked         = "PARTITION_BLOCKED"
	WhyPaused          = "PAUSED"
	WhyForCommit       = "WAITS_FOR_COMMIT"
	WhyHeldInLog       = "HELD_IN_LOG"
	WhyRetention       = "RETENTION_LOST"
	WhyAtRisk          = "RETENTION_AT_RISK"
	WhyUnanswered      = "PARTITION_NOT_ANSWERED"
	WhyLateness        = "LATENESS"
	WhySinkSlow        = "SINK_SLOW"
	WhyNoPartitions    = "NO_PARTITIONS"
	WhyRebalancing     = "REBALANCING"
	WhyNoMember        = "NO_MEMBER"
	WhyGap             = "OPEN_GAP"
	WhyKeysHeld        = "KEYS_HELD"
	WhyFuture          = "RECORDS_FROM_THE_FUTURE"
	WhyLate            = "RECORDS_LATE"
	WhySilent          = "SILENT"
	WhyNeverRead       = "NO_EVENT_YET"
	WhyBehind          = "BEHIND_IN_EVENT_TIME"
	WhyIdle            = "IDLE"
	WhyNoProgress      = "NO_PROGRESS"
	WhyCatchingUp      = "CATCHING_UP"
)

// Why says what holds the run: first what concerns all of it, then partition by partition. There is always an answer: one reason with the code
// NOTHING_HOLDS when there is none to give.
func (r Report) Why() []Reason {
	var out, waits []Reason
	peers := r.partitions()
	for i := range r.Runs {
		s := r.Runs[i]
		if len(r.Runs) > 1 {
			s.Holders = holders(s.Partitions, peers)
		}
		for _, reason := range why(s, peers) {
			switch {
			case reason.Code == WhyLateness:
				waits = append(waits, reason) // as nothing: told when nothing else is
			case reason.Code != WhyNothing || len(r.Runs) == 1:
				out = append(out, reason)
			}
		}
	}
	out = append(r.ofGroup(), out...)
	if len(r.Runs) > 0 {
		out = withLateness(out, waits, r.Runs[0].At, peers)
	}
	if len(out) == 0 {
		out = append(out, Reason{Code: WhyNothing, Run: r.Run, Text: fmt.Sprintf("nothing holds the run: %d parts of it run", len(r.Runs))})
	}
	return out
}

// ofGroup is what concerns the process as a member of a group.
func (r Report) ofGroup() (out []Reason) {
	const holder = "the consumer group"
	if c := r.Group; c != nil {
		out = append(out, Reason{Code: WhyNoMember, Run: r.Run, Holder: holder, Since: r.GroupSince, Holds: true,
			Text:    fmt.Sprintf("this process is no member of its group, so no partition is given to it: %s: %s", c.Code, c.bare()),
			Release: "the membership is sought again by itself; " + firstLower(c.Cure)})
	}
	if r.Live && r.EmptySince != nil && r.Group == nil {
		out = append(out, Reason{Code: WhyNoPartitions, Run: r.Run, Holder: holder, Since: r.EmptySince, Holds: true,
			Text:    "no partition of the run is given to this process: the others have them all, or the group is sharing them out anew",
			Release: "a process that leaves the group, or partitions that are added; more processes than partitions stand by"})
	}
	return out
}

// Why says what holds one run.
func Why(s Snapshot) []Reason { return why(s, s.Partitions) }

// why says what holds a run; peers are the partitions that share its merged watermark, its own among them.
func why(s Snapshot, peers []Partition) []Reason {
	w := &answer{s: s, peers: peers}
	w.run()
	if s.Phase == PhaseRunning || !s.Live && s.Status != finishedStatus {
		w.services()
		for i := range s.Partitions {
			w.partition(&s.Partitions[i])
		}
	}
	for i := range w.reasons {
		w.reasons[i].Run = s.Run
	}
	switch {
	case len(w.reasons) == 0:
		w.nothing()
	default:
		told := w.reasons
		w.reasons = nil
		w.lateness()
		w.reasons = withLateness(told, w.reasons, s.At, peers)
	}
	return w.reasons
}

const finishedStatus = "FINISHED"

type answer struct {
	s       Snapshot
	peers   []Partition
	reasons []Reason
}

func (w *answer) add(r Reason) { w.reasons = append(w.reasons, r) }

func (w *answer) nothing() {
	lag, known := int64(0), len(w.s.Partitions) > 0
	for _, p := range w.s.Partitions {
		if p.LagRecords == nil {
			known = false
			continue
		}
		lag += *p.LagRecords
	}
	if w.lateness() {
		return
	}
	text := "nothing holds the run"
	if known {
		text += fmt.Sprintf(": it is %s behind the end of its log", records(&lag))
	}
	w.add(Reason{Code: WhyNothing, Run: w.s.Run, Text: text})
}

// run is what concerns all of it.
func (w *answer) run() {
	s := w.s
	switch {
	case s.Status == finishedStatus:
		w.add(Reason{Code: WhyFinished, Since: s.PhaseSince, Text: fmt.Sprintf("the run has ended: its input was read to the end and everything is released, at epoch %d", s.Epoch),
			Release: "nothing: a finished run is not resumed; start a new one under a new --run-id", Holds: true})
	case !s.Live:
		w.stored()
	case s.Phase == PhaseRecoveryBlocked:
		w.recovery()
	case s.Phase == PhaseStopped:
		w.stopped()
	case s.Wait == WaitLease:
		w.add(Reason{Code: WhyStandingBy, Holder: s.Lease.Holder, Since: s.PhaseSince, Holds: true,
			Text:    fmt.Sprintf("this process stands by: %s holds the lease under token %d%s", orSomebody(s.Lease.Holder), s.Lease.Token, until(s.Lease.Until)),
			Release: "the end of that process, or of its lease if it does not renew it"})
	case s.Wait == WaitBackoff:
		code, what := WhyBackoff, "a failure"
		if s.Cause != nil {
			code, what = s.Cause.Code, s.Cause.bare()
		}
		w.add(Reason{Code: code, Holder: w.lastActor(), Since: s.PhaseSince, Holds: true, Text: "the run waits before it tries again after " + what,
			Release: "it tries again by itself" + at(s.RetryAt) + cure(s.Cause)})
	case s.Wait == WaitStart && len(s.Sinks) > 0:
		w.sinks("nothing is read before it is back")
	case s.Wait == WaitStart:
		w.add(Reason{Code: WhyStarting, Since: s.PhaseSince, Holds: true, Text: "the run starts: the last cut is restored and the source opened",
			Release: "it goes on by itself; a store or a broker that does not answer would be named here once it has failed"})
	case s.Wait == WaitEnd && s.RevokedSince != nil:
		w.add(Reason{Code: WhyRebalancing, Holder: "the consumer group", Since: s.RevokedSince, Holds: true,
			Text:    "the group has given the partition to another process: what is in hand is committed here, and the lease given back",
			Release: "it goes on by itself, in that process"})
	case s.Wait == WaitEnd:
		w.add(Reason{Code: WhyEnding, Since: s.PhaseSince, Holds: true, Text: "the run stops what is under way: the last commit, the last checkpoint, the lease",
			Release: "it goes on by itself"})
	}
}

// stored is what the store alone can tell.
func (w *answer) stored() {
	s := w.s
	switch s.Lease.State {
	case LeaseFree:
		w.add(Reason{Code: WhyNobodyRuns, Since: s.Commit.Last, Holds: true, Text: fmt.Sprintf("no process runs it: nobody holds its lease; it stands at epoch %d", s.Epoch),
			Release: "start it: `weir run` with this --run-id"})
	case LeaseOthers:
		w.add(Reason{Code: "LEASE", Holder: s.Lease.Holder, Since: s.Commit.Last,
			Text:    fmt.Sprintf("%s holds the lease under token %d%s; the store does not say what that process waits for", s.Lease.Holder, s.Lease.Token, until(s.Lease.Until)),
			Release: "ask the process itself: --url, if it was started with --listen; otherwise its log says what it waits for"})
	case LeaseHeld, LeaseLost, LeaseUnfenced, LeaseUnknown:
	}
}

func (w *answer) recovery() {
	s := w.s
	r := Reason{Code: WhyRecoveryBlocked, Since: s.PhaseSince, Holder: "the recovery of the run", Text: "recovery is blocked", Holds: true,
		Release: "an operator's recorded choice: `weir recover`, which shows first what it would do"}
	if c := s.Cause; c != nil {
		r.Code, r.Text = c.Code, "recovery is blocked: "+c.bare()
		if c.Cure != "" {
			r.Release = c.Cure + " Or " + r.Release
		}
	}
	if s.Release != "" {
		r.Release = s.Release
	}
	for i := range s.Partitions {
		w.blocked(&s.Partitions[i])
		w.risk(&s.Partitions[i])
	}
	for _, p := range s.Partitions {
		if p.Pressure.State != string(PhaseRecoveryBlocked) {
			continue
		}
		q := p.Partition
		w.add(Reason{Code: p.Pressure.Reason, Partition: &q, Holder: fmt.Sprintf("partition %d", q), Since: p.Pressure.Since, Holds: true,
			Text:    fmt.Sprintf("recovery is blocked: measured %d, threshold %d%s", p.Pressure.Measured, p.Pressure.Threshold, inBrackets(p.Pressure.Detail)),
			Release: p.Pressure.Release + "; `weir recover` shows first what it would do"})
	}
	if s.Cause != nil || len(w.reasons) == 0 {
		w.add(r)
	}
}

func (w *answer) stopped() {
	s := w.s
	r := Reason{Code: WhyStopped, Since: s.PhaseSince, Holds: true, Text: fmt.Sprintf("the run has stopped at epoch %d", s.Epoch),
		Release: "start it again with the same --run-id: it goes on from its last commit"}
	if c := s.Cause; c != nil {
		r.Code, r.Holder = c.Code, w.lastActor()
		r.Text += ": " + c.bare()
		r.Release = strings.TrimSpace(c.Cure+" Then ") + " " + r.Release
		if c.Cure == "" {
			r.Release = "start it again with the same --run-id"
		}
	}
	if s.Lease.State == LeaseLost {
		r.Text += fmt.Sprintf("; it has lost its lease, token %d", s.Lease.Token)
		if s.Lease.Holder != "" && s.Lease.Holder != s.Owner {
			r.Holder = s.Lease.Holder
		}
	}
	w.add(r)
}

// lastActor is where the last failure was.
func (w *answer) lastActor() string {
	if n := len(w.s.Failures); n > 0 {
		return w.s.Failures[n-1].Actor
	}
	return ""
}

// slowCommit is how many commit intervals a commit may take before it is named, and slowLeast how long at least.
const (
	slowCommit = 2
	slowLeast  = 2 * time.Second
)

// services are the store, the broker and the checkpoints.
func (w *answer) services() {
	s := w.s
	if c := s.Source.Outage; c != nil {
		w.add(Reason{Code: WhySourceOutage, Holder: s.Source.Name, Since: s.Source.OutageSince, Holds: true, Text: "the source does not answer: " + c.Message,
			Release: "it is asked again by itself; " + firstLower(c.Cure)})
	}
	slow := max(time.Duration(s.Commit.Every*slowCommit*float64(time.Second)), slowLeast)
	switch began := s.Commit.Began; {
	case began != nil && s.At.Sub(*began) >= slow:
		w.add(Reason{Code: WhyCommitSlow, Holder: "the store", Since: began, Holds: true, Text: "a commit has been under way for " + age(s.At, began) + ": the store is slow, or does not answer",
			Release: "the answer of the store"})
	case seconds(s.Commit.Seconds) >= slow:
		w.add(Reason{Code: WhyCommitSlow, Holder: "the store", Since: s.Commit.Last, Holds: true, Text: fmt.Sprintf("the last commit took %s", seconds(s.Commit.Seconds)),
			Release: "a faster store, or fewer results in an epoch"})
	}
	for _, p := range s.Published {
		if p.Began != nil && s.At.Sub(*p.Began) >= slow && !w.down(p.Sink) {
			w.add(Reason{Code: WhySinkSlow, Holder: p.Sink, Since: p.Began, Holds: true, Release: "the answer of the sink",
				Text: fmt.Sprintf("%s have been under way to a sink for %s, and nothing is committed before it has them: it is slow, or does not answer", rows(p.Lag), age(s.At, p.Began))})
		}
	}
	w.sinks("nothing is committed before it has the rows")
	if c := s.Checkpoint.Cause; c != nil {
		w.add(Reason{Code: WhyCheckpoints, Holder: "the store of checkpoints", Since: s.Checkpoint.Last, Text: "the last checkpoint could not be made, the run goes on: " + c.Message, Release: c.Cure})
	}
	if c := s.Source.Unobserved; c != nil && s.Source.Outage == nil {
		w.add(Reason{Code: WhySourceUnknown, Holder: s.Source.Name, Since: s.Source.Observed, Text: "lag is not known, since the log could not be asked how it stands: " + c.Message, Release: c.Cure})
	}
}

// sinks are those that are down, and what does not go on before they are back.
func (w *answer) sinks(before string) {
	for _, sink := range w.s.Sinks {
		w.add(Reason{Code: WhySink, Holder: sink.Name, Since: sink.Since, Holds: true,
			Text: fmt.Sprintf("a sink is down, %d tries so far, and %s: %s", sink.Attempts, before, sink.Cause.Message), Release: sink.Cause.Cure})
	}
}

// down says whether a sink is down.
func (w *answer) down(sink string) bool {
	for _, s := range w.s.Sinks {
		if s.Name == sink {
			return true
		}
	}
	return false
}

func (w *answer) partition(p *Partition) {
	n := p.Partition
	name := fmt.Sprintf("partition %d", n)
	add := func(r Reason) {
		r.Partition = &n
		if r.Holder == "" {
			r.Holder = name
		}
		w.add(r)
	}
	before := len(w.reasons)
	w.input(p, name, add)
	w.flow(p, name, add)
	w.time(p, name, add)
	p.held(name, add)
	told := len(w.reasons) > before
	switch {
	case p.Stalled && !told:
		add(Reason{Code: WhyNoProgress, Since: p.Progress, Holds: true, Release: "the logs of the process at level debug say more",
			Text: fmt.Sprintf("%s has not moved for %s, although %s can be read; it is %s%s", name, age(w.s.At, p.Progress), records(p.Readable), p.State, since(p.StateSince))})
	case !told && p.Readable == nil && p.LagSeconds != nil && *p.LagSeconds >= behindSeconds && w.s.Phase == PhaseRunning && p.Pressure.Reason == "":
		add(Reason{Code: WhyCatchingUp, Since: p.Progress, Text: fmt.Sprintf("%s is %s behind the end of its log and moves", name, Age(seconds(*p.LagSeconds))), Release: "reading on"})
	case !told && p.LagRecords != nil && *p.LagRecords > 0 && w.s.Phase == PhaseRunning && p.Pressure.Reason == "" && caughtUp(p) != nil && *p.LagRecords > *caughtUp(p):
		add(Reason{Code: WhyCatchingUp, Since: p.Progress, Text: fmt.Sprintf("%s is %s behind the end of its log and moves", name, records(p.LagRecords)), Release: "reading on"})
	}
	w.risk(p)
}

// behindSeconds is the lag in time from which a partition is called behind, where the log does not count records.
const behindSeconds = 10

// risk tells of a loss that is foreseen.
func (w *answer) risk(p *Partition) {
	r := p.Risk
	if r == nil || p.Blocked != nil || p.Start != nil && before(p.Next, *p.Start) {
		return // it is lost already
	}
	n := p.Partition
	text := fmt.Sprintf("the log is about to remove what partition %d needs", n)
	if r.Left != nil && r.Removed != nil && r.Read != nil && r.Step != nil {
		text += fmt.Sprintf(": %d positions are left before %s, the log removes %.1f a second (at most %d at once), and the run reads %.1f", *r.Left, p.Next, *r.Removed, *r.Step, *r.Read)
	}
	if r.Age != nil && r.Kept != nil {
		text += fmt.Sprintf(": the oldest record that is not done came %s ago, and records are kept for %s", Age(seconds(*r.Age)), Age(seconds(*r.Kept)))
	}
	if r.LostAt != nil {
		text += fmt.Sprintf("; records are lost from about %s on, in %s", clock(*r.LostAt), Age(r.LostAt.Sub(w.s.At)))
	} else {
		text += "; records are lost with its next removal"
	}
	w.add(Reason{Code: WhyAtRisk, Partition: &n, Holder: "the retention of the source", Since: r.Since, Text: text,
		Release: "a run that catches up: see what else holds it; or a log that keeps records longer (retention.ms and retention.bytes; the stream's retention)"})
}

// caughtUp is how many records one window holds: a partition with less lag than that is not called behind.
func caughtUp(p *Partition) *int64 {
	if p.Queue.WindowRecords <= 0 {
		return nil
	}
	return &p.Queue.WindowRecords
}

// input is what is wrong with what a partition reads.
func (w *answer) input(p *Partition, name string, add func(Reason)) {
	w.blocked(p)
	if p.Start != nil && before(p.Next, *p.Start) {
		add(Reason{Code: WhyRetention, Holder: "the retention of the source", Holds: true,
			Text:    fmt.Sprintf("%s needs position %s next, and the log begins at %s: the records between are gone", name, p.Next, *p.Start),
			Release: "records that are restored, or `weir recover --accept-gap`"})
	}
	if c := p.Unobserved; c != nil {
		add(Reason{Code: WhyUnanswered, Since: p.UnobservedSince, Holds: true, Text: fmt.Sprintf("the source does not answer for %s, though it does for others: %s: %s", name, c.Code, c.bare()),
			Release: "it is asked again by itself; a broker that leads the partition has to come back"})
	}
	if h := p.Hold; h != nil {
		by, ends := "", "its end: a commit, an abort, or the time-out of the transaction"
		if h.By != "" {
			by = " of " + h.By
		}
		if h.Ends != nil {
			ends += at(h.Ends)
		}
		add(Reason{Code: h.Reason, Holder: orText(h.By, "an open transaction"), Since: h.Since, Holds: true, Release: ends,
			Text: fmt.Sprintf("%s is held in the log by an open transaction%s: nothing behind position %s can be delivered, the log ends at %s", name, by, orNone(p.Stable), orNone(p.End))})
	}
}

// blocked tells of a partition that is not read any more.
func (w *answer) blocked(p *Partition) {
	c := p.Blocked
	if c == nil {
		return
	}
	n := p.Partition
	r := Reason{Code: WhyBlocked, Partition: &n, Holder: fmt.Sprintf("partition %d", n), Since: p.BlockedSince, Holds: true, Release: p.Release,
		Text: fmt.Sprintf("partition %d is blocked at position %s and holds the watermark: %s: %s", n, p.Next, c.Code, c.bare())}
	if c.recovers() {
		r.Code, r.Text = c.Code, fmt.Sprintf("partition %d is blocked at position %s and holds the watermark: %s", n, p.Next, c.bare())
	}
	if r.Release == "" {
		r.Release = firstUpper(c.Cure) + " Then start the run again: it tries the partition again"
	}
	w.add(r)
}

// flow is what holds the way from the source to a partition.
func (w *answer) flow(p *Partition, name string, add func(Reason)) {
	if w.s.Phase != PhaseRunning {
		return
	}
	switch {
	case p.State == WaitsForCommit:
		r := Reason{Code: WhyForCommit, Holder: "the store", Since: p.StateSince, Holds: true, Release: "a commit",
			Text: fmt.Sprintf("%s gets no more records: its results wait for the journal%s", name, since(p.StateSince))}
		if len(w.s.Sinks) > 0 {
			r.Holder, r.Release = w.s.Sinks[0].Name, "the sink that is down, and then a commit"
		}
		if p.Pressure.State == "PROCESS_PAUSED" {
			r.Text += fmt.Sprintf("; it is PROCESS_PAUSED, %s: measured %d, threshold %d", p.Pressure.Reason, p.Pressure.Measured, p.Pressure.Threshold)
		}
		add(r)
	case p.Pressure.Reason == timeAhead:
		w.ahead(p, name, add)
	case p.Pressure.Reason != "" && p.Pressure.State != "FLOWING" && p.Pressure.State != "":
		add(Reason{Code: p.Pressure.Reason, Since: p.Pressure.Since, Holds: true, Release: p.Pressure.Release,
			Text: fmt.Sprintf("%s is not read, %s: measured %d, threshold %d%s", name, p.Pressure.State, p.Pressure.Measured, p.Pressure.Threshold, inBrackets(p.Pressure.Detail))})
	case p.State == Paused:
		add(Reason{Code: WhyPaused, Since: p.StateSince, Holds: true, Release: "room in its window", Text: fmt.Sprintf("%s is not read: its window is full%s", name, since(p.StateSince))})
	}
}

// timeAhead is the reason of a pressure by which a partition waits for others.
const timeAhead = "EVENT_TIME_AHEAD"

// ahead tells of a partition that is held because others are behind it in event time; the slowest of them is the holder.
func (w *answer) ahead(p *Partition, name string, add func(Reason)) {
	r := Reason{Code: timeAhead, Since: p.Pressure.Since, Holds: true, Release: p.Pressure.Release,
		Text: fmt.Sprintf("%s is held: in event time it is %s ahead of the slowest partition that has something to read, and the bound is %s", name,
			time.Duration(p.Pressure.Measured)*time.Millisecond, time.Duration(p.Pressure.Threshold)*time.Millisecond)}
	if q := w.slowest(p); q != nil {
		r.Holder = fmt.Sprintf("partition %d", q.Partition)
		r.Text += fmt.Sprintf("; that is %s, at %s", r.Holder, q.MaxEventTime)
	}
	add(r)
}

// slowest is the partition furthest behind in event time among those that are read, other than p.
func (w *answer) slowest(p *Partition) (least *Partition) {
	for i := range w.peers {
		q := &w.peers[i]
		if q.Partition == p.Partition || q.Input != "ACTIVE" || (q.Readable != nil || q.LagSeconds != nil) && !unread(q) {
			continue
		}
		if least == nil || q.MaxEventTime.T < least.MaxEventTime.T {
			least = q
		}
	}
	return least
}
