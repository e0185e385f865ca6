//go:build unix

package kafka_test

import "testing"

func TestBoundsApache(t *testing.T) {
	t.Parallel()
	boundsOf(t, apache(t))
}
