package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
)

// manifestLimit is more than the manifest of any state that fits a machine.
const manifestLimit = 512 << 20

// Find looks a checkpoint up by run and epoch; there is no other way to name one, and no "latest". The error carries CheckpointUnknown.
func Find(ctx context.Context, store control.Checkpoints, runID string, epoch uint64) (control.Pointer, error) {
	all, err := store.ListPointers(ctx, runID)
	if err != nil {
		return control.Pointer{}, err
	}
	for _, p := range all {
		if p.RunID == runID && p.Epoch == epoch {
			return p, nil
		}
	}
	return control.Pointer{}, codes.New(codes.CheckpointUnknown, "the store holds no checkpoint of run %q at epoch %d", runID, epoch)
}

// Load reads the manifest of a checkpoint and makes sure that it is the one that the pointer means: same hash, run, epoch, flow and sizes. The
// error carries CheckpointCorrupt, or StoreNewer for a manifest of a later version; what could not be read for another reason keeps its code. A
// manifest that is not there is CheckpointCorrupt too, and Absent.
func Load(ctx context.Context, blobs Blobs, p control.Pointer) (*Manifest, error) {
	b, err := GetBytes(ctx, blobs, p.Manifest, manifestLimit)
	if codes.Has(err, codes.BlobMissing) {
		return nil, absent(blobs, p, err)
	}
	if err != nil {
		return nil, corrupt(p, "its manifest", err)
	}
	m, err := ParseManifest(b)
	if err != nil {
		return nil, corrupt(p, "its manifest", err)
	}
	if what := contradiction(m, p); what != "" {
		return nil, corrupt(p, "its manifest", codes.New(codes.CheckpointCorrupt, "%s", what))
	}
	return m, nil
}

// Placed is a blob store that knows by what name its user asked for it.
type Placed interface {
	Blobs
	// Place is that name, for messages.
	Place() string
}

// absent is the error of a manifest that is not where it was looked for: it may be damage, or the checkpoints of that run may lie elsewhere.
func absent(blobs Blobs, p control.Pointer, err error) error {
	place := "the place that was asked"
	if at, ok := blobs.(Placed); ok {
		place = at.Place()
	}
	e := codes.New(codes.CheckpointCorrupt, "the checkpoint of run %q at epoch %d: the manifest is not in %s; was it kept with other --artifacts or --checkpoints? (%s)", p.RunID, p.Epoch, place, bare(err))
	e.Err = err
	return e
}

// Absent says of an error of Load, or of a Problem, that the manifest is not there, rather than damaged.
func Absent(err error) bool {
	return errors.Is(err, &codes.Error{Code: codes.BlobMissing})
}

// contradiction says what of a manifest is not what the pointer says, or "".
func contradiction(m *Manifest, p control.Pointer) string {
	n, size := m.Size()
	switch {
	case m.Hash() != p.Hash:
		return fmt.Sprintf("the pointer wants the manifest with the hash %s, this one has %s", p.Hash, m.Hash())
	case m.RunID != p.RunID || m.Epoch != p.Epoch:
		return fmt.Sprintf("it is that of run %q at epoch %d", m.RunID, m.Epoch)
	case m.Flow.Fingerprint != p.Fingerprint:
		return fmt.Sprintf("it has the flow fingerprint %.80q and the pointer %.80q", m.Flow.Fingerprint, p.Fingerprint)
	case n != p.Blobs || size != p.Bytes:
		return fmt.Sprintf("it names %d blobs of %d bytes and the pointer %d of %d", n, size, p.Blobs, p.Bytes)
	}
	return ""
}

// corrupt turns what is wrong with the content of a checkpoint into CheckpointCorrupt; other errors keep their code.
func corrupt(p control.Pointer, what string, err error) error {
	switch codes.Of(err) {
	case codes.BlobMissing, codes.BlobCorrupt, codes.JournalCorrupt, codes.NameInvalid, codes.CheckpointCorrupt, codes.LimitReached:
		return codes.New(codes.CheckpointCorrupt, "the checkpoint of run %q at epoch %d: %s: %s", p.RunID, p.Epoch, what, bare(err))
	case codes.StoreNewer:
		return codes.New(codes.StoreNewer, "the checkpoint of run %q at epoch %d: %s", p.RunID, p.Epoch, bare(err))
	}
	return err
}

