package parity

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/sqlite"
)

// helped is a run of the engine with an operator.
type helped struct {
	ctx    context.Context
	t      *testing.T
	store  *sqlite.Store
	cfg    actors.Config
	told   chan actors.Progress
	ended  chan error
	cancel context.CancelFunc
	again  *time.Ticker // what becomes of a choice is told by the store alone
	latest actors.Progress
}

// startHelped starts it. It goes on until stop is called.
func startHelped(ctx context.Context, t *testing.T, store *sqlite.Store, cfg actors.Config) *helped {
	h := &helped{ctx: ctx, t: t, store: store, told: make(chan actors.Progress, 100), ended: make(chan error, 1), again: time.NewTicker(5 * time.Millisecond)}
	cfg.Journal, cfg.RunID, cfg.StayBlocked, cfg.EpochEvery = store, runID, true, 5*time.Millisecond
	cfg.Interventions, cfg.InterventionsEvery, cfg.Fencing = store, 5*time.Millisecond, &actors.Fencing{Leases: store, TTL: time.Minute}
	cfg.OnProgress = func(p actors.Progress) {
		select {
		case h.told <- p:
		case <-ctx.Done():
		}
	}
	h.cfg = cfg
	running, stop := context.WithCancel(ctx)
	h.cancel = stop
	go func() {
		_, err := actors.Run(running, cfg)
		h.ended <- err
	}()
	return h
}

// until waits for something to be so.
func (h *helped) until(what string, is func(actors.Progress) bool) {
	h.t.Helper()
	for !is(h.latest) {
		select {
		case h.latest = <-h.told:
		case <-h.again.C:
		case err := <-h.ended:
			h.t.Fatalf("%s: the run ended: %v", what, err)
		case <-h.ctx.Done():
			h.t.Fatalf("%s did not come; last: %+v", what, h.latest)
		}
	}
}

// ask makes an intervention and waits until it was applied.
func (h *helped) ask(i control.Intervention) {
	h.t.Helper()
	i.RunID, i.Who, i.Why = runID, "ana", "it, will: not come"
	made, err := h.store.Intervene(h.ctx, i)
	if err != nil {
		h.t.Fatal(err)
	}
	h.until(string(i.Kind), func(actors.Progress) bool {
		list, err := h.store.ListInterventions(h.ctx, runID, false)
		if err != nil {
			h.t.Fatal(err)
		}
		n := slices.IndexFunc(list, func(x control.Intervention) bool { return x.ID == made.ID })
		if list[n].Outcome == control.Dismissed {
			h.t.Fatalf("%s: %s", i.Kind, list[n].Note)
		}
		return list[n].Outcome == control.Applied
	})
}

// stop interrupts the run.
func (h *helped) stop() {
	h.t.Helper()
	h.cancel()
	h.again.Stop()
	for {
		select {
		case <-h.told: // what is told meanwhile is of no interest
		case err := <-h.ended:
			if !errors.Is(err, actors.ErrInterrupted) {
				h.t.Fatalf("the run ended: %v", err)
			}
			return
		}
	}
}

// finish runs it on to its end, which is after so many records.
func (h *helped) finish(records int64) error {
	cfg := h.cfg
	cfg.MaxRecords, cfg.OnProgress = records, nil
	_, err := actors.Run(h.ctx, cfg)
	return err
}
