package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/flow/operators"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

const (
	goldenHash = "sha256:9e906a09a1c594964c16291a77cb38b0ffb021e69c230d71d1dd77ebbd6a7877"
	// defectHash was published once: the third pass over the same six events on one state.
	defectHash = "sha256:fe5812e2c0e34f0146edf1e13d6efbc0a6e4574173b998b70019920fcfae6515"
)

// arrivals are the 23 arrivals of the fixture, published so many times to four partitions by key: 18 events of three instruments, a
// duplicate, an event two seconds late, a tombstone in the place of a missing one, a revision two minutes later, and a burst.
func arrivals(passes int) input {
	var once []record.Record
	add := func(instrument, n, revision int, closing float64) {
		id, key := fmt.Sprintf("fixture.event.%d.%d", instrument, n), fmt.Sprint(instrument+1)
		value := fmt.Sprintf(`{"close":%v,"event_id":%q,"event_time":"2026-01-05T14:%d:00Z","instrument":%q`, closing, id, 30+n, key)
		if revision > 0 {
			value += fmt.Sprintf(`,"revision":%d`, revision)
		}
		once = append(once, record.Record{Key: []byte(key), Value: []byte(value + "}"), Arrival: record.NoTime,
			Headers: []record.Header{{Key: record.HeaderEventID, Value: []byte(id)}}})
	}
	for n := range 6 {
		for i := range 3 {
			switch fmt.Sprint(i, ".", n) {
			case "0.2":
				add(i, n, 0, float64(n+1))
				add(i, n, 0, float64(n+1))
			case "0.3":
				continue // comes later
			case "1.1":
				add(i, n, 0, 20)
				once[len(once)-1].Value = nil
			case "2.4":
				for range 4 {
					add(i, n, 0, 102.5)
				}
				add(2, 2, 1, 100.25)
			default:
				add(i, n, 0, []float64{float64(n + 1), float64(10 * (n + 1)), 100 + float64(n)/2}[i])
			}
		}
		if n == 3 {
			add(0, 3, 0, 4)
		}
	}
	in := make(input, 4)
	for range passes {
		for _, r := range once {
			p := record.PartitionOf(r.Key, 4)
			in[p] = append(in[p], r)
		}
	}
	return in
}

// valuesHash is the hash of a run's values in (time, id) order.
func valuesHash(tb testing.TB, j control.Journal, result Result) string {
	tb.Helper()
	type entry struct {
		at record.EventTime
		id string
		v  any
	}
	var all []entry
	for p, data := range read(tb, j, result).rows {
		for len(data) > 0 {
			var row partitions.Row
			var err error
			if data, err = partitions.DecodeRow(data, 1, &row); err != nil {
				tb.Fatalf("partition %d: %v", p, err)
			}
			e := entry{at: row.Time, id: string(row.ID)}
			if row.Values[0].OK {
				e.v = row.Values[0].F
			}
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b entry) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return int(len(a.id) - len(b.id))
	})
	values := []any{}
	for _, e := range all {
		values = append(values, e.v)
	}
	b, err := record.AppendJSON(nil, values)
	if err != nil {
		tb.Fatal(err)
	}
	return record.Hash(b)
}

func checkGolden(tb testing.TB, j control.Journal, result Result, passes int64) {
	tb.Helper()
	switch h := valuesHash(tb, j, result); h {
	case goldenHash:
	case defectHash:
		tb.Errorf("the defect of the third pass is back: %s", h)
	default:
		tb.Errorf("values hash %s, want %s", h, goldenHash)
	}
	c := result.Counts
	if c.Records != 23*passes || c.Consumed != 6 || c.Filtered != 15*passes || c.Omitted != passes || c.Duplicates != 7*passes-6 || c.Late != 0 {
		tb.Errorf("counts %+v over %d passes", c, passes)
	}
	if pos := result.Positions(); pos[0] != record.Offset(6*passes) || pos[3] != record.Offset(17*passes) {
		tb.Errorf("positions %v", pos)
	}
	if result.Status != control.RunFinished {
		tb.Errorf("status %s", result.Status)
	}
}

func TestGoldenStream(t *testing.T) {
	t.Parallel()
	plan := parse(t, goldenFlow)
	for _, passes := range []int{1, 3, 13} {
		for _, fetch := range []int{1, 5, 1000} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plan, arrivals(passes))
				r.cfg.FetchSize, r.cfg.MaxRecords = fetch, int64(23*passes)
				result, err := r.run()
				if err != nil {
					t.Fatal(err)
				}
				checkGolden(t, r.journal, result, int64(passes))
			})
		}
	}
}

