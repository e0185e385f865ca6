package partitions

import "github.com/weirstream/weir/watermark"

// CoreBlob is the name of the state blob that InputOf reads.
const CoreBlob = coreName

// InputOf is what a cut knows about its partition's input, as its core blob has it, for who has to know whether the partition holds a watermark
// without restoring it. JOURNAL_CORRUPT when the blob is damaged, or of a version that this weir does not read.
func InputOf(core StateBlob) (watermark.Status, error) {
	body, _, err := unseal(core)
	if err != nil {
		return watermark.Active, err
	}
	in := decoder{src: body}
	if v := in.byte() &^ holderFlag; v != coreVersion && v != deferringVersion {
		return watermark.Active, damaged(core.Name, "is of a version that this weir does not read")
	}
	in.text()
	in.bytes(4 + 1 + 24 + 8*8)
	in.uvarint()
	status, err := watermark.StatusIn(in.text())
	if in.bad || err != nil {
		return watermark.Active, damaged(core.Name, "does not say what is known about the input")
	}
	return status, nil
}
