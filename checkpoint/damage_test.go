package checkpoint_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/checkpointtest"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/record"
)

// refusedRestore tries a restore that has to be refused, and makes sure that nothing has begun.
func refusedRestore(t *testing.T, what string, w *world, r *checkpoint.Restorer, epoch uint64, code *codes.Code, words ...string) {
	t.Helper()
	before, err := w.store.Runs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Restore(t.Context(), w.runID, epoch, "new-run")
	refusedWith(t, what, err, code, words...)
	if after, err := w.store.Runs(t.Context()); err != nil || len(after) != len(before) {
		t.Errorf("%s: %d runs, there were %d: %v", what, len(after), len(before), err)
	}
}

// One flipped bit anywhere, in the manifest or in any blob: the restore is refused with the reason, the audit names the blob, and nothing is begun
// afresh.
func TestFlippedByteAnywhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 40, 7)
	p := w.save(t)
	for _, name := range w.standing(t) {
		var size int
		w.blobs.Damage(name, func(b []byte) []byte { size = len(b); return b })
		for at := 0; at < size; at += max(size/20, 1) {
			flip := func(b []byte) []byte { b[at] ^= 1 << (at % 8); return b }
			w.blobs.Damage(name, flip)
			v, err := checkpoint.Audit(t.Context(), w.blobs, p)
			if err != nil || !blamed(v, name) || !codes.Has(v.Err(), codes.CheckpointCorrupt) {
				t.Fatalf("byte %d of %s: %+v, %v", at, name, v, err)
			}
			refusedRestore(t, fmt.Sprintf("byte %d of %s", at, name), w, w.restorer(), p.Epoch, codes.CheckpointCorrupt, name)
			w.blobs.Damage(name, flip)
		}
	}
	if _, err := w.restorer().Restore(t.Context(), w.runID, p.Epoch, "new-run"); err != nil {
		t.Errorf("put right again: %v", err)
	}
}

// blamed says whether an audit blames this blob and no other.
func blamed(v *checkpoint.Audited, name string) bool {
	for _, p := range v.Problems {
		if p.Blob != name {
			return false
		}
	}
	return len(v.Problems) > 0
}

func TestDamagedBlobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 40, 7)
	p := w.save(t)
	names := w.standing(t)
	data := map[string][]byte{}
	for _, name := range names {
		b, err := checkpoint.GetBytes(t.Context(), w.blobs, name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		data[name] = b
	}
	heal := func() {
		for _, b := range data {
			if _, err := checkpoint.PutBytes(t.Context(), w.blobs, b); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, name := range names {
		other := data[names[(i+1)%len(names)]]
		for what, damage := range map[string]func(){
			"missing":   func() { w.blobs.Remove(name) },
			"truncated": func() { w.blobs.Damage(name, func(b []byte) []byte { return b[:len(b)/2] }) },
			"empty":     func() { w.blobs.Damage(name, func([]byte) []byte { return nil }) },
			"longer":    func() { w.blobs.Damage(name, func(b []byte) []byte { return append(b, 0) }) },
			"another's": func() { w.blobs.Damage(name, func([]byte) []byte { return bytes.Clone(other) }) },
		} {
			damage()
			refusedRestore(t, what+" "+name, w, w.restorer(), p.Epoch, codes.CheckpointCorrupt, name)
			if v, err := checkpoint.Audit(t.Context(), w.blobs, p); err != nil || !blamed(v, name) {
				t.Errorf("%s %s: %+v, %v", what, name, v, err)
			}
			heal()
		}
	}
	// All of them at once: the audit names each.
	for _, r := range w.load(t, p).Partitions[0].State {
		w.blobs.Remove(r.SHA256)
	}
	v, err := checkpoint.Audit(t.Context(), w.blobs, p)
	if err != nil || len(v.Problems) < len(w.load(t, p).Partitions[0].State) || !strings.Contains(v.Err().Error(), "more") {
		t.Errorf("%+v, %v", v, err)
	}
}

// Checkpoints that were kept elsewhere are not called damaged: the place that was asked is named, by audit, restore and clean-up.
func TestCheckpointsOfAnotherPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 40, 7)
	p := w.save(t)
	owner, err := w.blobs.Owner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	other := elsewhere{checkpointtest.NewMemory(owner)}
	const words = "the manifest is not in the other folder; was it kept with other --artifacts or --checkpoints?"
	v, err := checkpoint.Audit(t.Context(), other, p)
	if err != nil || len(v.Problems) != 1 || !checkpoint.Absent(v.Err()) {
		t.Fatalf("%+v, %v", v, err)
	}
	refusedWith(t, "audit", v.Err(), codes.CheckpointCorrupt, words, p.Manifest)
	refusedRestore(t, "restore", w, &checkpoint.Restorer{Store: w.store, Blobs: other}, p.Epoch, codes.CheckpointCorrupt, words)
	gc := w.gc()
	gc.Blobs = other
	_, err = gc.DryRun(t.Context())
	refusedWith(t, "clean-up", err, codes.CheckpointCorrupt, "nothing was removed", words)
	// What is there and damaged is no question of the place.
	w.blobs.Damage(p.Manifest, func(b []byte) []byte { return b[1:] })
	if _, err := checkpoint.Load(t.Context(), w.blobs, p); checkpoint.Absent(err) || !codes.Has(err, codes.CheckpointCorrupt) || strings.Contains(err.Error(), "--artifacts") {
		t.Errorf("%v", err)
	}
}