// The log is published three times and the worker killed at a commit boundary, each one in turn and then all of them one after the
// other: before the commit, after it, and after the group's offsets. A published run of an earlier system gave the hash of the third pass
// here, because it resumed beyond what its state held and did not keep event ids.
func TestThirdPassDefect(t *testing.T) {
	t.Parallel()
	plan := parse(t, goldenFlow)
	tune := func(c *Config) { c.FetchSize, c.MaxRecords = 2, 69 }
	for _, point := range []Failpoint{BeforeCommit, AfterCommit, AfterOffsets} {
		t.Run("one kill/"+string(point), func(t *testing.T) {
			t.Parallel()
			boundaries := 0
			for n, hit := 1, true; hit; n++ {
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, plan, arrivals(3), lockstep)
					tune(&r.cfg)
					lockstepped := r.cfg.Hooks
					if hit = crashWith(t, r, lockstepped, point, n); !hit {
						return
					}
					boundaries++
					result, err := r.run()
					if codes.Has(err, codes.RunFinished) && point != BeforeCommit {
						err = nil
					}
					if err != nil {
						t.Fatal(err)
					}
					checkGolden(t, r.journal, result, 3)
				})
			}
			if boundaries < 10 {
				t.Errorf("only %d commit boundaries", boundaries)
			}
		})
		t.Run("killed at each/"+string(point), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, plan, arrivals(3), lockstep)
				tune(&r.cfg)
				lockstepped := r.cfg.Hooks
				kills := 0
				// Before the commit there is no progress at the first one: kill at the second.
				n := map[Failpoint]int{BeforeCommit: 2, AfterCommit: 1, AfterOffsets: 1}[point]
				for crashWith(t, r, lockstepped, point, n) {
					kills++
				}
				result, err := r.run()
				if !codes.Has(err, codes.RunFinished) {
					t.Errorf("the run should have finished in the last stretch: %v", err)
				}
				checkGolden(t, r.journal, result, 3)
				if kills < 8 {
					t.Errorf("only %d kills", kills)
				}
			})
		})
	}
}

// crashWith is crash on top of other hooks; it is false, and the run finished, when the failpoint was not passed so often.
func crashWith(t *testing.T, r *rig, base Hooks, point Failpoint, n int) bool {
	t.Helper()
	die, kill := context.WithCancel(context.Background())
	defer kill()
	hooks, seen := every(point, n, func(context.Context) error {
		kill()
		<-die.Done()
		return die.Err()
	})
	cfg := r.cfg
	cfg.Kill = die
	cfg.Hooks.At = func(ctx context.Context, p Point) error {
		return errors.Join(base.at(ctx, p), hooks.at(ctx, p))
	}
	result, err := Run(context.Background(), cfg)
	synctest.Wait()
	r.settled(result)
	switch {
	case *seen >= n && !errors.Is(err, ErrKilled):
		t.Fatalf("killed at passing %d: %v", n, err)
	case *seen < n && err != nil && !codes.Has(err, codes.RunFinished):
		t.Fatal(err)
	}
	return *seen >= n
}

// The topic of 299 records, interrupted anywhere and resumed, gives the golden hash and ends at the high waters 78 and 221.
func TestDrillTopicFromAnyInterruption(t *testing.T) {
	t.Parallel()
	plan := parse(t, goldenFlow)
	for until := int64(1); until < 299; until += 6 {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, plan, arrivals(13))
			r.cfg.UntilRecords = until
			result, err := r.run()
			if err != nil || result.Counts.Records != until || result.Status != control.RunOpen {
				t.Fatalf("until %d: %+v, %v", until, result, err)
			}
			r.cfg.UntilRecords, r.cfg.MaxRecords = 0, 299
			if result, err = r.run(); err != nil {
				t.Fatal(err)
			}
			checkGolden(t, r.journal, result, 13)
			if pos := result.Positions(); pos[0] != record.Offset(78) || pos[3] != record.Offset(221) {
				t.Errorf("positions %v", pos)
			}
		})
	}
}

// The constant above is what it says: one operator state that sees the same six events three times gives that hash in the third pass.
func TestThirdPassDefectIsWhatItSays(t *testing.T) {
	t.Parallel()
	plan := parse(t, goldenFlow)
	op := plan.Nodes[0].New()
	var values []any
	for pass := range 3 {
		values = values[:0]
		for x := 1; x <= 6; x++ {
			v := op.Step(record.EventTime(pass*6+x), operators.Number(float64(x)))
			values = append(values, v.F)
		}
	}
	b, err := record.AppendJSON(nil, values)
	if err != nil || record.Hash(b) != defectHash {
		t.Errorf("%s hashes to %s, %v", b, record.Hash(b), err)
	}
}
