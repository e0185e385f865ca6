package backpressure

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// seeds runs a property for many seeds in parallel; the failing one is the name of the subtest.
func seeds(t *testing.T, n uint64, property func(t *testing.T, r *rand.Rand)) {
	t.Parallel()
	for seed := range n {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			property(t, rand.New(rand.NewPCG(seed, 0x77656972)))
		})
	}
}

// model is the machine as a set of what stands.
type model struct {
	config Config
	gauges map[Gauge]bool
	blocks map[Reason]bool
}

func (m *model) measure(g Gauge, v int64) {
	b := m.config.bands()[g]
	bad, good := v >= b.High, v <= b.Low
	if g == FreeDisk {
		bad, good = good, bad
	}
	switch {
	case bad:
		m.gauges[g] = true
	case good:
		delete(m.gauges, g)
	}
}

func (m *model) state() State {
	switch {
	case len(m.blocks) > 0:
		return RecoveryBlocked
	case m.gauges[ProcessBuffer]:
		return ProcessPaused
	case len(m.gauges) > 0:
		return SourcePaused
	}
	return Flowing
}

// TestMachineEqualsModel measures, blocks and chooses at random: the state is what the standing causes say, every transition starts
// where the last one ended, and RECOVERY_BLOCKED is left by an accepted choice only.
func TestMachineEqualsModel(t *testing.T) {
	seeds(t, 100, func(t *testing.T, r *rand.Rand) {
		band := Band{High: 20, Low: 10}
		c := Config{UnfinishedLag: band, BytesInFlight: band, FreeDisk: band, ProcessBuffer: band, EventTimeLead: band, History: 1 + r.IntN(30)}
		m, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		want := &model{config: c, gauges: map[Gauge]bool{}, blocks: map[Reason]bool{}}
		at, last, made := time.Unix(0, 0), Flowing, 0
		for range 1000 {
			at = at.Add(time.Second)
			before := m.State()
			tr, moved, chosen := randomStep(t, r, m, want, at)
			if m.State() != want.state() {
				t.Fatalf("state %s, want %s", m.State(), want.state())
			}
			if before == RecoveryBlocked && m.State() != RecoveryBlocked && !chosen {
				t.Fatalf("RECOVERY_BLOCKED was left without a choice: %s", tr)
			}
			if !moved && before != m.State() {
				t.Fatalf("from %s to %s without a transition", before, m.State())
			}
			if moved {
				if tr.From != last || tr.To != m.State() || !tr.At.Equal(at) || tr.Reason == "" {
					t.Fatalf("after %s: %s", last, tr)
				}
				if (tr.Release == "") != (tr.To == Flowing) {
					t.Fatalf("release %q in %s", tr.Release, tr.To)
				}
				last = tr.To
				made++
			}
			if got, stand := len(m.Causes()), len(want.blocks)+len(want.gauges); got != stand {
				t.Fatalf("%d causes, want %d", got, stand)
			}
		}
		checkHistory(t, m, c.History, made)
	})
}

func randomStep(t *testing.T, r *rand.Rand, m *Machine, want *model, at time.Time) (tr Transition, moved, chosen bool) {
	reason := blockTable[r.IntN(blocks)].reason
	switch r.IntN(12) {
	case 0:
		var err error
		tr, moved, err = m.Block(reason, r.Int64N(9), r.Int64N(9), "here", at)
		if err != nil {
			t.Fatal(err)
		}
		want.blocks[reason] = true
	case 1, 2, 3:
		c := Choice{Settles: reason, Kind: Restored, Who: "ann", Why: "tested"}
		if r.IntN(3) == 0 {
			c.Who = " "
		}
		var err error
		tr, err = m.Recover(c, at)
		fits := want.blocks[reason] && c.Who == "ann"
		if fits != (err == nil) {
			t.Fatalf("choice %+v: %v", c, err)
		}
		if err != nil && !codes.Has(err, codes.ChoiceRefused) {
			t.Fatalf("refused by %v", err)
		}
		if fits {
			delete(want.blocks, reason)
			return tr, true, true
		}
	default:
		g, v := Gauge(r.IntN(int(gauges))), r.Int64N(31)
		tr, moved = m.Measure(g, v, at)
		want.measure(g, v)
	}
	return tr, moved, false
}

