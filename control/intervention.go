package control

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// InterventionKind is what an operator may ask of the owner of a stream run.
type InterventionKind string

// The kinds.
const (
	// AcceptGap gives up what the log has lost, or a batch that cannot be read: the partition is read on at To.
	AcceptGap InterventionKind = "ACCEPT_GAP"
	// RetryBlocked reads again what is blocked, since its cause is gone. Partition -1 is the whole run.
	RetryBlocked InterventionKind = "RETRY"
	// ConfirmIdle says that a partition is idle, so that it does not hold the merged watermark until its next record.
	ConfirmIdle InterventionKind = "CONFIRM_IDLE"
	// CloseGap says that the missing number Sequence of Key will not come.
	CloseGap InterventionKind = "CLOSE_GAP"
	// ReplayAside gives Entries of a partition's quarantine to it again.
	ReplayAside InterventionKind = "REPLAY_ASIDE"
	// DropAside gives Entries of a partition's quarantine up.
	DropAside InterventionKind = "DROP_ASIDE"
)

// InterventionOutcome says what became of an intervention.
type InterventionOutcome string

// The outcomes.
const (
	Pending InterventionOutcome = "PENDING"
	// Applied: committed with Epoch of the journal (0 for a retry, which changes nothing that the journal holds).
	Applied InterventionOutcome = "APPLIED"
	// Dismissed: it did not fit what the owner found; Note says why.
	Dismissed InterventionOutcome = "DISMISSED"
)

// Intervention is an operator's choice about a stream run, on its way to the owner. The owner makes it a decision in the journal, in the epoch that it
// takes effect with; the row says who asked for it, and what became of it.
type Intervention struct {
	// ID is given by the store, in order.
	ID        int64
	RunID     string
	Partition int32
	Kind      InterventionKind
	// From is where the partition stood when an AcceptGap was asked for: it does not apply to any other place. To is behind From.
	From, To record.Position
	// Key and Sequence name the missing number of a CloseGap.
	Key      string
	Sequence int64
	// Entries are the numbers of entries of the partition's quarantine, for ReplayAside and DropAside: 1 to MaxEntries, ascending.
	Entries []int64
	// Who asked, and why.
	Who, Why string
	Created  time.Time

	Outcome InterventionOutcome
	Epoch   uint64
	Note    string
	Settled time.Time
}

// Interventions is the port between operators and the owners of stream runs.
type Interventions interface {
	// Intervene leaves a choice for the owner of a run, present or next, and returns it with its ID. It needs no lease: nothing but the row
	// changes. Errors: RequestInvalid, RunUnknown, RunFinished.
	Intervene(ctx context.Context, i Intervention) (Intervention, error)
	// ListInterventions lists those of a run by ID: all, or those that are pending. An unknown run has none.
	ListInterventions(ctx context.Context, runID string, pending bool) ([]Intervention, error)
	// SettleIntervention says what became of one, under the lease of its run. One that is settled stays as it is; RequestInvalid when the run
	// has none of this ID.
	SettleIntervention(ctx context.Context, l Lease, runID string, id int64, outcome InterventionOutcome, epoch uint64, note string) error
}

// MaxInterventionText is the longest Who, Why, Note or Key, in bytes.
const MaxInterventionText = 1000

// MaxEntries is how many entries of a quarantine one intervention names at most.
const MaxEntries = 1000

// Validate checks an intervention by itself. It fails with RequestInvalid, or RunIDInvalid.
func (i Intervention) Validate() error {
	if err := checkRunID(i.RunID); err != nil {
		return err
	}
	bad := ""
	switch {
	case i.Partition < 0 && !(i.Partition == -1 && i.Kind == RetryBlocked):
		bad = "it names no partition"
	case i.Kind == AcceptGap && i.To.Cmp(i.From) <= 0:
		bad = "it gives up nothing: it would go on at " + i.To.String() + ", and the partition stands at " + i.From.String()
	case i.Kind == CloseGap && i.Key == "":
		bad = "it names no key"
	case !i.Kind.known():
		bad = "its kind is not known"
	case i.Kind.aboutAside() != (len(i.Entries) > 0) || len(i.Entries) > MaxEntries || !ascending(i.Entries):
		bad = "it names no entries of the quarantine, too many at once, or not in ascending order"
	case badText(i.Who, MaxInterventionText) != "":
		bad = "who asks for it: " + badText(i.Who, MaxInterventionText)
	case strings.TrimSpace(i.Why) == "" || badText(i.Why, MaxInterventionText) != "":
		bad = "why: " + badText(strings.TrimSpace(i.Why), MaxInterventionText)
	case len(i.Key) > MaxInterventionText || !utf8.ValidString(i.Key) || strings.ContainsRune(i.Key, 0):
		bad = "its key is too long, not UTF-8, or has a NUL"
	default:
		return nil
	}
	return codes.New(codes.RequestInvalid, "the intervention %s on run %q cannot be asked for: %s", i.Kind, i.RunID, bad)
}

