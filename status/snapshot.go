package status

import (
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// Format names the document that a Report is. A field is added without another name; none is taken away or given another meaning.
const Format = "weir.status.1"

// Report is what is known of a run under one name: one Snapshot, or one for each partition when the partitions run apart. In JSON, moments are RFC 3339,
// event times too, or "end"; durations are seconds; positions are decimal texts; what is not known is null.
type Report struct {
	Format string    `json:"format"`
	Run    string    `json:"run"`
	At     time.Time `json:"at"`
	// Live says that the process itself tells; otherwise it is what the store holds.
	Live bool `json:"live"`
	// Watermark is the merged one: the least over the runs.
	Watermark EventTime  `json:"watermark"`
	Runs      []Snapshot `json:"runs"`
	// EmptySince is since when a process that tells has no run of this name: its group has given it no partition. Group is why it is no member of its
	// group at present, since GroupSince.
	EmptySince *time.Time `json:"empty_since,omitempty"`
	Group      *Cause     `json:"group,omitempty"`
	GroupSince *time.Time `json:"group_since,omitempty"`
}

// Snapshot is everything known about one run at one moment.
type Snapshot struct {
	Run  string    `json:"run"`
	Flow string    `json:"flow"`
	At   time.Time `json:"at"`
	Live bool      `json:"live"`
	// Owner is this process; the lease may be another's.
	Owner string `json:"owner"`
	Lease Lease  `json:"lease"`

	Phase Phase `json:"phase"`
	// Wait says for what a run waits whose phase is WAITING.
	Wait       Wait       `json:"waits_for,omitempty"`
	PhaseSince *time.Time `json:"phase_since"`
	// Cause is why the run waits, is blocked or has stopped, if an error is the reason.
	Cause *Cause `json:"cause"`
	// Release says what would end a block of the whole run, if its reporter said so.
	Release string `json:"release,omitempty"`
	// RetryAt is the end of a back-off.
	RetryAt *time.Time `json:"retry_at"`
	// RevokedSince is when the group took the partition of this run from the process, which commits what it has in hand.
	RevokedSince *time.Time `json:"revoked_since,omitempty"`

	// Status is OPEN or FINISHED, as the journal has it; "" when there is no journal yet.
	Status      string     `json:"status"`
	Incarnation uint64     `json:"incarnation"`
	Epoch       uint64     `json:"epoch"`
	Commit      Commit     `json:"commit"`
	Checkpoint  Checkpoint `json:"checkpoint"`
	// Sinks are those that are down.
	Sinks []Sink `json:"sinks,omitempty"`
	// Published tells of every sink of the run.
	Published []Published `json:"published,omitempty"`
	Source    Source      `json:"source"`

	Watermark EventTime `json:"watermark"`
	// Holders are the partitions at which the merged watermark stands; none when it is held by nobody.
	Holders []int32 `json:"holders"`

	// Counts are summed over the partitions, over the whole life of the run.
	Counts     Counts      `json:"counts"`
	Partitions []Partition `json:"partitions"`
	// Failures are the last ones, oldest first; Restarts is how many incarnations there were beyond the first, in this process.
	Failures []Failure `json:"failures"`
	Restarts uint64    `json:"restarts"`
}

// Phase is what a run does.
type Phase string

// The phases.
const (
	PhaseRunning         Phase = "RUNNING"
	PhaseWaiting         Phase = "WAITING"
	PhaseRecoveryBlocked Phase = "RECOVERY_BLOCKED"
	PhaseStopped         Phase = "STOPPED"
	// What the store alone can tell: somebody holds the lease, or nobody does. What that process does is not known there.
	PhaseOwned    Phase = "OWNED"
	PhaseNotOwned Phase = "NOT_OWNED"
)

// Wait is for what a run waits.
type Wait string

// What a run waits for.
const (
	WaitLease   Wait = "LEASE"   // another owner to end: it stands by
	WaitBackoff Wait = "BACKOFF" // the next try after a failure
	WaitStart   Wait = "START"   // the last cut to be restored, the source to open
	WaitEnd     Wait = "END"     // an incarnation to end, the last checkpoint, the lease to be given back
)

// Lease is who may act for the run.
type Lease struct {
	// State: HELD (by this process), OTHERS, FREE (nobody holds it), LOST, UNFENCED (the run has none), UNKNOWN.
	State LeaseState `json:"state"`
	Token uint64     `json:"token"`
	// Holder is the owner id; Until the end of the term by the store's clock.
	Holder string     `json:"holder"`
	Since  *time.Time `json:"since"`
	Until  *time.Time `json:"until"`
}

// LeaseState is how this process, or a command that looks at the store, sees the lease.
type LeaseState string

// The states of a lease.
const (
	LeaseHeld     LeaseState = "HELD"
	LeaseOthers   LeaseState = "OTHERS"
	LeaseFree     LeaseState = "FREE"
	LeaseLost     LeaseState = "LOST"
	LeaseUnfenced LeaseState = "UNFENCED"
	LeaseUnknown  LeaseState = "UNKNOWN"
)

// Commit tells of commits by this process.
type Commit struct {
	Count uint64 `json:"count"`
	// Last is when the last one stood, and Seconds how long it took; Began is when the one under way began.
	Last    *time.Time `json:"last"`
	Seconds float64    `json:"seconds"`
	Total   float64    `json:"seconds_total"`
	Began   *time.Time `json:"under_way_since"`
	// Every is the time between commits while there is something to commit, in seconds.
	Every float64 `json:"every_seconds"`
	// Failed counts commits that failed; Refused those, of them, that the fence refused.
	Failed  uint64 `json:"failed"`
	Refused uint64 `json:"refused_by_fence"`
}

// Checkpoint tells of checkpoints by this process.
type Checkpoint struct {
	Made   uint64 `json:"made"`
	Failed uint64 `json:"failed"`
	// Epoch, Last and Bytes are of the last one that was made; Cause is why the last try failed.
	Epoch uint64     `json:"epoch"`
	Last  *time.Time `json:"last"`
	Bytes int64      `json:"bytes"`
	Cause *Cause     `json:"cause"`
}

// Sink is a target of results that is down.
type Sink struct {
	Name string `json:"name"`
	// Cause is what the last try met, Since when it went down, Attempts how often it was tried since.
	Cause    *Cause     `json:"cause"`
	Since    *time.Time `json:"since"`
	Attempts int        `json:"attempts"`
}

// Published is what this process has published to a target of results.
type Published struct {
	Sink string `json:"sink"`
	// Rows and Bytes stand there; Bytes as the journal keeps them. Publications is how many times there were rows to publish, Seconds how long those that
	// succeeded took, Last when the last one did. Retries is how often the target was tried again.
	Rows         int64      `json:"rows"`
	Bytes        int64      `json:"bytes"`
	Publications uint64     `json:"publications"`
	Seconds      float64    `json:"seconds_total"`
	Last         *time.Time `json:"last"`
	Retries      uint64     `json:"retries"`
	// Lag is rows that the sink was handed, of the epoch in the making or of the journal, and that do not stand yet; Began is when they were.
	Lag   int64      `json:"lag_rows"`
	Began *time.Time `json:"under_way_since,omitempty"`
}

// Source is what the run reads.
type Source struct {
	Name string `json:"name"`
	// Outage is why the source does not answer at present, Since since when.
	Outage      *Cause     `json:"outage"`
	OutageSince *time.Time `json:"outage_since"`
	// Observed is when the log was last asked how it stands; Unobserved why it could not be.
	Observed   *time.Time `json:"observed"`
	Unobserved *Cause     `json:"unobserved"`
}

// Cause is an error as the catalogue knows it.
type Cause struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Cure    string `json:"cure"`
}

