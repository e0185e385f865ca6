package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// A run commits an epoch, its process ends, and another one goes on where it stood.
func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "weir.db")
	h := control.RunHeader{RunID: "prices-1", Fingerprint: "sha256:…", Source: "ticks", Partitions: []int32{0}}
	for range 2 {
		j, err := sqlite.Open(ctx, sqlite.Config{Path: path})
		if err != nil {
			fmt.Println(err)
			return
		}
		state, err := j.OpenRun(ctx, h)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("epoch", state.Epoch, "next", state.Cuts[0].Next)
		next := partitions.Cut{Partition: 0, Next: record.Offset(100 * int64(state.Epoch+1)), Watermark: record.NoTime}
		err = j.Commit(ctx, control.Commit{RunID: h.RunID, Epoch: state.Epoch + 1, Status: control.RunOpen, Watermark: record.NoTime,
			Partitions: []control.PartitionCommit{{Cut: next}}})
		fmt.Println("committed", err == nil, "closed", j.Close() == nil)
	}
	// Output:
	// epoch 0 next 0
	// committed true closed true
	// epoch 1 next 100
	// committed true closed true
}
