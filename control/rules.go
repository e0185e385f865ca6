package control

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
)

// MaxRunID is the longest run id, in bytes.
const MaxRunID = 200

// Refused says whether an error of a write is a refusal: certainly nothing of it stands, and the same call gives the same until something else
// has changed. Of any other error it is unknown whether the write stands.
func Refused(err error) bool {
	switch codes.Of(err) {
	case codes.JournalConflict, codes.RunFinished, codes.RunUnknown, codes.Internal, codes.LimitReached,
		codes.LeaseHeld, codes.StaleFence, codes.FenceRegression, codes.ConfigInvalid,
		codes.RunMismatch, codes.TopicRecreated, codes.RunIDInvalid, codes.CheckpointUnknown,
		codes.PublicationConflict, codes.RunNotQueued, codes.RunNotRunning,
		codes.IdempotencyConflict, codes.RequestInvalid:
		return true
	}
	return false
}

// Validate checks a header by itself. It fails with RunIDInvalid, or with Internal for what no caller may ask.
func (h RunHeader) Validate() error {
	if err := checkRunID(h.RunID); err != nil {
		return err
	}
	if h.Fingerprint == "" || h.Source == "" {
		return codes.New(codes.Internal, "run %q is opened without a flow fingerprint or without a source", h.RunID)
	}
	if len(h.Partitions) == 0 {
		return codes.New(codes.Internal, "run %q is opened without partitions", h.RunID)
	}
	sorted := slices.Sorted(slices.Values(h.Partitions))
	for i, p := range sorted {
		if p < 0 || i > 0 && sorted[i-1] == p {
			return codes.New(codes.Internal, "run %q is opened with partition %d, which is negative or named twice", h.RunID, p)
		}
	}
	return nil
}

func checkRunID(id string) error {
	bad := ""
	switch {
	case id == "":
		bad = "it is empty"
	case len(id) > MaxRunID:
		bad = fmt.Sprintf("it has %d bytes", len(id))
	case !utf8.ValidString(id):
		bad = "it is not UTF-8"
	case strings.ContainsFunc(id, unicode.IsControl):
		bad = "it has a control character"
	default:
		return nil
	}
	shown := id[:min(len(id), 40)]
	return codes.New(codes.RunIDInvalid, "run id %q cannot be used: %s; a run id is 1 to %d bytes of UTF-8 without control characters", shown, bad, MaxRunID)
}

// CheckHeader says whether a run that was started under one header may be opened under another. Both are valid.
//
//   - Another run id, flow fingerprint or source: RunMismatch, which names everything that differs.
//   - The same source with another identity: TopicRecreated. If the run does not know an identity yet, the asked one is taken; if
//     the source tells none although the run knows one, it cannot be verified: RunMismatch.
//   - Partitions that are gone: RunMismatch. A log does not lose partitions; positions in them would be lost silently.
//   - Partitions that are new: accepted. A topic may grow under a running job, and a partition that the journal has not seen starts at
//     the beginning of its log, so that nothing written to it before the job noticed is lost.
//   - The group is a courtesy and not compared.
func CheckHeader(stored, asked RunHeader) error {
	recreated, differ := differences(stored, asked)
	if stored.RunID != asked.RunID {
		recreated = false
		differ = append([]string{fmt.Sprintf("the run id was %q and is now %q", stored.RunID, asked.RunID)}, differ...)
	}
	if recreated {
		return codes.New(codes.TopicRecreated, "run %q read %q with the identity %q; that name now belongs to %q, so the run's positions mean nothing there. Start a new --run-id",
			stored.RunID, stored.Source, stored.SourceID, asked.SourceID)
	}
	if len(differ) == 0 {
		return nil
	}
	return codes.New(codes.RunMismatch, "run %q cannot be resumed: %s", stored.RunID, strings.Join(differ, "; "))
}

// differences says how two headers differ beside the run id: whether the same source has another identity by now, or else what does not fit.
func differences(stored, asked RunHeader) (recreated bool, differ []string) {
	compare := func(what, was, is string) {
		if was != is {
			differ = append(differ, fmt.Sprintf("%s was %q and is now %q", what, was, is))
		}
	}
	compare("the flow fingerprint", stored.Fingerprint, asked.Fingerprint)
	compare("the topic", stored.Source, asked.Source)
	if len(differ) == 0 && stored.SourceID != "" && asked.SourceID != "" && stored.SourceID != asked.SourceID {
		return true, nil
	}
	if stored.SourceID != "" && asked.SourceID == "" && stored.Source == asked.Source {
		differ = append(differ, fmt.Sprintf("the topic's identity was %q and the source no longer tells one", stored.SourceID))
	}
	if gone := missing(stored.Partitions, asked.Partitions); len(gone) > 0 {
		differ = append(differ, fmt.Sprintf("it had %d partitions and %s now missing", len(stored.Partitions), numbers(gone)))
	}
	return false, differ
}