// bare is the message without the code that it begins with, for where the code stands already.
func (c *Cause) bare() string {
	text := c.Message
	for more := true; more; {
		text, more = strings.CutPrefix(text, c.Code+": ")
	}
	return text
}

// recovers says whether a cause blocks recovery: an operator has to choose.
func (c *Cause) recovers() bool {
	for _, code := range codes.All() {
		if code.Name == c.Code {
			return code.Exit == codes.ExitRecovery
		}
	}
	return false
}

// maxMessage bounds the text of an error in a snapshot, in bytes.
const maxMessage = 1000

// CauseOf is an error as a cause; nil of none.
func CauseOf(err error) *Cause {
	if err == nil {
		return nil
	}
	code := codes.Of(err)
	if code == nil {
		code = codes.Internal
	}
	text := err.Error()
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return &Cause{Code: code.Name, Message: text, Cure: code.Cure}
}

// Partition is one partition of a run.
type Partition struct {
	Partition int32 `json:"partition"`
	// State is what the partition does, Seconds the time it has spent in each state since Began; they add up to the time since then.
	State      State             `json:"state"`
	StateSince *time.Time        `json:"state_since"`
	Began      *time.Time        `json:"began"`
	Seconds    map[State]float64 `json:"state_seconds"`

	// Next is the committed position. Start is the first that the log still has, Stable is up to where records can be delivered, End is behind
	// the last one; they are null until the log was asked.
	Next   string  `json:"next"`
	Start  *string `json:"log_start"`
	Stable *string `json:"last_stable"`
	End    *string `json:"log_end"`
	// LagRecords is End less Next, Readable the part of it that can be delivered now. LagSeconds is how far event time is behind the clock: 0
	// without lag, and null before the first event. Positions of Kinesis cannot be subtracted: there LagSeconds is how far the stream says that the
	// reading is behind its end, and the others are 0 once everything is read, and null before. All are null when the log does not tell.
	LagRecords *int64   `json:"lag_records"`
	Readable   *int64   `json:"readable_records"`
	LagSeconds *float64 `json:"lag_seconds"`
	Hold       *Hold    `json:"hold"`
	// Risk is a loss that is foreseen. Unobserved is why the log could not say how this partition stands, though others were told, since UnobservedSince.
	Risk            *Risk      `json:"retention_risk,omitempty"`
	Unobserved      *Cause     `json:"unobserved,omitempty"`
	UnobservedSince *time.Time `json:"unobserved_since,omitempty"`

	Watermark      EventTime  `json:"watermark"`
	WatermarkSince *time.Time `json:"watermark_since"`
	MaxEventTime   EventTime  `json:"max_event_time"`
	// Input is ACTIVE, IDLE, PAUSED, FINISHED or BLOCKED; "" when the store does not tell.
	Input      string     `json:"input"`
	InputSince *time.Time `json:"input_since"`

	Pressure Pressure `json:"backpressure"`
	Queue    Queue    `json:"queue"`
	// Undone is null when only the store was asked.
	Undone *Undone `json:"undone"`
	Gap    *Gap    `json:"gap"`
	// Held are keys that wait for a record that is set aside; null when none does.
	Held *Held `json:"held_keys,omitempty"`
	// Blocked is why the partition is not read any more, Release what would end that, if its reporter said so.
	Blocked      *Cause     `json:"blocked"`
	BlockedSince *time.Time `json:"blocked_since"`
	Release      string     `json:"blocked_release,omitempty"`

	Counts Counts `json:"counts"`
	// Aside are the records that this process has set aside, by reason.
	Aside []Aside `json:"set_aside"`
	// Progress is when the committed position last moved. Stalled: it has readable records, and has not moved for too long.
	Progress *time.Time `json:"last_progress"`
	Stalled  bool       `json:"stalled"`
}

