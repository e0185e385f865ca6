//go:build unix

package kafka_test

import (
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kafkatest"
)

// weather is what OnOutage has told last. A broker that comes back may be gone again for a moment: after it stood still it has lost its session, and its
// partitions have no leader until it has another.
type weather struct {
	mu      sync.Mutex
	last    error
	changed chan struct{}
}

func (w *weather) note(err error) {
	w.mu.Lock()
	w.last = err
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// until waits until what was told last is as asked.
func (w *weather) until(e *engine, what string, is func(error) bool) {
	e.t.Helper()
	for {
		w.mu.Lock()
		last := w.last
		w.mu.Unlock()
		if is(last) {
			return
		}
		select {
		case <-w.changed:
		case <-e.ctx.Done():
			e.t.Fatalf("%s was not told; told last: %v; %s", what, last, e.stands())
		}
	}
}

// A broker that is killed and started again, and one that stands still for ten seconds, in the middle of a run: it goes on, and every record is
// processed once.
func TestARunWhoseBrokerFails(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Start(t, kafkatest.Config{})
	b := newBench(t, broker.Addr())
	topic := b.topic(t, 2, nil)
	cfg := b.config(topic)
	told := &weather{changed: make(chan struct{}, 1)}
	cfg.OnOutage = told.note
	e := newEngine(t, cfg)
	sent := 0
	// A new producer each time. A broker that starts again has forgotten producers whose records are as old as these (producer.id.expiration.ms counts
	// from their timestamps), and lets the first that comes write with any number: of two batches under way at the end of a connection it would take
	// the second before the first, and then both again.
	more := func() {
		t.Helper()
		w := client(t, broker.Addr())
		for p := range int32(2) {
			produce(t, w, topic, p, ticks(p, sent, sent+50)...)
		}
		sent += 50
		wantLog(t, broker.Addr(), topic, sent, sent)
	}
	r := e.start(nil)
	more()
	r.records(int64(2 * sent))
	outage := func(fail, mend func()) {
		t.Helper()
		fail()
		told.until(e, "an outage", func(err error) bool { return codes.Has(err, codes.BrokerUnreachable) })
		mend()
		more()
		r.records(int64(2 * sent))
		told.until(e, "the end of the outage", func(err error) bool { return err == nil })
	}
	outage(broker.Kill, func() { broker.Restart(t) })
	frozen := make(<-chan time.Time)
	outage(func() {
		frozen = time.After(10 * time.Second)
		if err := broker.Freeze(); err != nil {
			t.Fatal(err)
		}
	}, func() {
		<-frozen
		if err := broker.Thaw(); err != nil {
			t.Fatal(err)
		}
	})
	outage(broker.Kill, func() { broker.Restart(t) })
	if result := r.stop(); len(result.Failures) != 0 || result.Incarnations != 1 {
		t.Errorf("an outage is waited for, not failed at: %v in %d incarnations", result.Failures, result.Incarnations)
	}
	e.finish(sent, sent)
}
