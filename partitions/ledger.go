package partitions

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"github.com/weirstream/weir/codes"
)

// ledger collects what a cut puts and deletes, and keeps account of the blobs that stand: their number and the sum of their
// checksums are part of the core blob, so that a restore notices a blob that is missing, stale or too many.
type ledger struct {
	// seq numbers the blobs that are written once under a new name.
	seq uint64
	// count and sum are those of the standing blobs without the core.
	count, sum uint64

	put     []StateBlob
	dropped []string
}

// blobRef is a standing blob.
type blobRef struct {
	name string
	sum  uint64
}

const checksumBytes = 8

// write puts a blob of a new name. It takes body over and appends the checksum.
func (l *ledger) write(name string, body []byte) blobRef {
	ref := blobRef{name: name, sum: checksum(name, body)}
	l.put = append(l.put, StateBlob{Name: name, Data: binary.BigEndian.AppendUint64(body, ref.sum)})
	l.stands(ref)
	return ref
}

// rewrite puts a blob in place of the one that stands under its name.
func (l *ledger) rewrite(old blobRef, body []byte) blobRef {
	l.count--
	l.sum -= old.sum
	return l.write(old.name, body)
}

// drop deletes a standing blob.
func (l *ledger) drop(ref blobRef) {
	l.count--
	l.sum -= ref.sum
	l.dropped = append(l.dropped, ref.name)
}

func (l *ledger) stands(ref blobRef) {
	l.count++
	l.sum += ref.sum
}

// checksum binds a body to its name.
func checksum(name string, body []byte) uint64 { return xxh3.HashSeed(body, xxh3.HashString(name)) }

// unseal checks a blob and returns its body without the checksum.
func unseal(b StateBlob) ([]byte, blobRef, error) {
	n := len(b.Data) - checksumBytes
	if n < 0 {
		return nil, blobRef{}, damaged(b.Name, "is cut short")
	}
	ref := blobRef{name: b.Name, sum: binary.BigEndian.Uint64(b.Data[n:])}
	if checksum(b.Name, b.Data[:n]) != ref.sum {
		return nil, blobRef{}, damaged(b.Name, "does not match its checksum")
	}
	return b.Data[:n], ref, nil
}

// damaged is the error of a state blob that cannot be what a cut wrote.
func damaged(name, what string) error {
	return codes.New(codes.JournalCorrupt, "state blob %q %s: restore the store from a backup, or start a new run id", name, what)
}

// decoder takes fields off a body; past the end it is bad and yields zeros.
type decoder struct {
	src []byte
	bad bool
}

func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.src)) {
		d.bad, d.src = true, nil
		return nil
	}
	b := d.src[:n:n]
	d.src = d.src[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) uvarint() uint64 {
	n, w := binary.Uvarint(d.src)
	if w <= 0 {
		d.bad, d.src = true, nil
		return 0
	}
	d.src = d.src[w:]
	return n
}

// text is a field with its length in front.
func (d *decoder) text() []byte { return d.bytes(d.uvarint()) }

// whole says that everything was there and nothing is left over.
func (d *decoder) whole() bool { return !d.bad && len(d.src) == 0 }

func appendText[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}
