package partitions

import (
	"encoding/binary"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
)

// Mended gives a state blob, that was written under the flow with the fingerprint was, to one that mends it (flow.Plan.Mends, which the caller has asked).
// The core alone names the flow; any other blob comes back as it is.
func Mended(b StateBlob, was string, plan *flow.Plan) (StateBlob, error) {
	if b.Name != coreName {
		return b, nil
	}
	body, _, err := unseal(b)
	if err != nil {
		return b, err
	}
	in := decoder{src: body}
	version, fingerprint := in.byte(), string(in.text())
	switch {
	case in.bad:
		return b, damaged(b.Name, "is cut short")
	case fingerprint != was:
		return b, codes.New(codes.RunMismatch, "the state was written by a flow with fingerprint %.80q, and the one that is mended has %q", fingerprint, was)
	}
	out := appendText([]byte{version}, plan.Fingerprint)
	out = append(out, in.src...)
	return StateBlob{Name: b.Name, Data: binary.BigEndian.AppendUint64(out, checksum(b.Name, out))}, nil
}
