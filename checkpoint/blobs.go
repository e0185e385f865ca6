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

// Blobs is the port of a blob store. All methods may be called from several goroutines and processes.
//
// Errors carry a code: NameInvalid for a name that is not 64 lower-case hex digits, BlobMissing, BlobCorrupt for what is not what its
// name says, OutputUnwritable for what cannot be written, StoreUnavailable for a store that cannot be read. No message holds a path.
// A cancelled context comes back as an error that wraps the context's own.
type Blobs interface {
	// Put reads r to its end and keeps what it gave. It returns when the blob is durable under its name, which it returns with the size.
	// An error of r comes back unchanged and leaves nothing behind. A damaged blob of that name is replaced.
	Put(ctx context.Context, r io.Reader) (Info, error)
	// Get opens a blob. Its reader answers io.EOF only after every byte was verified, and holds the last piece back until then: what is
	// damaged never arrives whole. Instead of the end comes BlobCorrupt.
	Get(ctx context.Context, name string) (r io.ReadCloser, size int64, err error)
	// Has says whether a blob of that name stands, without reading it.
	Has(ctx context.Context, name string) (bool, error)
	// List calls fn with every blob, in the order of names. Whatever fn returns ends the listing and comes back unchanged.
	List(ctx context.Context, fn func(Info) error) error
	// Delete removes a blob; one that is not there is removed already. Whoever deletes must know that nothing refers to it.
	Delete(ctx context.Context, name string) error
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
