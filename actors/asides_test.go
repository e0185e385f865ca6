package actors

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

const holdingFlow = `flow: weir/1
name: held
id: event_id
key: instrument
time: {field: t, unit: ms}
lateness: 5s
max_future_skew: 1m
hold_key: true
operators: [{name: last, type: last, input: close}]
outputs: [last]
`

// poisonedInput is a log of one partition: of key a the second record cannot be read and the last is of the future, key b is good.
func poisonedInput() input {
	var in []record.Record
	add := func(value string, arrival int64) {
		in = append(in, record.Record{Key: []byte("a"), Value: []byte(value), Arrival: record.EventTime(arrival) * 1_000_000, Headers: []record.Header{{Key: "trace", Value: []byte("1")}}})
	}
	tick := func(id, key string, at, arrival int64) {
		add(fmt.Sprintf(`{"event_id":%q,"instrument":%q,"t":%d,"close":%d}`, id, key, at, at), arrival)
	}
	tick("a1", "a", 1_000, 1_000)
	add("poison", 2_000)
	tick("b1", "b", 3_000, 3_000)
	tick("b2", "b", 200_000, 3_100) // of the future, by the log
	for i := range int64(30) {
		tick(fmt.Sprint("a", 2+i), "a", 4_000+i*6_000, 4_000+i*6_000)
		tick(fmt.Sprint("b", 3+i), "b", 4_500+i*6_000, 4_500+i*6_000)
	}
	return input{in}
}

func holdingRig(t *testing.T) *rig {
	r := newRig(t, parse(t, holdingFlow), poisonedInput(), unending)
	r.fence("a")
	r.cfg.Interventions = r.journal
	return r
}

