package drill

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/internal/fixture"
	"github.com/weirstream/weir/record"
)

// goldenEvents are the events of instrument 1, in order.
var goldenEvents = []string{"fixture.event.0.0", "fixture.event.0.1", "fixture.event.0.2", "fixture.event.0.3", "fixture.event.0.4", "fixture.event.0.5"}

// golden waits for the last owner and checks that the outcome is that of the topic: nothing lost, nothing twice, whatever has happened.
func (p *part) golden(ctx context.Context, by *process, token control.FenceToken) error {
	if err := by.wait(ctx, patience); err != nil {
		return err
	}
	if err := p.document(by, token); err != nil {
		return err
	}
	if err := p.ended(ctx, token); err != nil {
		return err
	}
	return p.published(ctx, int(token))
}

// document checks the emit document of a process that has ended.
func (p *part) document(by *process, token control.FenceToken) error {
	who := "the last owner"
	p.promise(by.code() == 0, who+" ends with exit code 0", "%s", by.how())
	e, err := readEmit(p.emitFile(strings.TrimPrefix(by.name, p.name+"-")))
	if err != nil {
		return fmt.Errorf("the emit document of %s: %w; it said:\n%s", by.name, err, tail(by.said()))
	}
	p.promise(e.ValuesHash == fixture.ValuesHash, "values_hash is the golden one", "%s", e.ValuesHash)
	p.promise(slices.Equal(e.Events, goldenEvents), "the events are those of the reference, each once", "%d: %s", len(e.Events), strings.Join(e.Events, " "))
	total := e.Consumed + e.Filtered + e.Omitted + e.Duplicates + e.Late + e.Future
	p.promise(total == goldenRecords, "every record is counted once", "%d of %d", total, goldenRecords)
	want := emitted{Consumed: 6, Filtered: 15 * goldenTimes, Omitted: goldenTimes, Duplicates: 7*goldenTimes - 6}
	got := emitted{Consumed: e.Consumed, Filtered: e.Filtered, Omitted: e.Omitted, Duplicates: e.Duplicates, Late: e.Late, Future: e.Future}
	p.promise(reflect.DeepEqual(got, want), "the counts are those of the reference", "consumed %d, filtered %d, omitted %d, duplicates %d, late %d", e.Consumed, e.Filtered, e.Omitted, e.Duplicates, e.Late)
	p.promise(reflect.DeepEqual(e.Positions, map[string]int64{"0": highWater0, "3": highWater3}), "the emit document stands at the high-waters 78 and 221", "%v", e.Positions)
	p.promise(e.FenceToken == uint64(token), "the emit document carries the owner's token", "%d, expected %d", e.FenceToken, token)
	return nil
}

// ended checks the journal of a run that is over.
func (p *part) ended(ctx context.Context, token control.FenceToken) error {
	s, _, err := p.state(ctx)
	if err != nil {
		return err
	}
	at0, at3 := s.Cuts[0].Next, s.Cuts[3].Next
	p.promise(s.Status == control.RunFinished && records(s) == goldenRecords, "the journal is FINISHED with 299/299 records", "%s, %d/%d", s.Status, records(s), goldenRecords)
	p.promise(at0 == record.Offset(highWater0) && at3 == record.Offset(highWater3), "the journal stands at the high-waters 78 and 221", "%s and %s", at0, at3)
	p.promise(s.Fence == token, "the journal was written last under the owner's token", "%d, expected %d", s.Fence, token)
	var l control.LeaseInfo
	err = poll(ctx, 5*time.Second, func() (bool, error) {
		l, err = p.lease(ctx)
		return !l.Valid, err
	}, "the lease is given back")
	p.promise(err == nil && l.Token == token, "the lease is given back under the same token", "token %d, valid %v", l.Token, l.Valid)
	return nil
}

// begun waits until a process runs the flow.
func (p *part) begun(ctx context.Context, by *process) error {
	return p.await(ctx, by, patience, func() (bool, error) {
		_, _, ok := by.when("msg=running")
		return ok, nil
	}, "%s begins", by.name)
}

// resumed checks where a new owner began.
func (p *part) resumed(ctx context.Context, by *process, who string, from control.RunState) error {
	if err := p.begun(ctx, by); err != nil {
		return err
	}
	_, said, _ := by.when("msg=running")
	p.promise(strings.Contains(said+" ", fmt.Sprintf(" epoch=%d ", from.Epoch)), who+" resumes exactly from the last commit", "epoch %d with %d records; %s", from.Epoch, records(from), said)
	return nil
}
