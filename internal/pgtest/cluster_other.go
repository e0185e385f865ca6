//go:build !unix

package pgtest

// startCluster has no private clusters here.
func (s *server) startCluster() error {
	return errNone{"private clusters are started on Unix only; set WEIR_TEST_POSTGRES"}
}