// published are the rows in the journal, each as time and key.
func (r *rig) published() (rows []byte, keys map[string]int) {
	r.t.Helper()
	keys = map[string]int{}
	err := r.journal.Outputs(context.Background(), "run", 0, func(out partitions.Rows) error {
		rows = append(rows, out.Data...)
		for data := out.Data; len(data) > 0; {
			var row partitions.Row
			var err error
			if data, err = partitions.DecodeRow(data, 1, &row); err != nil {
				return err
			}
			keys[string(row.Key)]++
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return rows, keys
}

func aside(kind control.InterventionKind, entries ...int64) control.Intervention {
	return control.Intervention{Kind: kind, Entries: entries}
}

// What was set aside is given to its partition again by the run that owns it: its record, whole. What holds a key lets it go on when it is dropped.
func TestEntriesAreReplayedAndDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := holdingRig(t)
		stop := r.start()
		<-time.After(time.Minute)
		_, before := r.published()
		if before["a"] != 1 || before["b"] < 25 {
			t.Fatalf("rows %v", before)
		}
		first := r.ask(aside(control.ReplayAside, 0, 1, 7))
		<-time.After(time.Minute)
		if got := r.outcome(first.ID); got.Outcome != control.Applied || got.Epoch == 0 || got.Note != "CONSUMED 1, UNREADABLE 1; 1 not in the quarantine" {
			t.Errorf("%+v", got)
		}
		again, drop := r.ask(aside(control.ReplayAside, 1)), r.ask(aside(control.DropAside, 0, 1))
		other := r.ask(control.Intervention{Kind: control.ConfirmIdle})
		<-time.After(time.Minute)
		if got := r.outcome(again.ID); got.Outcome != control.Dismissed || got.Note != "of these entries of partition 0, 1 REPLAYED before" {
			t.Errorf("%+v", got)
		}
		if got := r.outcome(drop.ID); got.Outcome != control.Applied || got.Note != "DROPPED 1; 1 REPLAYED before" || r.outcome(other.ID).Outcome != control.Applied {
			t.Errorf("%+v", got)
		}
		_, after := r.published()
		if after["a"] < 25 || after["b"] < before["b"] {
			t.Errorf("rows %v, before %v", after, before)
		}
		if n := len(r.decided(partitions.DecisionReplayed)) + len(r.decided(partitions.DecisionDropped)) + len(r.decided(partitions.DecisionRefused)) + len(r.decided(partitions.DecisionKeyReleased)); n != 4 {
			t.Errorf("%d decisions", n)
		}
		result, err := stop()
		if c := result.Counts; err == nil || c.Omitted != 1 || c.Future != 1 || c.Consumed != 62 || c.Records != 64 {
			t.Errorf("%v, %+v", err, c)
		}
		if err := r.journal.Quarantine(context.Background(), "run", func(q partitions.Quarantined) error {
			if len(q.Headers) != 1 || q.Headers[0].Key != "trace" || q.Arrival == record.NoTime {
				t.Errorf("not whole: %+v", q)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// However and wherever a process is killed while it replays and drops, every entry is decided about once, and rows reach the sink once.
func TestEntriesAreDecidedAboutOnceWhateverIsKilled(t *testing.T) {
	t.Parallel()
	for _, point := range []Failpoint{AfterRestore, AfterCut, BeforeCommit, AfterCommit, OnMessage} {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			for n, hit := 1, true; hit && n < 60; n++ {
				if point == OnMessage {
					n += 3
				}
				synctest.Test(t, func(t *testing.T) {
					r := holdingRig(t)
					s := newShelf()
					r.cfg.Publisher = publisher(s)
					stop := r.start()
					<-time.After(time.Minute)
					_, _ = stop()
					replay, drop := r.ask(aside(control.ReplayAside, 1)), r.ask(aside(control.DropAside, 0))
					die, kill := context.WithCancel(context.Background())
					defer kill()
					hooks, seen := every(point, n, func(context.Context) error { kill(); return nil })
					r.cfg.Kill, r.cfg.Hooks = die, hooks
					stop = r.start()
					<-time.After(time.Minute)
					_, _ = stop()
					hit = *seen >= n
					r.cfg.Kill, r.cfg.Hooks = nil, Hooks{}
					stop = r.start()
					<-time.After(2 * time.Minute)
					_, _ = stop()
					for _, i := range []control.Intervention{replay, drop} {
						if got := r.outcome(i.ID); got.Outcome != control.Applied {
							t.Errorf("killed at passing %d: %+v", n, got)
						}
					}
					if len(r.decided(partitions.DecisionReplayed)) != 1 || len(r.decided(partitions.DecisionDropped)) != 1 {
						t.Errorf("killed at passing %d: decided %q and %q", n, r.decided(partitions.DecisionReplayed), r.decided(partitions.DecisionDropped))
					}
					rows, keys := r.published()
					if !bytes.Equal(s.rows[0], rows) || keys["a"] < 25 {
						t.Errorf("killed at passing %d: the sink has %d bytes, the journal %d; rows %v", n, len(s.rows[0]), len(rows), keys)
					}
				})
			}
		})
	}
}

// A choice that a limit does not allow is dismissed, with the limit; the run goes on, also in the next process, and other choices are applied.
func TestAReplayBeyondALimitIsDismissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := holdingRig(t)
		r.cfg.Plan = parse(t, holdingFlow+"limits: {ids: 62}\n")
		stop := r.start()
		<-time.After(time.Minute)
		replay, drop := r.ask(aside(control.ReplayAside, 1)), r.ask(aside(control.DropAside, 0))
		<-time.After(time.Minute)
		if got := r.outcome(replay.ID); got.Outcome != control.Dismissed || !strings.Contains(got.Note, "limits.ids") {
			t.Errorf("%+v", got)
		}
		if got := r.outcome(drop.ID); got.Outcome != control.Applied {
			t.Errorf("%+v", got)
		}
		result, _ := stop()
		if len(result.Failures) != 0 || len(r.decided(partitions.DecisionReplayed)) != 0 || len(r.decided(partitions.DecisionDropped)) != 1 {
			t.Errorf("%v, decided %q", result.Failures, r.decided(partitions.DecisionReplayed))
		}
	})
}
