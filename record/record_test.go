package record_test

import (
	"testing"

	"github.com/weirstream/weir/record"
)

func TestBatchIsReleasedOnce(t *testing.T) {
	t.Parallel()
	released := 0
	b := record.Batch{Release: func() { released++ }}
	b.Done()
	b.Done()
	if released != 1 {
		t.Errorf("released %d times, want once", released)
	}
	(&record.Batch{}).Done() // nothing to give back
}
