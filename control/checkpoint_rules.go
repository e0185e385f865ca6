package control

import (
	"math"
	"slices"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// CheckPointer checks the shape of a pointer and the lease that it is kept under, before anything is locked: it is kept under the lease of its
// run (CheckUnder). What no caller may ask is Internal.
func CheckPointer(l Lease, p Pointer) error {
	if err := CheckUnder(p.RunID, l); err != nil {
		return err
	}
	bad := ""
	hash, prefixed := strings.CutPrefix(p.Hash, record.HashPrefix)
	switch {
	case p.Epoch == 0 || p.Epoch > math.MaxInt64:
		bad = "epochs start at 1"
	case !isDigest(p.Manifest):
		bad = "the manifest's name is not 64 lower-case hex digits"
	case !prefixed || !isDigest(hash):
		bad = "the manifest's hash is not " + record.HashPrefix + " and 64 lower-case hex digits"
	case p.Fingerprint == "":
		bad = "it has no flow fingerprint"
	case p.Blobs < 0 || p.Bytes < 0 || p.NewBytes < 0:
		bad = "a number in it is negative"
	default:
		return nil
	}
	return codes.New(codes.Internal, "the pointer to epoch %d of run %q cannot be kept: %s", p.Epoch, p.RunID, bad)
}

func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// CheckKeep is the rule of KeepPointer. epoch is where the run stands; stands is the pointer of that run and epoch, with Epoch 0 when there is
// none. done says that the very pointer is there and nothing is left to do.
func CheckKeep(epoch uint64, stands, p Pointer) (done bool, err error) {
	switch {
	case epoch < p.Epoch:
		return false, codes.New(codes.JournalConflict, "run %q stands at epoch %d, so no checkpoint of epoch %d can be kept", p.RunID, epoch, p.Epoch)
	case stands.Epoch == 0:
		return false, nil
	case stands.Manifest != p.Manifest:
		return false, codes.New(codes.PublicationConflict, "the checkpoint of run %q at epoch %d has the manifest %s and would now get %s; nothing was written",
			p.RunID, p.Epoch, stands.Manifest, p.Manifest)
	}
	return true, nil
}

// CheckPointerFence compares the token of a run's own lease with the run's fence, as CheckFence does, for who pins or drops its checkpoints. The
// tokens of other leases say nothing about the run.
func CheckPointerFence(runID string, stored FenceToken, l Lease) error {
	if l.Name != StreamLease(runID) {
		return nil
	}
	return CheckFence(runID, stored, l.Token)
}

// PointerUnknown is the refusal CheckpointUnknown of a checkpoint that is not there.
func PointerUnknown(runID string, epoch uint64) error {
	return codes.New(codes.CheckpointUnknown, "the store holds no checkpoint of run %q at epoch %d", runID, epoch)
}

// Validate checks the shape of a fork and the lease that it is made under, before anything is locked: the lease is that of the new run. It
// fails as RunHeader.Validate does, or with Internal for what no caller may ask.
func (f Fork) Validate(l Lease) error {
	if err := f.Header.Validate(); err != nil {
		return err
	}
	if err := CheckUnder(f.Header.RunID, l); err != nil {
		return err
	}
	bad := ""
	switch {
	case f.From == "":
		bad = "it does not say from which run"
	case f.Epoch == 0 || f.Epoch > math.MaxInt64:
		bad = "epochs start at 1"
	case f.Load == nil:
		bad = "it has no state"
	}
	for n, cut := range f.Cuts {
		switch {
		case cut.Partition != n:
			bad = "a cut stands under another partition"
		case len(cut.Put)+len(cut.Delete) > 0:
			bad = "a cut has blobs of its own"
		case !slices.Contains(f.Header.Partitions, n):
			bad = "it has a cut of a partition that the new run does not have"
		}
	}
	if bad == "" {
		return nil
	}
	return codes.New(codes.Internal, "run %q cannot be made as a fork of run %q at epoch %d: %s", f.Header.RunID, f.From, f.Epoch, bad)
}

// Parts are the partitions that have a cut, in order: those whose state is loaded.
func (f Fork) Parts() []int32 {
	var out []int32
	for n := range f.Cuts {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// CheckFork is the rule of ForkRun for a run that is not there yet. from is the run that it comes from, as it stands.
//
//   - The new run has an id of its own, the same flow fingerprint (unless the flow was mended), source and identity of the source, and all partitions of the old one:
//     RunMismatch or TopicRecreated, as CheckHeader has it. It may have more partitions; they start at the beginning of their log.
//   - The old run stands at the epoch or later: JournalConflict.
//   - No cut, and not the watermark, is beyond where the old run stands: Internal, since no checkpoint of it could say so.
func CheckFork(from RunState, f Fork) error {
	if f.Header.RunID == from.Header.RunID {
		return codes.New(codes.RunMismatch, "run %q cannot be made out of itself: a journal never goes back. Name a new run", f.Header.RunID)
	}
	was := from.Header
	if f.Mended {
		was.Fingerprint = f.Header.Fingerprint
	}
	recreated, differ := differences(was, f.Header)
	if recreated {
		return codes.New(codes.TopicRecreated, "run %q read %q with the identity %q; that name now belongs to %q, so the positions of its checkpoints mean nothing there",
			f.From, from.Header.Source, from.Header.SourceID, f.Header.SourceID)
	}
	if len(differ) > 0 {
		return codes.New(codes.RunMismatch, "run %q cannot go on where run %q stood: %s", f.Header.RunID, f.From, strings.Join(differ, "; "))
	}
	if from.Epoch < f.Epoch {
		return codes.New(codes.JournalConflict, "run %q stands at epoch %d, so it has no checkpoint of epoch %d", f.From, from.Epoch, f.Epoch)
	}
	if f.Watermark > from.Watermark {
		return codes.New(codes.Internal, "a checkpoint of run %q has the watermark %s and the run only %s", f.From, f.Watermark, from.Watermark)
	}
	for _, n := range f.Parts() {
		stands, ok := from.Cuts[n]
		if !ok {
			return codes.New(codes.Internal, "a checkpoint of run %q has a cut of partition %d and the run none", f.From, n)
		}
		if err := CheckCut(f.From, f.Cuts[n], stands); err != nil {
			return codes.New(codes.Internal, "a checkpoint of run %q is beyond where the run stands: %w", f.From, err)
		}
	}
	return nil
}

// ForkLacksCut is the refusal Internal of a fork without a cut of a partition that brought something up to its epoch: the new run would read that
// partition from its beginning and bring all of it again.
func ForkLacksCut(f Fork, partition int32) error {
	return codes.New(codes.Internal, "run %q has results of partition %d up to epoch %d, and the checkpoint has no cut of it", f.From, partition, f.Epoch)
}

// CheckForked is the rule of ForkRun for a run that is there already, as it stands, forked at an epoch from another run ("" for a run that is no
// fork). It is nil for this very fork with nothing committed since (an answer was lost), else RunMismatch. Opening it since does not count.
func CheckForked(stands RunState, from string, epoch uint64, f Fork) error {
	recreated, differ := differences(f.Header, stands.Header)
	same := from == f.From && epoch == f.Epoch && stands.Epoch == f.Epoch && stands.Status == RunOpen && stands.Watermark == f.Watermark &&
		!recreated && len(differ) == 0 && len(stands.Cuts) == len(f.Cuts)
	for n, cut := range f.Cuts {
		at, ok := stands.Cuts[n]
		same = same && ok && sameCut(at, cut)
	}
	if same {
		return nil
	}
	return codes.New(codes.RunMismatch, "run %q is there already, at epoch %d (%s), and is not a fresh fork of run %q at epoch %d. Name a new run",
		f.Header.RunID, stands.Epoch, stands.Status, f.From, f.Epoch)
}

// sameCut compares two cuts without their blobs.
func sameCut(a, b partitions.Cut) bool {
	return a.Partition == b.Partition && a.Next.Cmp(b.Next) == 0 && a.Watermark == b.Watermark && a.Finished == b.Finished && a.Counts == b.Counts
}
