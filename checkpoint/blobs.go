package checkpoint

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// NameLength is the length of a blob's name: the hex digits of a SHA-256.
const NameLength = 64

// Info is what a store knows of a blob without reading it.
type Info struct {
	// Name is 64 lower-case hex digits, Size the number of bytes.
	Name string
	Size int64
	// Modified is when it was written last, by the store's clock; for people and for clean-up.
	Modified time.Time
}

// Aside is a blob that was set aside: it counts as gone, and can be brought back until it is purged.
type Aside struct {
	Info
	// Since is when it was set aside, by the store's clock.
	Since time.Time
	// Ticket is this very setting aside. Whoever purges or brings back by a ticket that is spent does nothing.
	Ticket string
}

// Blobs is the port of a blob store. All methods may be called from several goroutines and processes.
//
// Errors carry a code: NameInvalid for a name that is not 64 lower-case hex digits, BlobMissing, BlobCorrupt for what is not what its
// name says, OutputUnwritable for what cannot be written, StoreUnavailable for a store that cannot be read. No message holds a path.
// A cancelled context comes back as an error that wraps the context's own.
//
// Nothing is removed in one step, since a collector may be stopped between its look at what is referred to and the removal, for as long as
// it pleases fate. A blob is set aside first, by its age; later, by another look, it is brought back or purged. GC has the argument.
type Blobs interface {
	// Put reads r to its end and keeps what it gave. It returns when the blob is durable under its name, which it returns with the size.
	// An error of r comes back unchanged and leaves nothing behind. A damaged blob of that name is replaced. The blob stands with the age
	// 0, whatever is set aside under its name.
	Put(ctx context.Context, r io.Reader) (Info, error)
	// Get opens a blob. Its reader answers io.EOF only after every byte was verified, and holds the last piece back until then: what is
	// damaged never arrives whole. Instead of the end comes BlobCorrupt. A blob that was set aside is brought back first.
	Get(ctx context.Context, name string) (r io.ReadCloser, size int64, err error)
	// Has says whether a blob of that name stands, without reading it. What is set aside does not stand.
	Has(ctx context.Context, name string) (bool, error)
	// Touch says of each blob (Name and Size count) whether it stands with that size, and makes the age of those that do 0 again: whoever
	// is about to refer to a blob that is there already touches it instead of writing it. What is set aside does not stand. The answer has
	// the order of the question.
	Touch(ctx context.Context, blobs []Info) (stands []bool, err error)
	// List calls fn with every blob that stands, in the order of names. Whatever fn returns ends the listing and comes back unchanged.
	List(ctx context.Context, fn func(Info) error) error

	// SetAside takes a blob out of those that stand, if nobody has written or touched it for at least age, by the store's clock. It says
	// whether it did: not what is younger, or is not there.
	SetAside(ctx context.Context, name string, age time.Duration) (bool, error)
	// Aside calls fn with everything that is set aside, in the order of names. A name may come several times. Whatever fn returns ends the
	// listing and comes back unchanged.
	Aside(ctx context.Context, fn func(Aside) error) error
	// BringBack makes a blob that was set aside stand again, with the age 0; one that stands already stays as it is. A ticket that is
	// spent is fine.
	BringBack(ctx context.Context, a Aside) error
	// Purge removes for good what was set aside under this ticket, and nothing else: never a blob that stands, and never the same name set
	// aside at another time. A ticket that is spent is fine.
	Purge(ctx context.Context, a Aside) error
	// Owner is the id of the store whose checkpoints these blobs are (control.Checkpoints.StoreID), or "" when they are nobody's. Only what
	// is marked as a store's own is ever cleaned up by it.
	Owner(ctx context.Context) (string, error)
}

// CheckName says whether a name is that of a blob: 64 lower-case hex digits. The error carries NameInvalid.
func CheckName(name string) error {
	ok := len(name) == NameLength
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
	}
	if ok {
		return nil
	}
	return codes.New(codes.NameInvalid, "%q is not the name of a blob: %d lower-case hex digits", name[:min(len(name), NameLength+1)], NameLength)
}

// Ref is how a blob is referred to in results: "sha256:" and its name.
func Ref(name string) string { return record.HashPrefix + name }

// ParseRef is the name in a reference. The error carries NameInvalid.
func ParseRef(ref string) (name string, err error) {
	name, ok := strings.CutPrefix(ref, record.HashPrefix)
	if !ok {
		return "", codes.New(codes.NameInvalid, "%q is not a reference to a blob: %s and %d lower-case hex digits", ref[:min(len(ref), 80)], record.HashPrefix, NameLength)
	}
	return name, CheckName(name)
}

// PutBytes keeps b as a blob.
func PutBytes(ctx context.Context, s Blobs, b []byte) (Info, error) {
	return s.Put(ctx, bytes.NewReader(b))
}

// GetBytes reads a whole blob of at most limit bytes; a larger one is LimitReached.
func GetBytes(ctx context.Context, s Blobs, name string, limit int64) ([]byte, error) {
	r, size, err := s.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if size > limit {
		return nil, codes.New(codes.LimitReached, "blob %s has %d bytes, more than the %d that are read at once", name, size, limit)
	}
	b := make([]byte, 0, size)
	out := bytes.NewBuffer(b)
	if _, err := io.Copy(out, r); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
