package clickhouse

import (
	"context"

	"github.com/weirstream/weir/sinks"
)

var (
	_ sinks.Prober  = (*Sink)(nil)
	_ sinks.Located = (*Sink)(nil)
)

// Locate implements sinks.Located: the address, the database and the table. Nothing is connected, so that one server under two addresses passes for two.
func (s *Sink) Locate(context.Context) ([]string, error) {
	server := "clickhouse " + s.connect.Address + " "
	return []string{server + s.table(""), server + s.rows(), server + s.progress()}, nil
}

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
