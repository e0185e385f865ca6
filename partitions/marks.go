package partitions

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/weirstream/weir/watermark"
)

// marks is where the parts of the watermark's state stand: its first part, which changes with every record, in the core blob; the sequence
// numbers of the keys, of a flow that names a sequence field, in blobs of their own, of which a cut writes those that changed.
//
// A blob: version 1 │ part uvarint │ the part.
type marks struct {
	refs []blobRef
	// loads are the blobs that a restore has read so far.
	loads []markLoad
}

type markLoad struct {
	blobRef
	part uint64
	body []byte
}

const (
	marksPrefix  = "marks/"
	marksVersion = 1
)

// cut writes the parts behind the first that changed or stand nowhere yet.
func (k *marks) cut(w *watermark.Partition, l *ledger) {
	for part := 1; part < w.Parts(); part++ {
		stands := part <= len(k.refs)
		if stands && !w.Changed(part) {
			continue
		}
		body := binary.AppendUvarint([]byte{marksVersion}, uint64(part))
		body = w.AppendPart(body, part)
		if stands {
			k.refs[part-1] = l.rewrite(k.refs[part-1], body)
		} else {
			k.refs = append(k.refs, l.write(fmt.Sprintf("%s%06d", marksPrefix, part), body))
		}
	}
	w.Saved()
}

// load takes one blob. They may come in any order; call snapshot after the last one.
func (k *marks) load(blob StateBlob, l *ledger) error {
	body, ref, err := unseal(blob)
	if err != nil {
		return err
	}
	in := decoder{src: body}
	version := in.byte()
	x := markLoad{blobRef: ref, part: in.uvarint()}
	if in.bad || version != marksVersion {
		return damaged(blob.Name, fmt.Sprintf("holds no sequence numbers of version %d", marksVersion))
	}
	x.body = slices.Clone(in.src)
	k.loads = append(k.loads, x)
	l.stands(ref)
	return nil
}

// snapshot puts the parts together; first is what the core holds.
func (k *marks) snapshot(first []byte) ([]byte, error) {
	slices.SortFunc(k.loads, func(a, b markLoad) int { return cmp.Compare(a.part, b.part) })
	for i, x := range k.loads {
		if x.part != uint64(i+1) {
			return nil, damaged(x.name, "is not the part that follows the one before it")
		}
		first = append(first, x.body...)
		k.refs = append(k.refs, x.blobRef)
	}
	k.loads = nil
	return first, nil
}
