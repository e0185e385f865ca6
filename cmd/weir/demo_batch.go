package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/replay"
	"github.com/weirstream/weir/server"
)

// demoEvents take a worker long enough to be killed in the middle.
var demoEvents int64 = 300_000

// batchPath is the second half of the demo: a run is submitted, its worker killed, another one does it, and its result is there once.
type batchPath struct {
	*demo
	dir   string
	store control.ControlStore
	// run as it ended, and how many results it published.
	run          control.BatchRun
	publications int
	token        control.FenceToken
}

func (d *demo) batchPath(ctx context.Context) (*batchPath, error) {
	b := &batchPath{demo: d, dir: filepath.Join(d.dir, "batch")}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	var err error
	if b.store, err = openStore(ctx, "sqlite:"+filepath.Join(b.dir, "weir.db")); err != nil {
		return nil, err
	}
	defer b.store.Close()
	if err := b.submit(ctx); err != nil {
		return nil, err
	}
	if err := b.killOne(ctx); err != nil {
		return nil, err
	}
	return b, b.finish(ctx)
}

func (b *batchPath) prepare(ctx context.Context) error {
	for _, folder := range []string{"flows", "snapshots"} {
		if err := os.MkdirAll(filepath.Join(b.dir, folder), 0o700); err != nil {
			return codes.New(codes.OutputUnwritable, "%w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.dir, "flows", "ema.yaml"), fixture.Flow, 0o600); err != nil {
		return codes.New(codes.OutputUnwritable, "%w", err)
	}
	return replay.Generate(ctx, replay.GenerateConfig{Events: demoEvents, Instruments: 3, Seed: 7, Rate: 100, Snapshot: filepath.Join(b.dir, "snapshots", "generated.jsonl")})
}

func (b *batchPath) submit(ctx context.Context) error {
	body, err := record.AppendJSON(nil, map[string]any{"flow": "ema", "snapshot": "generated"})
	if err != nil {
		return err
	}
	ask := control.Request{Principal: localPrincipal, Operation: server.Operation, Key: "demo", Body: body, Flow: "ema", Snapshot: "generated"}
	if b.run, _, err = b.store.Admit(ctx, ask); err != nil {
		return err
	}
	again, created, err := b.store.Admit(ctx, ask)
	if err != nil {
		return err
	}
	if created || again.ID != b.run.ID {
		return codes.New(codes.Internal, "the same request was admitted twice")
	}
	b.next("The batch path: a run of the flow over %d generated events is submitted twice under one key, and admitted once\n   (%.16s…).", demoEvents, b.run.ID)
	return nil
}

func (b *batchPath) worker(ctx context.Context) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, codes.New(codes.Internal, "the demo does not find its own program: %w", err)
	}
	w := &worker{done: make(chan error, 1)}
	w.cmd = exec.CommandContext(ctx, self, "batch", "worker", "--store", "sqlite:weir.db", "--artifacts", "artifacts", "--flows", "flows", "--snapshots", "snapshots",
		"--ttl", demoTTL, "--poll", "50ms")
	w.cmd.Dir = b.dir
	w.cmd.Stdout, w.cmd.Stderr = &w.output, &w.output
	if err := w.cmd.Start(); err != nil {
		return nil, codes.New(codes.Internal, "the worker process does not start: %w", err)
	}
	go func() { w.done <- w.cmd.Wait() }()
	return w, nil
}

func (b *batchPath) killOne(ctx context.Context) error {
	w, err := b.worker(ctx)
	if err != nil {
		return err
	}
	defer w.kill()
	if err := b.await(ctx, w, control.Running); err != nil {
		return err
	}
	w.kill()
	b.kills++
	b.next("A worker (pid %d) holds its lease and is computing: killed with SIGKILL. Nothing is published.", w.cmd.Process.Pid)
	return nil
}

func (b *batchPath) finish(ctx context.Context) error {
	w, err := b.worker(ctx)
	if err != nil {
		return err
	}
	defer w.kill()
	if err := b.await(ctx, w, control.Succeeded); err != nil {
		return err
	}
	w.cmd.Process.Signal(syscall.SIGTERM)
	if err := w.wait(); err != nil {
		return err
	}
	err = b.store.Publications(ctx, control.ResultKey(b.run.ID), func(control.Publication, string) error { b.publications++; return nil })
	if err != nil {
		return err
	}
	lease, _, err := b.store.LookupLease(ctx, control.RunLease(b.run.ID))
	if err != nil {
		return err
	}
	b.token = lease.Token
	b.next("Another worker waits for the dead one's lease to expire, takes it over (fence token %d) and computes the run again:\n   %s, revision %d, %d result published.", b.token, b.run.Phase, b.run.Revision, b.publications)
	return nil
}

// await watches the run until it is in a phase.
func (b *batchPath) await(ctx context.Context, w *worker, phase control.RunPhase) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var err error
		if b.run, err = b.store.LookupRun(ctx, b.run.ID); err != nil {
			return err
		}
		if b.run.Phase == phase {
			return nil
		}
		if b.run.Phase == control.Failed || b.run.Phase == control.Cancelled {
			return codes.New(codes.Internal, "the run is %s: %s", b.run.Phase, b.run.Error)
		}
		select {
		case err := <-w.done:
			w.done <- err
			return codes.New(codes.Internal, "the worker process ended early (%v): %s", err, bytes.TrimSpace(w.output.Bytes()))
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func (b *batchPath) document() map[string]any {
	return map[string]any{"id": b.run.ID, "phase": string(b.run.Phase), "run_revision": b.run.Revision, "publications": b.publications, "fence_token": uint64(b.token)}
}
