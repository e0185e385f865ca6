package kinesis

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/kinesis"

	"github.com/weirstream/weir/sinks"
)

var _ sinks.Prober = (*Sink)(nil)

// Probe implements sinks.Prober: the stream, and the right to look at it; the right to write shows with the first rows.
func (s *Sink) Probe(ctx context.Context, _ sinks.Target) error {
	p, err := New(s.cfg.Config)
	if err != nil {
		return err
	}
	return (&sinkWriter{s: s, p: p}).describe(ctx)
}

// describe asks for the stream.
func (w *sinkWriter) describe(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, w.p.cfg.CallTimeout)
	defer cancel()
	if _, err := w.p.cfg.Client.DescribeStreamSummary(within, &kinesis.DescribeStreamSummaryInput{StreamName: &w.p.cfg.Stream}); err != nil {
		return w.explain(ctx, w.p.explain(err))
	}
	return nil
}