// stateLimit bounds one state blob in memory.
const stateLimit = 1 << 30

// each calls fn with every state blob of a partition, read and verified. A blob of another size than the manifest says is CheckpointCorrupt.
func (p Partition) each(ctx context.Context, blobs Blobs, fn func(partitions.StateBlob) error) error {
	for _, r := range p.State {
		b, err := GetBytes(ctx, blobs, r.SHA256, min(r.Size, stateLimit))
		if err != nil {
			return &blobError{ref: r, partition: p.Partition, err: err}
		}
		if int64(len(b)) != r.Size {
			return &blobError{ref: r, partition: p.Partition, err: codes.New(codes.CheckpointCorrupt, "it has %d bytes and the manifest says %d", len(b), r.Size)}
		}
		if err := fn(partitions.StateBlob{Name: r.Name, Data: b}); err != nil {
			return err
		}
	}
	return nil
}

// blobError names the state blob that could not be read.
type blobError struct {
	ref       StateRef
	partition int32
	err       error
}

func (e *blobError) Error() string {
	return fmt.Sprintf("partition %d, state blob %q: %v", e.partition, e.ref.Name, e.err)
}

func (e *blobError) Unwrap() error { return e.err }

// Problem is one thing that is wrong with a checkpoint.
type Problem struct {
	// Partition and State name the state blob; State is "" for the manifest. Blob is the blob's name.
	Partition int32
	State     string
	Blob      string
	Err       error
}

// Audited is what Audit found.
type Audited struct {
	Pointer control.Pointer
	// Manifest is nil when it cannot be trusted.
	Manifest *Manifest
	// Blobs and Bytes were read and are what they should be.
	Blobs, Bytes int64
	Problems     []Problem
}

// Err is nil when nothing is wrong, or the first problem as CheckpointCorrupt.
func (v *Audited) Err() error {
	if len(v.Problems) == 0 {
		return nil
	}
	err := v.Problems[0].Err
	if len(v.Problems) > 1 {
		return codes.New(codes.Of(err), "%s (and %d more)", bare(err), len(v.Problems)-1)
	}
	return err
}

// bare is the message of an error without its code, to be put into one that has the code.
func bare(err error) string {
	var e *codes.Error
	if errors.As(err, &e) {
		return e.Msg
	}
	return err.Error()
}

// Audit reads everything that a checkpoint refers to: the manifest against the pointer, and every byte of every blob. What is wrong comes in
// the answer, all of it; the error is for what could not be looked at, such as a store that does not answer.
func Audit(ctx context.Context, blobs Blobs, p control.Pointer) (*Audited, error) {
	v := &Audited{Pointer: p}
	m, err := Load(ctx, blobs, p)
	switch {
	case codes.Has(err, codes.CheckpointCorrupt) || codes.Has(err, codes.StoreNewer):
		v.Problems = append(v.Problems, Problem{Blob: p.Manifest, Err: err})
		return v, nil
	case err != nil:
		return nil, err
	}
	v.Manifest = m
	for _, part := range m.Partitions {
		for _, r := range part.State {
			err := readThrough(ctx, blobs, r)
			bad := corrupt(p, fmt.Sprintf("partition %d, state blob %q", part.Partition, r.Name), err)
			switch {
			case err == nil:
				v.Blobs++
				v.Bytes += r.Size
			case codes.Has(bad, codes.CheckpointCorrupt):
				v.Problems = append(v.Problems, Problem{Partition: part.Partition, State: r.Name, Blob: r.SHA256, Err: bad})
			default:
				return nil, err
			}
		}
	}
	return v, nil
}

func readThrough(ctx context.Context, blobs Blobs, r StateRef) error {
	b, size, err := blobs.Get(ctx, r.SHA256)
	if err != nil {
		return err
	}
	defer b.Close()
	if n, err := io.Copy(io.Discard, b); err != nil {
		return err
	} else if n != size || size != r.Size {
		return codes.New(codes.BlobCorrupt, "blob %s has %d bytes and the manifest says %d", r.SHA256, n, r.Size)
	}
	return nil
}