func (k InterventionKind) known() bool {
	return k == AcceptGap || k == RetryBlocked || k == ConfirmIdle || k == CloseGap || k.aboutAside()
}

func (k InterventionKind) aboutAside() bool { return k == ReplayAside || k == DropAside }

// ascending says whether numbers are not negative, and each is greater than the one before.
func ascending(numbers []int64) bool {
	last := int64(-1)
	for _, n := range numbers {
		if n <= last {
			return false
		}
		last = n
	}
	return true
}

// CheckIntervene is the rule of Intervene for a run that exists: it is open, and has the partition.
func CheckIntervene(i Intervention, status RunStatus, partitions []int32) error {
	if status == RunFinished {
		return codes.New(codes.RunFinished, "run %q has ended; there is nothing to decide", i.RunID)
	}
	if i.Partition >= 0 && len(missing([]int32{i.Partition}, partitions)) > 0 {
		return codes.New(codes.RequestInvalid, "run %q has no partition %d; it has %d", i.RunID, i.Partition, len(partitions))
	}
	return nil
}

// CheckSettle checks what SettleIntervention is asked for by itself: Internal for what no caller may ask.
func CheckSettle(l Lease, runID string, outcome InterventionOutcome, note string) error {
	if err := CheckUnder(runID, l); err != nil {
		return err
	}
	if outcome != Applied && outcome != Dismissed || len(note) > MaxInterventionText || !utf8.ValidString(note) {
		return codes.New(codes.Internal, "an intervention on run %q would be settled as %q", runID, outcome)
	}
	return nil
}

// InterventionUnknown is the refusal of one that the run does not have.
func InterventionUnknown(runID string, id int64) error {
	return codes.New(codes.RequestInvalid, "run %q has no intervention %d", runID, id)
}

// interventionDetail is how stores keep what only some kinds have.
type interventionDetail struct {
	From     string `json:"from,omitempty"`
	To       string `json:"to,omitempty"`
	Key      string `json:"key,omitempty"`
	Sequence int64  `json:"sequence,omitempty"`
	// Entries are runs of numbers, such as "0-9,12".
	Entries string `json:"entries,omitempty"`
}

// EntryRuns writes ascending numbers as runs: 0-9,12.
func EntryRuns(numbers []int64) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(numbers[i], 10))
		if j > i {
			b.WriteString("-" + strconv.FormatInt(numbers[j], 10))
		}
		i = j + 1
	}
	return b.String()
}

// ParseEntryRuns reads what EntryRuns writes. Runs have to ascend, and to name at most most numbers. The error says in words what is wrong.
func ParseEntryRuns(s string, most int) ([]int64, error) {
	var out []int64
	for run := range strings.SplitSeq(s, ",") {
		from, to, isRun := strings.Cut(run, "-")
		if !isRun {
			to = from
		}
		a, errA := strconv.ParseInt(from, 10, 64)
		b, errB := strconv.ParseInt(to, 10, 64)
		switch {
		case errA != nil || errB != nil || a < 0 || b < a:
			return nil, fmt.Errorf("%q is neither a number nor a run of numbers, such as 7 or 3-9", run)
		case len(out) > 0 && a <= out[len(out)-1]:
			return nil, fmt.Errorf("%q does not come after the numbers before it", run)
		case b-a >= int64(most-len(out)):
			return nil, fmt.Errorf("these are more than %d numbers", most)
		}
		for n := a; n <= b; n++ {
			out = append(out, n)
		}
	}
	return out, nil
}

// Detail is what only some kinds have, as a store keeps it.
func (i Intervention) Detail() string {
	d := interventionDetail{Key: i.Key, Sequence: i.Sequence, Entries: EntryRuns(i.Entries)}
	if i.Kind == AcceptGap {
		d.From, d.To = i.From.String(), i.To.String()
	}
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // strings and a number
	}
	return string(b)
}

// SetDetail reads what Detail wrote.
func (i *Intervention) SetDetail(s string) error {
	var d interventionDetail
	err := json.Unmarshal([]byte(s), &d)
	i.Key, i.Sequence = d.Key, d.Sequence
	if err == nil && i.Kind == AcceptGap {
		if i.From, err = record.ParsePosition(d.From); err == nil {
			i.To, err = record.ParsePosition(d.To)
		}
	}
	if err == nil && d.Entries != "" {
		i.Entries, err = ParseEntryRuns(d.Entries, MaxEntries)
	}
	if err != nil {
		return codes.New(codes.JournalCorrupt, "intervention %d on run %q is damaged: %w", i.ID, i.RunID, err)
	}
	return nil
}