func checkHistory(t *testing.T, m *Machine, size, count int) {
	t.Helper()
	kept, dropped := m.History()
	if len(kept) != min(size, count) || len(kept)+dropped != count {
		t.Fatalf("%d kept, %d dropped of %d", len(kept), dropped, count)
	}
	for i := 1; i < len(kept); i++ {
		if kept[i].From != kept[i-1].To || !kept[i].At.After(kept[i-1].At) {
			t.Fatalf("the history breaks between %s and %s", kept[i-1], kept[i])
		}
	}
}

// TestChoicesThatFit tries every kind of choice on every block.
func TestChoicesThatFit(t *testing.T) {
	t.Parallel()
	kinds := []ChoiceKind{Restored, AcceptLoss, AdoptTopic, RaiseFence, "", "restored"}
	fits := map[Reason]string{
		RetentionLost: "RESTORED ACCEPT_LOSS", RetentionNear: "RESTORED ACCEPT_LOSS",
		TopicRecreated: "RESTORED ADOPT_TOPIC", FenceRegression: "RESTORED RAISE_FENCE",
	}
	for reason, allowed := range fits {
		for _, kind := range kinds {
			m, err := New(Defaults())
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := m.Block(reason, 1, 2, "here", time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			_, err = m.Recover(Choice{Settles: reason, Kind: kind, Who: "ann", Why: "tested"}, time.Unix(2, 0))
			want := kind != "" && strings.Contains(allowed, string(kind))
			if (err == nil) != want || (m.State() == Flowing) != want {
				t.Errorf("%q on %s: %v, now %s", kind, reason, err, m.State())
			}
		}
	}
}

func TestLongTextsAreRefused(t *testing.T) {
	t.Parallel()
	m, err := New(Defaults())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Block(TopicRecreated, 0, 0, "", time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	c := Choice{Settles: TopicRecreated, Kind: AdoptTopic, Who: "ann", Why: strings.Repeat("x", maxText+1)}
	if _, err := m.Recover(c, time.Unix(2, 0)); !codes.Has(err, codes.ChoiceRefused) || m.State() != RecoveryBlocked {
		t.Errorf("%v, now %s", err, m.State())
	}
}

// TestBlocksSurviveARestart is what a caller does: the causes of the old machine are reported to the new one.
func TestBlocksSurviveARestart(t *testing.T) {
	t.Parallel()
	old, err := New(Defaults())
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := old.Block(RetentionLost, 7, 3, "partition 1", time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	m, err := New(Defaults())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range old.Causes() {
		if _, moved, err := m.Block(c.Reason, c.Measured, c.Threshold, c.Detail, c.Since); err != nil || !moved {
			t.Fatalf("%v %v", moved, err)
		}
	}
	if a, b := fmt.Sprint(old.Causes()), fmt.Sprint(m.Causes()); a != b || m.State() != RecoveryBlocked {
		t.Errorf("%s: %s, want %s", m.State(), b, a)
	}
}

// TestCreditsAreConserved takes and gives at random: what is available is never negative nor above the window, what is available and
// what is outstanding make up the window unless one batch alone is larger, and whatever was refused passes once nothing
// is outstanding.
func TestCreditsAreConserved(t *testing.T) {
	seeds(t, 100, func(t *testing.T, r *rand.Rand) {
		type batch struct{ records, bytes int64 }
		window := batch{1 + r.Int64N(100), 1 + r.Int64N(1000)}
		c := NewCredits(window.records, window.bytes)
		var flying []batch
		for range 2000 {
			b := batch{r.Int64N(80), r.Int64N(1200)}
			switch {
			case r.IntN(2) == 0:
				idle := c.Idle()
				took := c.Take(b.records, b.bytes)
				if idle && !took {
					t.Fatalf("%+v does not pass an empty window", b)
				}
				if took {
					flying = append(flying, b)
				}
			case len(flying) > 0:
				i := r.IntN(len(flying))
				if !c.Give(flying[i].records, flying[i].bytes) {
					t.Fatalf("%+v cannot be given back", flying[i])
				}
				flying = append(flying[:i], flying[i+1:]...)
			case c.Give(b.records+1, b.bytes):
				t.Fatalf("%+v was given back without being taken", b)
			}
			var sum batch
			for _, f := range flying {
				sum.records += f.records
				sum.bytes += f.bytes
			}
			records, bytes := c.Available()
			outRecords, outBytes := c.Outstanding()
			if (batch{outRecords, outBytes}) != sum {
				t.Fatalf("outstanding %d/%d, under way %+v", outRecords, outBytes, sum)
			}
			if records < 0 || bytes < 0 || records > window.records || bytes > window.bytes {
				t.Fatalf("available %d/%d of %+v", records, bytes, window)
			}
			for _, d := range [][4]int64{
				{window.records, records, outRecords, largest(flying, func(b batch) int64 { return b.records })},
				{window.bytes, bytes, outBytes, largest(flying, func(b batch) int64 { return b.bytes })},
			} {
				whole := d[1]+d[2] == d[0]
				oneTooLarge := d[1] == 0 && d[2] > d[0] && d[2] == d[3]
				if !whole && !oneTooLarge {
					t.Fatalf("window %d: available %d, outstanding %d, largest %d", d[0], d[1], d[2], d[3])
				}
			}
		}
	})
}

func largest[T any](s []T, size func(T) int64) int64 {
	n := int64(0)
	for _, v := range s {
		n = max(n, size(v))
	}
	return n
}

// TestSkewNeverHoldsTheSlowest: a partition is held exactly while it is more than the bound ahead, and as long as any is read, one
// that is read is not held.
func TestSkewNeverHoldsTheSlowest(t *testing.T) {
	seeds(t, 100, func(t *testing.T, r *rand.Rand) {
		bound := r.Int64N(1 << uint(1+r.IntN(62)))
		s := NewSkew(time.Duration(bound))
		times := map[int32]record.EventTime{}
		reading := map[int32]bool{}
		for range 300 {
			p, at := int32(r.IntN(5)), record.NoTime
			if r.IntN(10) > 0 {
				at = record.EventTime(r.Uint64()) >> uint(r.IntN(64))
			}
			times[p], reading[p] = at, r.IntN(3) > 0 && at != record.NoTime
			s.Update(p, at, reading[p])
			slowest := record.NoTime
			for q, is := range reading {
				if is && (slowest == record.NoTime || times[q] < slowest) {
					slowest = times[q]
				}
			}
			free := slowest == record.NoTime
			for q, at := range times {
				ahead := new(big.Int).Sub(big.NewInt(int64(at)), big.NewInt(int64(slowest)))
				want := bound > 0 && at != record.NoTime && slowest != record.NoTime && ahead.Cmp(big.NewInt(bound)) > 0
				if s.Hold(q) != want {
					t.Fatalf("partition at %d, slowest %d, bound %d: held %v", at, slowest, bound, s.Hold(q))
				}
				free = free || (reading[q] && !want)
			}
			if !free || s.Slowest() != slowest {
				t.Fatalf("nobody may go on, slowest %d, want %d", s.Slowest(), slowest)
			}
		}
	})
}

func TestSkewOfAnUnknownPartition(t *testing.T) {
	t.Parallel()
	s := NewSkew(time.Second)
	s.Update(0, 1, true)
	if s.Hold(1) {
		t.Error("a partition that was never heard of is held")
	}
}
