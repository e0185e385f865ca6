package consumer

import (
	"strconv"
	"strings"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// Headers of a dead letter: where the record stood, why it was given up and after how many attempts. Those that it had are before them.
const (
	HeaderDeadSource    = "weir-dead-source"
	HeaderDeadPartition = "weir-dead-partition"
	HeaderDeadPosition  = "weir-dead-position"
	HeaderDeadSub       = "weir-dead-sub"
	HeaderDeadReason    = "weir-dead-reason"
	HeaderDeadAttempts  = "weir-dead-attempts"
	HeaderDeadRun       = "weir-dead-run"
	HeaderDeadToken     = "weir-dead-fence-token"
)

// ReasonDeadLetter is the reason of a dead letter in a journal's quarantine. Its value is an Envelope of the dead letter, provenance included.
const ReasonDeadLetter = "DEAD_LETTER"

// maxReason bounds the reason that travels with a record, in bytes.
const maxReason = 1024

// Origin is where a dead letter comes from.
type Origin struct {
	Source, RunID string
	Partition     int32
	Token         control.FenceToken
	Attempts      int
	Reason        string
}

// DeadLetter is the record that is written to the dead letters: payload, key and headers as they were, and the headers of its origin.
func DeadLetter(r record.Record, o Origin) record.Record {
	add := [...][2]string{
		{HeaderDeadSource, o.Source}, {HeaderDeadPartition, strconv.Itoa(int(o.Partition))}, {HeaderDeadPosition, r.Position.String()},
		{HeaderDeadSub, strconv.FormatUint(uint64(r.Sub), 10)}, {HeaderDeadReason, cutReason(o.Reason)}, {HeaderDeadAttempts, strconv.Itoa(o.Attempts)},
		{HeaderDeadRun, o.RunID}, {HeaderDeadToken, strconv.FormatUint(uint64(o.Token), 10)},
	}
	out := r
	out.Headers = make([]record.Header, 0, len(r.Headers)+len(add))
	for _, h := range r.Headers {
		// What a re-driven record carries of its earlier death is replaced.
		if !strings.HasPrefix(h.Key, "weir-dead-") {
			out.Headers = append(out.Headers, h)
		}
	}
	for _, h := range add {
		out.Headers = append(out.Headers, record.Header{Key: h[0], Value: []byte(h[1])})
	}
	return out
}

func cutReason(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxReason)], "") }

// quarantined is a dead letter as a row of the journal.
func quarantined(r record.Record, o Origin) (partitions.Quarantined, error) {
	value, err := Envelope(DeadLetter(r, o))
	if err != nil {
		return partitions.Quarantined{}, err
	}
	q := partitions.Quarantined{Partition: o.Partition, Position: r.Position, Sub: r.Sub, Arrival: r.Arrival, Reason: ReasonDeadLetter, Detail: cutReason(o.Reason), EventTime: record.NoTime, Key: bytesOf(r.Key), Value: value}
	for _, h := range r.Headers {
		if h.Key == record.HeaderEventID {
			q.EventID = string(h.Value)
		}
	}
	return q, nil
}
