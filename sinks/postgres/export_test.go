package postgres

import "github.com/jackc/pgx/v5/pgconn"

// Dial sets how a sink connects, for tests that cut connections.
func Dial(s *Sink, dial pgconn.DialFunc) { s.dial = dial }
