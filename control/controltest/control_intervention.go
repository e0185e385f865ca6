package controltest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
)

var interventionChecks = []controlCheck{
	{"intervention: kept as it was asked for", checkIntervene},
	{"intervention: shapes", checkInterventionShapes},
	{"intervention: settled once", checkSettleIntervention},
	{"intervention: a stale owner settles nothing", checkStaleSettle},
	{"intervention: a failure at every step", checkInterventionSteps},
	{"intervention: lost answers", checkInterventionsLost},
}

// gap asks to give something up in the first partition of a run.
func gap(runID string) control.Intervention {
	return control.Intervention{RunID: runID, Partition: streamed.Header().Partitions[0], Kind: control.AcceptGap, From: record.Offset(7), To: record.Offset(1 << 40),
		Who: "ana", Why: "the broker's disk was lost"}
}

func checkIntervene(p *plane) error {
	a, b := p.open(), p.open()
	l, err := p.stream(a, streamed, "a", 2)
	if err != nil {
		return err
	}
	id := streamed.RunID
	part := gap(id).Partition
	many := make([]int64, control.MaxEntries)
	for n := range many {
		many[n] = int64(7 * n)
	}
	asked := []control.Intervention{
		gap(id),
		{RunID: id, Partition: -1, Kind: control.RetryBlocked, Who: "bo", Why: "restored"},
		{RunID: id, Partition: part, Kind: control.ConfirmIdle, Who: "ana", Why: "<no more> & \"so\" ü"},
		{RunID: id, Partition: part, Kind: control.CloseGap, Key: "a\x01\n\"ü", Sequence: -9, Who: "ana", Why: "it was never sent"},
		{RunID: id, Partition: part, Kind: control.ReplayAside, Entries: []int64{0, 1, 2, 7, 1 << 50, 1<<50 + 1}, Who: "ana", Why: "the flow is mended"},
		{RunID: id, Partition: part, Kind: control.DropAside, Entries: many, Who: "bo", Why: "test data"},
	}
	for n, i := range asked {
		got, err := []control.ControlStore{a, b}[n%2].Intervene(p.ctx, i)
		if err != nil {
			return fmt.Errorf("%s: %w", i.Kind, err)
		}
		if got.Created.IsZero() || n > 0 && got.ID <= asked[n-1].ID {
			return fmt.Errorf("%s was made %+v", i.Kind, got)
		}
		i.ID, i.Created, i.Outcome = got.ID, got.Created, control.Pending
		if asked[n] = i; !reflect.DeepEqual(got, i) {
			return fmt.Errorf("%s was made %+v, want %+v", i.Kind, got, i)
		}
	}
	for _, pending := range []bool{true, false} {
		all, err := b.ListInterventions(p.ctx, id, pending)
		if err != nil || !reflect.DeepEqual(all, asked) {
			return fmt.Errorf("pending %v: %+v, %v; want %+v", pending, all, err, asked)
		}
	}
	other := streamed
	other.RunID = "another"
	if _, err := p.stream(a, other, "a", 1); err != nil {
		return err
	}
	for _, run := range []string{"another", "no such run"} {
		if all, err := a.ListInterventions(p.ctx, run, false); err != nil || len(all) > 0 {
			return fmt.Errorf("of %q: %+v, %v", run, all, err)
		}
	}
	return a.Release(p.ctx, l) // nobody needs it to ask
}

func checkInterventionShapes(p *plane) error {
	s := p.open()
	if _, err := p.stream(s, streamed, "a", 2); err != nil {
		return err
	}
	long := strings.Repeat("x", control.MaxInterventionText+1)
	tooMany := make([]int64, control.MaxEntries+1)
	for n := range tooMany {
		tooMany[n] = int64(n)
	}
	for what, change := range map[string]func(i *control.Intervention){
		"nothing given up":        func(i *control.Intervention) { i.To = i.From },
		"backwards":               func(i *control.Intervention) { i.To = record.Offset(6) },
		"no partition":            func(i *control.Intervention) { i.Partition = -1 },
		"a partition not there":   func(i *control.Intervention) { i.Partition = 99 },
		"nobody":                  func(i *control.Intervention) { i.Who = "" },
		"a long name":             func(i *control.Intervention) { i.Who = long },
		"no reason":               func(i *control.Intervention) { i.Why = " " },
		"a long reason":           func(i *control.Intervention) { i.Why = long },
		"a reason with a line":    func(i *control.Intervention) { i.Why = "a\nb" },
		"a kind that is unknown":  func(i *control.Intervention) { i.Kind = "OTHER" },
		"a gap without a key":     func(i *control.Intervention) { i.Kind = control.CloseGap },
		"a gap with a broken key": func(i *control.Intervention) { i.Kind, i.Key = control.CloseGap, "\xff" },
		"no entries":              func(i *control.Intervention) { i.Kind = control.ReplayAside },
		"too many entries":        func(i *control.Intervention) { i.Kind, i.Entries = control.DropAside, tooMany },
		"entries out of order":    func(i *control.Intervention) { i.Kind, i.Entries = control.ReplayAside, []int64{2, 2} },
		"an entry before the 0th": func(i *control.Intervention) { i.Kind, i.Entries = control.DropAside, []int64{-1, 2} },
		"a gap with entries":      func(i *control.Intervention) { i.Entries = []int64{1} },
		"a gap with a NUL":        func(i *control.Intervention) { i.Kind, i.Key = control.CloseGap, "a\x00" },
	} {
		i := gap(streamed.RunID)
		change(&i)
		if err := p.unchanged(s, what, codes.RequestInvalid, func() error { _, err := s.Intervene(p.ctx, i); return err }); err != nil {
			return err
		}
	}
	return p.unchanged(s, "a run that is not there", codes.RunUnknown, func() error { _, err := s.Intervene(p.ctx, gap("ghost")); return err })
}

