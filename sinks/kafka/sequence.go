package kafka

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

// mostSequence bounds what is kept beside an offset, in bytes; a broker takes 4096 (offset.metadata.max.bytes) unless it is told otherwise.
const mostSequence = 160

// sequenceText is the name of a sequence as it is kept beside the offset of a group: as it is, or its hash when it is long. "" stays "".
func sequenceText(sequence string) string {
	if len(sequence) <= mostSequence {
		return sequence
	}
	sum := sha256.Sum256([]byte(sequence))
	return "sha256 " + hex.EncodeToString(sum[:])
}

// same refuses rows of another sequence than those that stand up to at: their numbers would be taken for those of this one.
func (l *lane) same(at int64, kept string) error {
	ours := sequenceText(l.w.to.Sequence)
	if sinks.SameSequence(kept, ours) || kept == sequenceText(sinks.FormerSequence(l.w.to.Sequence)) {
		return nil
	}
	return codes.New(codes.SinkInvalid, "sink topic %q: partition %d of run %q stands at row %d of another sequence (%q) than this one (%q): another flow, input or store, or late events where rows were, "+
		"has published under the same run id; going on would leave rows out. Give the run another --run-id, or the sink another topic", l.w.s.cfg.Topic, l.partition, l.w.to.RunID, at, kept, ours)
}
