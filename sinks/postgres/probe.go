package postgres

import (
	"context"
	"fmt"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

var (
	_ sinks.Prober  = (*Sink)(nil)
	_ sinks.Located = (*Sink)(nil)
)

// Locate implements sinks.Located: server, database, schema and table, as the server says. When it was started tells it from a copy of it.
func (s *Sink) Locate(ctx context.Context) ([]string, error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	w := &writer{s: s, conn: conn}
	defer w.Close()
	id, err := identify(ctx, conn)
	var started string
	if err == nil {
		err = conn.QueryRow(ctx, `SELECT extract(epoch FROM pg_postmaster_start_time())::text`).Scan(&started)
	}
	if err != nil {
		return nil, w.fail(ctx, "asking for the identity of the database", err)
	}
	database := fmt.Sprintf("postgres %d %s %d ", id.system, started, id.oid)
	return []string{database + s.table, database + s.progress}, nil
}

// Probe implements sinks.Prober: the server, the tables (or the right to make them) and the rights of this role.
func (s *Sink) Probe(ctx context.Context, target sinks.Target) error {
	if err := s.names(target.Outputs); err != nil {
		return err
	}
	conn, err := s.connect(ctx)
	if err != nil {
		return err
	}
	w := &writer{s: s, to: target, conn: conn}
	defer w.Close()
	if err := w.usable(ctx); err != nil {
		return err
	}
	if s.cfg.Create {
		if err := w.mayCreate(ctx); err != nil {
			return err
		}
	}
	return w.checkTables(ctx, s.cfg.Create)
}

// mayCreate refuses a role that could not make the tables that are missing.
func (w *writer) mayCreate(ctx context.Context) error {
	var missing bool
	var may *bool
	err := w.conn.QueryRow(ctx, `SELECT to_regclass($1) IS NULL OR to_regclass($2) IS NULL, (SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = $3)`,
		w.s.table, w.s.progress, w.s.schema).Scan(&missing, &may)
	switch {
	case err != nil:
		return w.fail(ctx, "looking at the schema "+w.s.schema, err)
	case may == nil:
		return codes.New(codes.SinkInvalid, "%s: there is no such schema: CREATE SCHEMA %s", w.s.name, w.s.schema)
	case missing && !*may:
		return codes.New(codes.SinkDenied, "%s: this role may not make the tables that are missing: GRANT CREATE ON SCHEMA %s, or make them with:\n%s", w.s.name, w.s.schema, w.s.definition(w.to))
	}
	return nil
}
