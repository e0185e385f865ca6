//go:build !unix

package chtest

// start has no servers here.
func (s *server) start() error { return errNone{"servers are started on Unix only"} }

func (s *server) run() error { return s.start() }
