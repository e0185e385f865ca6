package control

import (
	"context"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/watermark"
)

// InputOf is what the journal knows about the input of a partition: a partition that is idle by a recorded decision, or has ended, holds no
// watermark. One without a cut is ACTIVE.
func InputOf(ctx context.Context, v JournalView, partition int32) (watermark.Status, error) {
	if _, ok := v.State().Cuts[partition]; !ok {
		return watermark.Active, nil
	}
	status := watermark.Active
	err := v.Load(ctx, partition, []string{partitions.CoreBlob}, func(b partitions.StateBlob) (err error) {
		status, err = partitions.InputOf(b)
		return err
	})
	return status, err
}