// Hold is something in the log itself that keeps records from being delivered, such as an open transaction.
type Hold struct {
	Reason string     `json:"reason"`
	By     string     `json:"by"`
	Since  *time.Time `json:"since"`
	Ends   *time.Time `json:"ends"`
}

// Risk is what a log is about to remove although the run still needs it.
type Risk struct {
	// Since is when it was noticed, LostAt when the loss is foreseen at the present rates; null is with the next removal.
	Since  *time.Time `json:"since"`
	LostAt *time.Time `json:"lost_at"`
	// Left are the positions between the beginning of the log and the one that is needed next. Removed and Read are positions a second; Step is the
	// most that was removed at once. Null where positions do not count records.
	Left    *int64   `json:"left"`
	Removed *float64 `json:"removed_per_second"`
	Read    *float64 `json:"read_per_second"`
	Step    *int64   `json:"removed_at_once"`
	// Age is how long ago the oldest record that is needed has come, Kept how long the log keeps it, in seconds; null where the log removes by position.
	Age  *float64 `json:"age_seconds"`
	Kept *float64 `json:"kept_seconds"`
}

// Pressure is the state of a partition's backpressure, with what stands behind it.
type Pressure struct {
	State     string     `json:"state"`
	Reason    string     `json:"reason"`
	Measured  int64      `json:"measured"`
	Threshold int64      `json:"threshold"`
	Detail    string     `json:"detail"`
	Since     *time.Time `json:"since"`
	Release   string     `json:"release"`
}

