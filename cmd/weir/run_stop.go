package main

import (
	"context"
	"errors"
	"syscall"

	"github.com/weirstream/weir/codes"
)

// stoppedEarly is how a daemon ends that was told to stop before it has begun to work, while a store, a broker or Kinesis did not answer: as it ends later,
// since being told to stop is how a daemon ends.
func (a *app) stoppedEarly(ctx context.Context, o runOptions, err error) error {
	daemon := o.onceN == 0 && o.untilN == 0 && o.log == ""
	if err == nil || a.working || !daemon || ctx.Err() == nil || a.signal != syscall.SIGTERM {
		return err
	}
	if code := codes.Of(err); !errors.Is(err, context.Canceled) && (code == nil || code.Verdict != codes.Retry) {
		return err // something is wrong with what was asked for
	}
	a.notice("weir: stopped before anything was read\n")
	if !a.json {
		return nil
	}
	return a.document(map[string]any{"stopped": true, "run": o.runID})
}