// outcomes lists what became of the interventions of the run of this suite.
func (p *plane) outcomes(s control.ControlStore) (out []string, err error) {
	all, err := s.ListInterventions(p.ctx, streamed.RunID, false)
	for _, i := range all {
		out = append(out, fmt.Sprintf("%s %d %s %v", i.Outcome, i.Epoch, i.Note, i.Settled.IsZero()))
	}
	return out, err
}

func checkSettleIntervention(p *plane) error {
	s := p.open()
	l, err := p.stream(s, streamed, "a", 2)
	if err != nil {
		return err
	}
	var asked []int64
	for range 3 {
		i, err := s.Intervene(p.ctx, gap(streamed.RunID))
		if err != nil {
			return err
		}
		asked = append(asked, i.ID)
	}
	settle := func(id int64, outcome control.InterventionOutcome, epoch uint64, note string) error {
		return s.SettleIntervention(p.ctx, l, streamed.RunID, id, outcome, epoch, note)
	}
	for range 2 { // the first answer may have been lost
		if err := settle(asked[0], control.Applied, 3, ""); err != nil {
			return err
		}
		if err := settle(asked[2], control.Dismissed, 0, "it moved on"); err != nil {
			return err
		}
	}
	if err := settle(asked[0], control.Dismissed, 9, "changed my mind"); err != nil {
		return err
	}
	got, err := p.outcomes(s)
	if want := []string{"APPLIED 3  false", "PENDING 0  true", "DISMISSED 0 it moved on false"}; err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("%q, %v; want %q", got, err, want)
	}
	left, err := s.ListInterventions(p.ctx, streamed.RunID, true)
	if err != nil || len(left) != 1 || left[0].ID != asked[1] {
		return fmt.Errorf("pending: %+v, %v", left, err)
	}
	err = p.unchanged(s, "one that is not there", codes.RequestInvalid, func() error { return settle(asked[2]+5, control.Applied, 3, "") })
	if err != nil {
		return err
	}
	for what, call := range map[string]func() error{
		"as pending":          func() error { return settle(asked[1], control.Pending, 0, "") },
		"with a long note":    func() error { return settle(asked[1], control.Dismissed, 0, strings.Repeat("x", 1001)) },
		"under another lease": func() error { return s.SettleIntervention(p.ctx, l, "another", asked[1], control.Applied, 1, "") },
	} {
		if err := p.unchanged(s, what, codes.Internal, call); err != nil {
			return err
		}
	}
	other := streamed
	other.RunID = "another"
	theirs, err := p.stream(s, other, "a", 1)
	if err != nil {
		return err
	}
	return p.unchanged(s, "one of another run", codes.RequestInvalid, func() error {
		return s.SettleIntervention(p.ctx, theirs, "another", asked[1], control.Applied, 1, "")
	})
}

func checkStaleSettle(p *plane) error {
	s := p.open()
	l, err := p.stream(s, streamed, "a", 2)
	if err != nil {
		return err
	}
	i, err := s.Intervene(p.ctx, gap(streamed.RunID))
	if err != nil {
		return err
	}
	stale, _, err := p.outdated(s, l, "b")
	if err != nil {
		return err
	}
	for _, l := range stale {
		err := p.unchanged(s, l.why, codes.StaleFence, func() error {
			return s.SettleIntervention(p.ctx, l.lease, streamed.RunID, i.ID, control.Applied, 1, "")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func checkInterventionSteps(p *plane) error {
	s := p.open()
	l, err := p.stream(s, streamed, "a", 2)
	if err != nil {
		return err
	}
	i, err := s.Intervene(p.ctx, gap(streamed.RunID))
	if err != nil {
		return err
	}
	return p.steps(s, "settle", func() error {
		return s.SettleIntervention(p.ctx, l, streamed.RunID, i.ID, control.Applied, 1, "")
	}, func() (bool, error) {
		left, err := s.ListInterventions(p.ctx, streamed.RunID, true)
		return len(left) == 0, err
	}, func(err error) error { return err })
}

func checkInterventionsLost(p *plane) error {
	s := p.open()
	l, err := p.stream(s, streamed, "a", 2)
	if err != nil {
		return err
	}
	if err := p.lost(s, "intervene", func() error { _, err := s.Intervene(p.ctx, gap(streamed.RunID)); return err }); err != nil {
		return err
	}
	all, err := s.ListInterventions(p.ctx, streamed.RunID, true)
	if err != nil || len(all) != 1 {
		return fmt.Errorf("after a lost answer: %+v, %v", all, err)
	}
	settle := func() error {
		return s.SettleIntervention(p.ctx, l, streamed.RunID, all[0].ID, control.Applied, 2, "")
	}
	if err := p.lost(s, "settle", settle); err != nil {
		return err
	}
	if err := settle(); err != nil {
		return err
	}
	got, err := p.outcomes(s)
	if want := []string{"APPLIED 2  false"}; err != nil || !slices.Equal(got, want) {
		return fmt.Errorf("%q, %v; want %q", got, err, want)
	}
	return nil
}