// elsewhere are blobs that have a name.
type elsewhere struct{ *checkpointtest.Memory }

func (elsewhere) Place() string { return "the other folder" }

// forge puts a manifest in the place of a checkpoint's, and returns the pointer to it.
func (w *world) forge(t *testing.T, p control.Pointer, change func(m *checkpoint.Manifest)) control.Pointer {
	t.Helper()
	m := w.load(t, p)
	change(m)
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	info, err := checkpoint.PutBytes(t.Context(), w.blobs, b)
	if err != nil {
		t.Fatal(err)
	}
	p.Manifest, p.Hash, p.Fingerprint = info.Name, m.Hash(), m.Flow.Fingerprint
	p.Blobs, p.Bytes = m.Size()
	return p
}

// A manifest that is whole in itself and not the one that is meant: each contradiction is found.
func TestManifestsThatAreNotMeant(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 40, 7)
	p := w.save(t)
	w.feed(t, 40, 7)
	q := w.save(t)
	other := newWorldOf(t, w.store, "other-run", flowText)
	other.blobs = w.blobs
	other.feed(t, 40, 7)
	o := other.save(t)
	swap := func(p, by control.Pointer) control.Pointer {
		p.Manifest, p.Hash = by.Manifest, by.Hash
		return p
	}
	later := func(m *checkpoint.Manifest) { m.Partitions[0].Cut.Next = record.Offset(41) }
	for what, c := range map[string]struct {
		p    control.Pointer
		code *codes.Code
		word string
	}{
		"another epoch's":             {swap(p, q), codes.CheckpointCorrupt, "at epoch 2"},
		"another run's":               {swap(p, o), codes.CheckpointCorrupt, `run "other-run"`},
		"a hash that is not its own":  {func() control.Pointer { p := p; p.Hash = q.Hash; return p }(), codes.CheckpointCorrupt, "hash"},
		"another size":                {func() control.Pointer { p := p; p.Bytes++; return p }(), codes.CheckpointCorrupt, "bytes"},
		"a blob as the manifest":      {func() control.Pointer { p := p; p.Manifest = w.load(t, p).Partitions[0].State[0].SHA256; return p }(), codes.CheckpointCorrupt, "manifest"},
		"another position":            {w.forge(t, p, later), codes.CheckpointCorrupt, "position 40"},
		"another watermark":           {w.forge(t, p, func(m *checkpoint.Manifest) { m.Partitions[1].Cut.Watermark++ }), codes.CheckpointCorrupt, "watermark"},
		"other counts":                {w.forge(t, p, func(m *checkpoint.Manifest) { m.Partitions[1].Cut.Counts.Late++ }), codes.CheckpointCorrupt, "counts"},
		"finished":                    {w.forge(t, p, func(m *checkpoint.Manifest) { m.Partitions[1].Cut.Finished = true }), codes.CheckpointCorrupt, "counts"},
		"partitions swapped":          {w.forge(t, p, func(m *checkpoint.Manifest) { a, b := &m.Partitions[0].State, &m.Partitions[1].State; *a, *b = *b, *a }), codes.RunMismatch, "partition 1"},
		"a state blob less":           {w.forge(t, p, func(m *checkpoint.Manifest) { s := &m.Partitions[0].State; *s = (*s)[:len(*s)-1] }), codes.CheckpointCorrupt, "state blobs"},
		"no state at all":             {w.forge(t, p, func(m *checkpoint.Manifest) { m.Partitions[0].State = nil }), codes.CheckpointCorrupt, "core"},
		"a size that is not the real": {w.forge(t, p, func(m *checkpoint.Manifest) { m.Partitions[0].State[0].Size-- }), codes.CheckpointCorrupt, "bytes"},
		"a later schema":              {w.forge(t, p, func(m *checkpoint.Manifest) { m.StateSchema = 2 }), codes.StoreNewer, "schema 2"},
	} {
		r, err := checkpoint.CheckRestore(t.Context(), w.blobs, c.p, w.plan)
		if err != nil {
			t.Fatal(err)
		}
		refusedWith(t, what, r.Problem, c.code, c.word)
	}
	if r, err := checkpoint.CheckRestore(t.Context(), w.blobs, w.forge(t, p, func(*checkpoint.Manifest) {}), w.plan); err != nil || r.Problem != nil {
		t.Errorf("forged without a change: %v, %v", r.Problem, err)
	}
}

func TestRestoreIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 40, 7)
	w.feed(t, 40, 7)
	p := w.save(t)
	refusedRestore(t, "no such epoch", w, w.restorer(), 1, codes.CheckpointUnknown, "epoch 1")
	refusedRestore(t, "no epoch", w, w.restorer(), 0, codes.CheckpointUnknown)
	changed := w.restorer()
	changed.Plan = planOf(t, strings.Replace(flowText, "type: sma", "type: ema", 1))
	refusedRestore(t, "an operator's type changed", w, changed, p.Epoch, codes.RunMismatch, "mean5", "TYPE CHANGED", "sma", "ema")
	changed.Plan = planOf(t, strings.Replace(flowText, "lateness: 1s", "lateness: 2s", 1))
	refusedRestore(t, "another lateness", w, changed, p.Epoch, codes.RunMismatch, `lateness was "1s" and is "2s"`)
	_, err := w.restorer().Restore(t.Context(), w.runID, p.Epoch, w.runID)
	refusedWith(t, "the run itself", err, codes.RunMismatch, "never goes back")
	_, err = w.restorer().Restore(t.Context(), w.runID, p.Epoch, "bad\nname")
	refusedWith(t, "a bad name", err, codes.RunIDInvalid)
	w.blobs.Owned = "other"
	refusedRestore(t, "blobs of another store", w, w.restorer(), p.Epoch, codes.ConfigInvalid, "other")
	w.blobs.Owned = w.store.ID

	if _, err := w.restorer().Restore(t.Context(), w.runID, p.Epoch, "ticks-2"); err != nil {
		t.Fatal(err)
	}
	// The answer may have been lost: once more is fine, until something was committed.
	if _, err := w.restorer().Restore(t.Context(), w.runID, p.Epoch, "ticks-2"); err != nil {
		t.Errorf("once more: %v", err)
	}
	again := newWorldOf(t, w.store, "ticks-3", flowText)
	again.feed(t, 10, 3)
	_, err = w.restorer().Restore(t.Context(), w.runID, p.Epoch, "ticks-3")
	refusedWith(t, "a run that is there", err, codes.LeaseHeld)
	w.store.ExpireLease(again.lease.Name)
	_, err = w.restorer().Restore(t.Context(), w.runID, p.Epoch, "ticks-3")
	refusedWith(t, "a run that is there", err, codes.RunMismatch, "ticks-3")
}

