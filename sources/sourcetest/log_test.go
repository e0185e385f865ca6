package sourcetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

func value(s string) record.Record {
	return record.Record{Key: []byte("k"), Value: []byte(s), Arrival: 1}
}

func open(t *testing.T, l *Log, from map[int32]record.Position) sources.Reader {
	t.Helper()
	r, err := l.Open(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func from(partitions ...int32) map[int32]record.Position {
	m := map[int32]record.Position{}
	for _, p := range partitions {
		m[p] = record.Position{}
	}
	return m
}

func TestLogDeliversWhatStandsBeforeAFailureAndThenFailsOnce(t *testing.T) {
	t.Parallel()
	l := New(Config{Bounded: true, Partitions: 2})
	l.Append(0, value("a"), value("b"), value("c"))
	l.Append(1, value("x"))
	boom := errors.New("boom")
	l.FailAt(0, record.Offset(2), boom)
	r := open(t, l, from(0, 1))
	batches, err := r.Poll(t.Context(), 0)
	if err != nil || len(batches) != 2 || len(batches[0].Records) != 2 || batches[0].Next != record.Offset(2) {
		t.Fatalf("got %v, %v", batches, err)
	}
	for range 2 {
		if _, err := r.Poll(t.Context(), 0); err != boom {
			t.Fatalf("got %v, want the failure until the reader is closed", err)
		}
	}
	r = open(t, l, map[int32]record.Position{0: record.Offset(2), 1: record.Offset(1)})
	if batches, err = r.Poll(t.Context(), 0); err != nil || string(batches[0].Records[0].Value) != "c" {
		t.Fatalf("got %v, %v", batches, err)
	}
	if _, err = r.Poll(t.Context(), 0); err != io.EOF {
		t.Fatalf("got %v, want io.EOF", err)
	}
}

func TestLogPoisonsWhatWasReleasedAndCountsWhatIsOut(t *testing.T) {
	t.Parallel()
	l := New(Config{})
	l.Append(0, value("abc"))
	r := open(t, l, from(0))
	batches, err := r.Poll(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	b := batches[0]
	kept, again := b.Records[0].Value, b
	if n, bytes := l.Outstanding(); n != 1 || bytes != b.Bytes {
		t.Fatalf("outstanding %d, %d", n, bytes)
	}
	b.Done()
	if kept[0] != Poison || again.Records[0].Value != nil {
		t.Fatal("released memory was not overwritten")
	}
	again.Done()
	if n, bytes := l.Outstanding(); n != 0 || bytes != 0 || l.DoubleReleases() != 1 {
		t.Fatalf("outstanding %d, %d, double %d", n, bytes, l.DoubleReleases())
	}
}

func TestLogAnswersEmptyOnTimeOrOnDemandInVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{MaxWait: time.Hour})
		r := open(t, l, from(0))
		start := time.Now()
		if b, err := r.Poll(t.Context(), 0); b != nil || err != nil || time.Since(start) != time.Hour {
			t.Fatalf("got %v, %v after %v", b, err, time.Since(start))
		}
		l.AnswerEmpty()
		if b, err := r.Poll(t.Context(), 0); b != nil || err != nil || time.Since(start) != time.Hour {
			t.Fatalf("got %v, %v after %v", b, err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Poll(ctx, 0); err != context.DeadlineExceeded {
			t.Fatalf("got %v", err)
		}
		if l.Polls() != 2 {
			t.Fatalf("polls %d", l.Polls())
		}
	})
}

func TestLogFailsOpenAndInfoAsScripted(t *testing.T) {
	t.Parallel()
	l := New(Config{ID: "one", Partitions: 3})
	boom := errors.New("boom")
	l.FailOpen(boom, nil)
	l.FailInfo(boom)
	if _, err := l.Open(t.Context(), from(0)); err != boom {
		t.Fatal(err)
	}
	r := open(t, l, from(0))
	if _, err := l.Info(t.Context()); err != boom {
		t.Fatal(err)
	}
	l.Recreate("two")
	if _, err := r.Poll(t.Context(), 0); !codes.Has(err, codes.TopicRecreated) {
		t.Fatal(err)
	}
	if info, err := l.Info(t.Context()); err != nil || info.ID != "two" || len(info.Partitions) != 3 {
		t.Fatalf("got %+v, %v", info, err)
	}
	if p := l.AddPartition(); p != 3 || l.Opened() != 1 {
		t.Fatalf("partition %d, opened %d", p, l.Opened())
	}
	if _, err := l.Open(t.Context(), from(9)); !codes.Has(err, codes.TopicMissing) {
		t.Fatal(err)
	}
}

// Whatever the seed cuts and interleaves, each partition comes whole and in order.
func TestLogCutsAndInterleavesFromASeed(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		l := New(Config{Bounded: true, Partitions: 4, Rand: rng, Fetch: 1 + rng.IntN(20)})
		for i := range 200 {
			l.Append(int32(i%4), value(fmt.Sprint(i)))
		}
		r, got := open(t, l, from(0, 1, 2, 3)), map[int32]int{}
		for {
			limit := rng.IntN(30)
			batches, err := r.Poll(t.Context(), limit)
			if err == io.EOF {
				break
			}
			n := 0
			for i := range batches {
				for _, rec := range batches[i].Records {
					p := batches[i].Partition
					if want := fmt.Sprint(int(p) + 4*got[p]); string(rec.Value) != want {
						t.Fatalf("seed %d: partition %d got %s, want %s", seed, p, rec.Value, want)
					}
					got[p]++
					n++
				}
				batches[i].Done()
			}
			if limit > 0 && n > limit {
				t.Fatalf("seed %d: %d records, limit %d", seed, n, limit)
			}
		}
		if total := got[0] + got[1] + got[2] + got[3]; total != 200 {
			t.Fatalf("seed %d: %d of 200 records", seed, total)
		}
		if n, _ := l.Outstanding(); n != 0 {
			t.Fatalf("seed %d: %d batches leak", seed, n)
		}
	}
}
