package clickhouse

import (
	"context"

	"github.com/weirstream/weir/sinks"
)

var _ sinks.Prober = (*Sink)(nil)

// Probe implements sinks.Prober: the server, the login, and the tables and the view that are there, with the right to insert. The right to make what is missing shows when the sink is
// opened.
func (s *Sink) Probe(ctx context.Context, target sinks.Target) error {
	if err := s.names(target.Outputs); err != nil {
		return err
	}
	conn, err := s.dial(ctx)
	if err != nil {
		return err
	}
	w := &writer{s: s, to: target, conn: conn}
	defer w.Close()
	if err := w.usable(ctx); err != nil {
		return err
	}
	return w.check(ctx, s.cfg.Create)
}