// missing returns what is in all and not in have, sorted.
func missing(all, have []int32) []int32 {
	in := make(map[int32]bool, len(have))
	for _, p := range have {
		in[p] = true
	}
	var out []int32
	for _, p := range all {
		if !in[p] {
			out = append(out, p)
		}
	}
	slices.Sort(out)
	return out
}

// numbers writes at most ten partition numbers, with "is" or "are".
func numbers(ps []int32) string {
	var b strings.Builder
	for i, p := range ps {
		switch {
		case i == 10:
			fmt.Fprintf(&b, " and %d more", len(ps)-10)
		case i > 10:
			continue
		case i > 0:
			b.WriteString(", " + strconv.Itoa(int(p)))
		default:
			b.WriteString(strconv.Itoa(int(p)))
		}
	}
	if len(ps) == 1 {
		return b.String() + " is"
	}
	return b.String() + " are"
}

// CheckOpen is the rule of OpenRun for a run that exists: it checks the headers, returns the header that stands from now on (with
// partitions added, the group as asked) and what to add. A finished run is refused with RunFinished, under a header that fits.
func CheckOpen(status RunStatus, stored, asked RunHeader) (stands RunHeader, added []int32, err error) {
	if err := CheckHeader(stored, asked); err != nil {
		return stored, nil, err
	}
	if status == RunFinished {
		return stored, nil, codes.New(codes.RunFinished, "run %q has ended and is not resumed by accident. Use a new --run-id", stored.RunID)
	}
	stands = stored
	stands.Group = asked.Group
	if stands.SourceID == "" {
		stands.SourceID = asked.SourceID
	}
	added = missing(asked.Partitions, stored.Partitions)
	stands.Partitions = slices.Sorted(slices.Values(slices.Concat(stored.Partitions, added)))
	return stands, added, nil
}

// Validate checks the shape of a commit by itself: what no caller may ask is Internal.
func (c Commit) Validate() error {
	if c.Epoch == 0 || c.Epoch > math.MaxInt64 {
		return codes.New(codes.Internal, "run %q commits epoch %d; epochs start at 1", c.RunID, c.Epoch)
	}
	if c.Status != RunOpen && c.Status != RunFinished {
		return codes.New(codes.Internal, "run %q commits epoch %d with the unknown status %q", c.RunID, c.Epoch, c.Status)
	}
	seen := make(map[int32]bool, len(c.Partitions))
	for _, p := range c.Partitions {
		n := p.Cut.Partition
		if seen[n] {
			return codes.New(codes.Internal, "run %q commits partition %d twice in epoch %d", c.RunID, n, c.Epoch)
		}
		seen[n] = true
		if p.Rows.Count < 0 || (p.Rows.Count == 0) != (len(p.Rows.Data) == 0) {
			return codes.New(codes.Internal, "run %q, partition %d: %d rows in %d bytes", c.RunID, n, p.Rows.Count, len(p.Rows.Data))
		}
	}
	return nil
}

// CheckCommit is the compare-and-set: a commit is accepted by a run that is open and stands at the epoch before it. Otherwise
// JournalConflict, or RunFinished if the run ended at just that epoch.
func CheckCommit(status RunStatus, epoch uint64, c Commit) error {
	switch {
	case epoch != c.Epoch-1:
		return codes.New(codes.JournalConflict, "run %q stands at epoch %d (%s), so epoch %d was not committed: another process has written to this run", c.RunID, epoch, status, c.Epoch)
	case status != RunOpen:
		return codes.New(codes.RunFinished, "run %q ended with epoch %d; epoch %d was not committed", c.RunID, epoch, c.Epoch)
	}
	return nil
}

// CheckCut says that a partition's committed progress never goes back: neither its position nor its watermark. stored is the cut
// that stands, or the zero cut with watermark record.NoTime.
func CheckCut(runID string, stored, next partitions.Cut) error {
	if next.Next.Cmp(stored.Next) < 0 {
		return codes.New(codes.Internal, "run %q, partition %d: the position would go back from %s to %s", runID, next.Partition, stored.Next, next.Next)
	}
	if next.Watermark < stored.Watermark {
		return codes.New(codes.Internal, "run %q, partition %d: the watermark would go back from %s to %s", runID, next.Partition, stored.Watermark, next.Watermark)
	}
	return nil
}