// A finished run is not gone on with, and what has changed of the run since the checkpoint is taken over: partitions that were added.
func TestRestoreAfterTheRunWentOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 40, 7)
	p := w.save(t)
	grown := w.header()
	grown.Partitions = append(grown.Partitions, 3)
	if _, err := w.journal().OpenRun(t.Context(), grown); err != nil {
		t.Fatal(err)
	}
	if err := w.journal().Commit(t.Context(), control.Commit{RunID: w.runID, Epoch: 2, Status: control.RunFinished, Watermark: record.MaxTime}); err != nil {
		t.Fatal(err)
	}
	q := w.save(t)
	refusedRestore(t, "a finished run", w, w.restorer(), q.Epoch, codes.RunFinished, "epoch 2")
	if _, err := w.restorer().Restore(t.Context(), w.runID, p.Epoch, "ticks-2"); err != nil {
		t.Fatal(err)
	}
	w.runID = "ticks-2"
	w.own(t, time.Hour)
	grown.RunID = "ticks-2"
	if s, err := w.journal().OpenRun(t.Context(), grown); err != nil || len(s.Header.Partitions) != 4 || s.Status != control.RunOpen {
		t.Errorf("%+v, %v", s, err)
	}
}

// A blob that is damaged between the check and the fork: nothing of the new run stands.
func TestDamagedWhileRestoring(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 40, 7)
	p := w.save(t)
	name := w.load(t, p).Partitions[1].State[0].SHA256
	w.store.Inject(controltest.Fault{Op: controltest.OpFork, Call: 1, Do: func() {
		w.blobs.Damage(name, func(b []byte) []byte { b[3]++; return b })
	}})
	refusedRestore(t, "damaged on the way", w, w.restorer(), p.Epoch, codes.CheckpointCorrupt, name)
	w.store.AllFired(t)
}

// CheckRestore has a verdict for each operator.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	const body = "operators: [{name: a, type: ema, input: x, period: 3}, {name: b, type: sma, input: a, period: 5}, {name: c, type: ema, input: x, period: 9}, {name: d, type: last, input: x}]\n" +
		"outputs: [a, b, c, d]\n"
	w := newWorldOf(t, controltest.NewMemory(), "r", flowHead+body)
	w.feed(t, 40, 7)
	p := w.save(t)
	for what, c := range map[string]struct {
		body    string
		want    string
		setting string
	}{
		"the same": {body, "a=OK b=OK c=OK d=OK", ""},
		"changed": {"operators: [{name: a, type: sma, input: x, period: 3}, {name: b, type: sma, input: x, period: 5}, {name: c, type: ema, input: x, period: 8}, {name: e, type: last, input: x}]\n" +
			"outputs: [a, b, c, e]\n", "a=TYPE CHANGED b=INPUT CHANGED c=PARAMETERS CHANGED e=NEW d=MISSING", "outputs"},
	} {
		r, err := checkpoint.CheckRestore(t.Context(), w.blobs, p, planOf(t, flowHead+c.body))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range r.Operators {
			got = append(got, o.Name+"="+string(o.Verdict))
		}
		settings := fmt.Sprint(r.Settings)
		if strings.Join(got, " ") != c.want || c.setting == "" != (len(r.Settings) == 0) || !strings.Contains(settings, c.setting) {
			t.Errorf("%s: %s; settings %s", what, strings.Join(got, " "), settings)
		}
		if ok := what == "the same"; ok != (r.Problem == nil) || !ok && !codes.Has(r.Problem, codes.RunMismatch) {
			t.Errorf("%s: %v", what, r.Problem)
		}
		// The state is tried all the same, under the flow that it belongs to.
		if len(r.Partitions) != 3 || r.Partitions[0].Err != nil || r.Partitions[0].Keys != 7 {
			t.Errorf("%s: %+v", what, r.Partitions)
		}
	}
}

// Without the flow in the manifest the flow has to be named.
func TestRestoreWithoutTheFlowInTheManifest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.feed(t, 40, 7)
	saver := w.saver()
	saver.Plan = nil
	p, err := saver.Save(t.Context(), w.lease, w.runID)
	if err != nil {
		t.Fatal(err)
	}
	refusedRestore(t, "no flow", w, w.restorer(), p.Epoch, codes.RunMismatch, "name the flow's file")
	r := w.restorer()
	r.Plan = w.plan
	if _, err := r.Restore(t.Context(), w.runID, p.Epoch, "ticks-2"); err != nil {
		t.Error(err)
	}
	other, err := checkpoint.CheckRestore(context.Background(), w.blobs, p, planOf(t, strings.Replace(flowText, "period: 3", "period: 4", 1)))
	if err != nil {
		t.Fatal(err)
	}
	refusedWith(t, "another flow", other.Problem, codes.RunMismatch, "does not say more")
}
