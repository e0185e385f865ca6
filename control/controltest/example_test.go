package controltest_test

import (
	"context"
	"fmt"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// The answer to a commit is lost. Its caller does not know whether the epoch stands; it reads back and goes on from what it finds.
func ExampleMemory() {
	ctx := context.Background()
	j := controltest.NewMemory()
	h := control.RunHeader{RunID: "prices-1", Fingerprint: "sha256:…", Source: "ticks", Partitions: []int32{0}}
	state, err := j.OpenRun(ctx, h)
	if err != nil {
		fmt.Println(err)
		return
	}
	j.Inject(controltest.LoseAnswer(1))
	err = j.Commit(ctx, control.Commit{RunID: h.RunID, Epoch: state.Epoch + 1, Status: control.RunOpen, Watermark: record.NoTime, Partitions: []control.PartitionCommit{
		{Cut: partitions.Cut{Partition: 0, Next: record.Offset(100), Watermark: record.NoTime}},
	}})
	fmt.Println("told:", codes.Of(err).Name, "refused:", control.Refused(err))
	state, err = j.OpenRun(ctx, h)
	fmt.Println("stands: epoch", state.Epoch, "next", state.Cuts[0].Next, err)
	// Output:
	// told: STORE_UNAVAILABLE refused: false
	// stands: epoch 1 next 100 <nil>
}