// Queue is what is under way to a partition. Numbers are as of the last change of its state, or the last commit.
type Queue struct {
	Records       int64 `json:"records"`
	Bytes         int64 `json:"bytes"`
	WindowRecords int64 `json:"window_records"`
	WindowBytes   int64 `json:"window_bytes"`
	// Aside are records that were read and wait for credit.
	Aside int64 `json:"aside_records"`
}

// Undone is what was handed out and is not committed: what would be processed again after a crash. Numbers are as of the last change of the queue, or
// the last commit.
type Undone struct {
	Records int64 `json:"records"`
	Bytes   int64 `json:"bytes"`
	// Oldest is the record that holds the committed position, Since when it was handed out; null when there is none.
	Oldest *string    `json:"oldest"`
	Since  *time.Time `json:"since"`
}

// Gap is the open gap that holds the watermark of a partition, or would be the first to.
type Gap struct {
	// Key is record data, and "" unless the process was told to show that.
	Key   string     `json:"key"`
	First int64      `json:"first"`
	Last  int64      `json:"last"`
	At    EventTime  `json:"anchor"`
	Since *time.Time `json:"since"`
	// Open is the number of open gaps of the partition.
	Open int `json:"open"`
}

// Aside are records that were set aside for one reason.
type Aside struct {
	Reason string `json:"reason"`
	Total  int64  `json:"total"`
	// Stale are those since the watermark moved last, the first of them at Since.
	Stale int64      `json:"stale"`
	Since *time.Time `json:"since"`
}

// Counts are what became of records. Every record is counted in exactly one of Consumed, Filtered, Omitted, Duplicates, Late and Future.
type Counts struct {
	Records    int64 `json:"records"`
	Consumed   int64 `json:"consumed"`
	Filtered   int64 `json:"filtered"`
	Omitted    int64 `json:"omitted"`
	Duplicates int64 `json:"duplicates_skipped"`
	Late       int64 `json:"late"`
	Future     int64 `json:"future"`
	Outputs    int64 `json:"outputs"`
}

// Plus is the sum.
func (c Counts) Plus(d Counts) Counts {
	return Counts{
		Records: c.Records + d.Records, Consumed: c.Consumed + d.Consumed, Filtered: c.Filtered + d.Filtered, Omitted: c.Omitted + d.Omitted,
		Duplicates: c.Duplicates + d.Duplicates, Late: c.Late + d.Late, Future: c.Future + d.Future, Outputs: c.Outputs + d.Outputs,
	}
}

// Failure ended an incarnation.
type Failure struct {
	Incarnation uint64 `json:"incarnation"`
	Actor       string `json:"actor"`
	// Partition is null when the failure was not one of a partition; otherwise the batch in hand began at Position.
	Partition *int32 `json:"partition"`
	Position  string `json:"position,omitempty"`
	Cause     Cause  `json:"cause"`
}

// EventTime is an event time in a document: null, "end" or RFC 3339.
type EventTime struct{ T record.EventTime }

// NoEventTime is the absent one.
var NoEventTime = EventTime{record.NoTime}

const endText = "end"

// MarshalJSON writes null for the absent time.
func (t EventTime) MarshalJSON() ([]byte, error) {
	if t.T == record.NoTime {
		return []byte("null"), nil
	}
	return append(record.AppendTime([]byte{'"'}, t.T), '"'), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *EventTime) UnmarshalJSON(b []byte) error {
	switch text := string(b); text {
	case "null":
		t.T = record.NoTime
	case `"` + endText + `"`:
		t.T = record.MaxTime
	default:
		if len(b) < 2 || b[0] != '"' {
			return codes.New(codes.RequestInvalid, "an event time is not a text")
		}
		at, err := record.ParseTime(b[1 : len(b)-1])
		if err != nil {
			return codes.New(codes.RequestInvalid, "an event time: %w", err)
		}
		t.T = at
	}
	return nil
}

func (t EventTime) String() string { return t.T.String() }
