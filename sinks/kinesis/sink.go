package kinesis

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
)

// SinkConfig of a sink of results.
type SinkConfig struct {
	Config
	// Hook, unless nil, is called between any two steps; what it returns ends the write there. It is for drills and tests.
	Hook func(step string) error
}

// Sink publishes rows, or late events, to a stream: the data of a record is one as sinks.JSON writes it, its partition key the row's key (or, of one that Kinesis does
// not take, the SHA-256 in hex; of an empty one, "-").
//
// Kinesis has neither transactions nor a way to ask for what stands, and fences nobody. So a row may be there more than once: after a lost answer, and what
// was published after the last commit of the journal, when a run goes on after a kill. Copies have the same run, partition and row in their data,
// and the same partition key, so that they come to the same shard. Within one key, rows come in order.
type Sink struct{ cfg SinkConfig }

var _ sinks.Sink = (*Sink)(nil)

// NewSink makes a sink; nothing is connected before Open. Errors: CONFIG_INVALID.
func NewSink(cfg SinkConfig) (*Sink, error) {
	if _, err := New(cfg.Config); err != nil {
		return nil, err
	}
	if cfg.Hook == nil {
		cfg.Hook = func(string) error { return nil }
	}
	return &Sink{cfg}, nil
}

// Features implements sinks.Sink.
func (s *Sink) Features() sinks.Features { return sinks.Features{IdempotentByKey: true} }

// Open implements sinks.Sink. Errors: TOPIC_MISSING, ACCESS_DENIED, SINK_UNAVAILABLE.
func (s *Sink) Open(ctx context.Context, target sinks.Target) (sinks.Writer, error) {
	p, err := New(s.cfg.Config)
	if err != nil {
		return nil, err
	}
	w := &sinkWriter{s: s, p: p, json: sinks.NewJSON(target), width: len(target.Outputs), progress: sinks.NewProgress(len(target.Outputs), nil)}
	if err := w.describe(ctx); err != nil {
		return nil, err
	}
	return w, w.step(ctx, "opened")
}

type sinkWriter struct {
	s        *Sink
	p        *Producer
	json     *sinks.JSON
	width    int
	progress *sinks.Progress
}

// Published implements sinks.Writer.
func (w *sinkWriter) Published() map[int32]int64 { return w.progress.Published() }

// Close implements sinks.Writer.
func (w *sinkWriter) Close() error {
	w.p.Discard()
	return nil
}

func (w *sinkWriter) step(ctx context.Context, name string) error {
	if err := w.s.cfg.Hook(name); err != nil {
		return err
	}
	return ctx.Err()
}

// Publish implements sinks.Writer. What Kinesis refuses for its limits is sent again, before what comes after it under the same key. Errors:
// RECORD_TOO_LARGE before anything was sent, TOPIC_MISSING, ACCESS_DENIED, BROKER_REFUSED, SINK_UNAVAILABLE.
func (w *sinkWriter) Publish(ctx context.Context, batches []sinks.Rows) error {
	rest, err := w.progress.Rest(batches)
	if err == nil {
		err = w.publish(ctx, rest)
	}
	if err == nil {
		w.progress.Done(rest)
	}
	return w.progress.Fail(err)
}

func (w *sinkWriter) publish(ctx context.Context, rest []sinks.Rows) error {
	for _, r := range rest {
		err := r.Each(w.width, nil, func(number int64, row *partitions.Row) error {
			key, data := keyOf(row.Key), w.json.Append(nil, r.Partition, number, row)
			if n := len(key) + len(data); n > maxRecordBytes {
				return codes.New(codes.RecordTooLarge, "row %d of partition %d has %d bytes; stream %q takes %d", number, r.Partition, n, w.p.cfg.Stream, maxRecordBytes)
			}
			w.p.pending = append(w.p.pending, types.PutRecordsRequestEntry{PartitionKey: aws.String(key), Data: data})
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := w.step(ctx, "encoded"); err != nil {
		return err
	}
	for len(w.p.pending) > 0 {
		if err := w.p.send(ctx); err != nil {
			return w.explain(ctx, err)
		}
		if err := w.step(ctx, "sent"); err != nil {
			return err
		}
	}
	return nil
}

// explain makes what may pass a matter of the sink.
func (w *sinkWriter) explain(ctx context.Context, err error) error {
	var e *codes.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &e) && e.Code == codes.SourceFailure:
		return codes.New(codes.SinkUnavailable, "%s", e.Msg)
	}
	return err
}

// keyOf is the partition key of a row.
func keyOf(key []byte) string {
	switch {
	case len(key) == 0:
		return "-"
	case len(key) > maxKeyBytes || !utf8.Valid(key):
		sum := sha256.Sum256(key)
		return hex.EncodeToString(sum[:])
	}
	return string(key)
}
