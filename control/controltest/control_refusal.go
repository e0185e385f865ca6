package controltest

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

var refusalChecks = []controlCheck{
	{"refusals: noted as they were met", checkNoteRefusal},
	{"refusals: the newest are kept", checkRefusalsBounded},
	{"refusals: one row for each refused write", checkRefusedWrites},
}

func checkNoteRefusal(p *plane) error {
	a, b := p.open(), p.open()
	id := streamed.RunID
	l, err := p.stream(a, streamed, "ana", 2)
	if err != nil {
		return err
	}
	long := strings.Repeat("ü", 400)
	asked := []control.Refusal{
		{RunID: id, Lease: l.Name, Owner: "stale", Token: 7, Effect: control.EffectPublish, Target: "results", Detail: "taken over\nby \x00 another"},
		{RunID: id + "/3", Lease: control.StreamLease(id + "/3"), Owner: "stale", Token: 1, Effect: control.EffectCommit, Detail: long},
		{RunID: id + "-2", Lease: control.StreamLease(id + "-2"), Owner: "\xff", Token: 1, Effect: control.EffectOpen},
	}
	for n, r := range asked {
		if err := []control.ControlStore{a, b}[n%2].NoteRefusal(p.ctx, r); err != nil {
			return fmt.Errorf("refusal %d: %w", n, err)
		}
	}
	all, err := b.ListRefusals(p.ctx, "")
	if err != nil || len(all) != len(asked) {
		return fmt.Errorf("%+v, %w", all, err)
	}
	last := int64(0)
	for n, got := range all {
		want, _ := asked[n].Fit()
		if n == 0 {
			want.MetOwner, want.MetToken = l.Owner, l.Token
		}
		if got.ID <= last || got.At.IsZero() {
			return fmt.Errorf("refusal %d is %+v", n, got)
		}
		last = got.ID
		want.ID, want.At = got.ID, got.At
		if !reflect.DeepEqual(got, want) {
			return fmt.Errorf("refusal %d is %+v, want %+v", n, got, want)
		}
	}
	for run, n := range map[string]int{id: 2, id + "/3": 1, id + "-2": 1, "another": 0, "\xff\x00": 0} {
		if got, err := a.ListRefusals(p.ctx, run); err != nil || len(got) != n {
			return fmt.Errorf("of %q: %+v, %v; want %d", run, got, err, n)
		}
	}
	if err := a.NoteRefusal(p.ctx, control.Refusal{Effect: control.EffectOpen}); !codes.Has(err, codes.Internal) {
		return fmt.Errorf("without a lease: %v", err)
	}
	return nil
}

func checkRefusalsBounded(p *plane) error {
	s := p.open()
	note := func(lease string, token int) error {
		return s.NoteRefusal(p.ctx, control.Refusal{RunID: lease, Lease: control.StreamLease(lease), Owner: "o", Token: control.FenceToken(token), Effect: control.EffectCommit})
	}
	if err := note("other", 1); err != nil {
		return err
	}
	for n := range control.MaxRefusals + 3 {
		if err := note("r", n); err != nil {
			return err
		}
	}
	all, err := s.ListRefusals(p.ctx, "r")
	if err != nil || len(all) != control.MaxRefusals || all[0].Token != 3 || all[len(all)-1].Token != control.MaxRefusals+2 {
		return fmt.Errorf("%d are kept, from token %v; %w", len(all), all, err)
	}
	if other, err := s.ListRefusals(p.ctx, "other"); err != nil || len(other) != 1 {
		return fmt.Errorf("the other lease has %d, %v", len(other), err)
	}
	return nil
}

// checkRefusedWrites: a stale owner of a noting store leaves one row for each write that was refused, and nothing for those that were not.
func checkRefusedWrites(p *plane) error {
	bare := p.open()
	s := control.Noting(bare, nil)
	id := streamed.RunID
	l, err := p.stream(s, streamed, "ana", 2)
	if err != nil {
		return err
	}
	header := streamed.Header()
	if _, err := s.Under(l).OpenRun(p.ctx, header); err != nil {
		return err
	}
	if got, err := s.ListRefusals(p.ctx, ""); err != nil || len(got) != 0 {
		return fmt.Errorf("nothing was refused, and %+v is noted, %v", got, err)
	}
	if err := bare.Release(p.ctx, l); err != nil {
		return err
	}
	heir, err := bare.Acquire(p.ctx, l.Name, "bo", time.Minute)
	if err != nil {
		return err
	}
	i, err := bare.Intervene(p.ctx, gap(id))
	if err != nil {
		return err
	}
	writes := []struct {
		effect string
		do     func() error
	}{
		{control.EffectOpen, func() error { _, err := s.Under(l).OpenRun(p.ctx, header); return err }},
		{control.EffectCommit, func() error {
			return s.Under(l).Commit(p.ctx, control.Commit{RunID: id, Epoch: 3, Status: control.RunOpen, Watermark: 1 << 40})
		}},
		{control.EffectCheckpoint, func() error {
			return s.KeepPointer(p.ctx, l, control.Pointer{RunID: id, Epoch: 2, Manifest: strings.Repeat("a", 64), Hash: "sha256:" + strings.Repeat("b", 64), Fingerprint: header.Fingerprint, Token: l.Token})
		}},
		{control.EffectSettle, func() error { return s.SettleIntervention(p.ctx, l, id, i.ID, control.Dismissed, 0, "") }},
	}
	for n, w := range writes {
		if err := w.do(); !codes.Has(err, codes.StaleFence) {
			return fmt.Errorf("%s: %v, want STALE_FENCE", w.effect, err)
		}
		got, err := s.ListRefusals(p.ctx, id)
		if err != nil || len(got) != n+1 {
			return fmt.Errorf("%s: %d refusals are noted, %w", w.effect, len(got), err)
		}
		r := got[n]
		if r.Effect != w.effect || r.Owner != "ana" || r.Token != l.Token || r.MetOwner != "bo" || r.MetToken != heir.Token || !strings.Contains(r.Detail, "STALE_FENCE") {
			return fmt.Errorf("%s: noted as %+v", w.effect, r)
		}
	}
	stale := control.Lease{Name: control.RunLease("run_7"), Owner: "ana", Token: 3}
	if err := s.Fenced(p.ctx, stale, control.StartRun{RunID: "run_7"}); !codes.Has(err, codes.StaleFence) {
		return fmt.Errorf("a batch run: %v, want STALE_FENCE", err)
	}
	got, err := s.ListRefusals(p.ctx, "run_7")
	if err != nil || len(got) != 1 || got[0].Effect != control.EffectBatch || got[0].Token != 3 || got[0].MetToken != 0 {
		return fmt.Errorf("a batch run: %+v, %w", got, err)
	}
	return nil
}
