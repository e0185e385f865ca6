package postgres

import (
	"fmt"
	"strings"

	"github.com/weirstream/weir/control"
)

// pointerTo is the pointer of a checkpoint of the run stream.
func pointerTo(epoch uint64) control.Pointer {
	digest := strings.Repeat("0", 56) + fmt.Sprintf("%08x", epoch)
	return control.Pointer{RunID: stream.RunID, Epoch: epoch, Manifest: digest, Hash: "sha256:" + digest, Fingerprint: "sha256:0123", Blobs: 2, Bytes: 10, NewBytes: 5}
}
