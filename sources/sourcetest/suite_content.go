package sourcetest

import (
	"io"
	"math/rand/v2"
	"sync"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

func (s *suite) nilAndEmpty() {
	key := keyFor(1, 0)
	parts := [][]record.Record{{plain(1, 0, 0)}}
	if s.h.Tombstones {
		parts[0] = append(parts[0], record.Record{Key: key, Value: nil})
	}
	if s.h.EmptyValues {
		for _, v := range []string{"", "null", "\x00\xff not UTF-8"} {
			parts[0] = append(parts[0], record.Record{Key: key, Value: []byte(v)})
		}
	}
	if s.h.NilKeys {
		parts[0] = append(parts[0], record.Record{Key: nil, Value: []byte(`{}`)}, record.Record{Key: []byte{}, Value: []byte(`{}`)})
	}
	if s.h.Tombstones { // a tombstone may be the last record of a log
		parts[0] = append(parts[0], record.Record{Key: key, Value: nil})
	}
	for i := range parts[0] {
		parts[0][i].Arrival = plain(1, 0, i).Arrival
	}
	target := s.h.New(s, parts)
	g := newReading(s, from0(1))
	g.until(s.open(target, from0(1)), 0, func() bool { return g.records() == len(parts[0]) })
	g.wantRecords(0, parts[0])
}

func (s *suite) headersAndArrival() {
	parts := fill(1, 3)
	if s.h.Headers {
		parts[0][0].Headers = []record.Header{{Key: "b", Value: []byte("2")}, {Key: "a", Value: nil}, {Key: "b", Value: []byte{}}}
		parts[0][2].Headers = []record.Header{{Key: record.HeaderEventID, Value: []byte("id")}}
	}
	parts[0][1].Arrival += record.EventTime(s.h.ArrivalUnit)
	target := s.h.New(s, parts)
	g := newReading(s, from0(1))
	g.until(s.open(target, from0(1)), 0, func() bool { return g.records() == 3 })
	for i, want := range parts[0] {
		got := g.got[0][i]
		if s.h.ArrivalUnit > 0 && got.Arrival != want.Arrival {
			s.Errorf("record %d arrived at %s, want %s", i, got.Arrival, want.Arrival)
		}
		if s.h.Headers && len(got.Headers) != len(want.Headers) {
			s.Fatalf("record %d has %d headers, want %d", i, len(got.Headers), len(want.Headers))
		}
		for j, h := range got.Headers {
			if s.h.Headers && (h.Key != want.Headers[j].Key || !sameBytes(h.Value, want.Headers[j].Value)) {
				s.Errorf("record %d header %d is %q, want %q", i, j, h, want.Headers[j])
			}
		}
	}
}

func (s *suite) boundedEnd() {
	target := s.h.New(s, fill(2, 30))
	r := s.open(target, from0(2))
	g := newReading(s, from0(2))
	r.Pause(0)
	g.until(r, 0, func() bool { return len(g.got[1]) == 30 })
	if g.ended {
		s.Error("the end came before the paused partition was read")
	}
	r.Resume(0)
	g.until(r, 0, func() bool { return g.records() == 60 })
	for range 3 {
		if b, err := r.Poll(s.ctx, 0); err != io.EOF || len(b) > 0 {
			s.Fatalf("got %d batches, %v at the end, want io.EOF", len(b), err)
		}
	}
	again := s.open(target, g.next)
	if b, err := again.Poll(s.ctx, 0); err != io.EOF || len(b) > 0 {
		s.Fatalf("got %d batches, %v after the end, want io.EOF", len(b), err)
	}
}

func (s *suite) appended() {
	target := s.h.New(s, fill(2, 1))
	r := s.open(target, from0(2))
	g := newReading(s, from0(2))
	g.until(r, 0, func() bool { return g.records() == 2 })
	for i := 1; i <= 20; i++ {
		var write sync.WaitGroup
		write.Go(func() { target.Append(s, int32(i%2), plain(2, int32(i%2), i)) })
		g.until(r, 0, func() bool { return g.records() == 2+i })
		write.Wait()
	}
}

func (s *suite) emptyAnswer() {
	target := s.h.New(s, fill(2, 3))
	r := s.open(target, from0(2))
	g := newReading(s, from0(2))
	g.until(r, 0, func() bool { return g.records() == 6 })
	for range 2 {
		if b, err := r.Poll(s.ctx, 0); err != nil || len(b) > 0 {
			s.Fatalf("got %d batches, %v, want an empty answer", len(b), err)
		}
	}
	target.Append(s, 1, plain(2, 1, 3))
	g.until(r, 0, func() bool { return g.records() == 7 })
}

// held keeps every batch while all others are read, and looks at them at the end.
func (s *suite) held() {
	parts := fill(2, 300)
	target := s.h.New(s, parts)
	r := s.open(target, from0(2))
	g := newReading(s, from0(2))
	var kept []record.Batch
	g.hold = func(b *record.Batch) bool {
		kept = append(kept, *b)
		return true
	}
	g.until(r, 17, func() bool { return g.records() == 600 })
	s.wantWhole(kept, parts)
	for i := len(kept) - 1; i >= 0; i-- {
		kept[i].Done()
		s.wantWhole(kept[:i], parts)
	}
}

// wantWhole checks batches that are out against the log, from its start.
func (s *suite) wantWhole(batches []record.Batch, parts [][]record.Record) {
	s.Helper()
	at := map[int32]int{}
	for _, b := range batches {
		for _, r := range b.Records {
			want := parts[b.Partition][at[b.Partition]]
			if !sameBytes(r.Key, want.Key) || !sameBytes(r.Value, want.Value) {
				s.Fatalf("partition %d record %d changed while its batch was out: %s", b.Partition, at[b.Partition], show(r))
			}
			at[b.Partition]++
		}
	}
}

// released gives batches back late, in random order, from other goroutines, while the reader goes on: the memory of a batch that is out
// must not be used for another one, which the values show and the race detector too.
func (s *suite) released() {
	parts := fill(3, 1500)
	target := s.h.New(s, parts)
	r := s.open(target, from0(3))
	g := newReading(s, from0(3))
	type lent struct {
		batch record.Batch
		first int
	}
	work := make(chan lent, 16)
	var users sync.WaitGroup
	var mu sync.Mutex
	wrong := 0
	for u := range uint64(3) {
		users.Go(func() {
			rng := rand.New(rand.NewPCG(3, u))
			var mine []lent
			done := func(i int) {
				l := mine[i]
				for j, rec := range l.batch.Records {
					if !sameBytes(rec.Value, parts[l.batch.Partition][l.first+j].Value) {
						mu.Lock()
						wrong++
						mu.Unlock()
					}
				}
				l.batch.Done()
				mine = append(mine[:i], mine[i+1:]...)
			}
			for l := range work {
				if mine = append(mine, l); len(mine) > 4 {
					done(rng.IntN(len(mine)))
				}
			}
			for len(mine) > 0 {
				done(rng.IntN(len(mine)))
			}
		})
	}
	g.hold = func(b *record.Batch) bool {
		work <- lent{batch: *b, first: len(g.got[b.Partition]) - len(b.Records)}
		return true
	}
	g.until(r, 40, func() bool { return g.records() == 4500 })
	close(work)
	users.Wait()
	if wrong > 0 {
		s.Errorf("%d records changed while their batch was out", wrong)
	}
}

func (s *suite) holes() {
	parts := fill(2, 5)
	target := s.h.New(s, parts)
	atEnd := func(g *reading) func() bool {
		return func() bool { return g.next[0] == target.End(s, 0) && g.next[1] == target.End(s, 1) }
	}
	target.Skip(s, 0)
	g := newReading(s, from0(2))
	r := s.open(target, from0(2))
	g.until(r, 0, atEnd(g))
	g.wantRecords(0, parts[0])
	g.wantRecords(1, parts[1])
	if target.Append != nil {
		target.Append(s, 0, plain(2, 0, 5))
		target.Skip(s, 0)
		target.Skip(s, 1)
		g.until(r, 0, atEnd(g))
		g.wantRecords(0, append(parts[0], plain(2, 0, 5)))
	}
	again := newReading(s, from0(2))
	again.until(s.open(target, from0(2)), 1, atEnd(again))
	if again.records() != g.records() {
		s.Errorf("%d records on a second reading, %d on the first", again.records(), g.records())
	}
}

func (s *suite) truncated() {
	target := s.h.New(s, fill(2, 10))
	all := s.starts(target, 2, 20)
	cut := all.got[0][7].Position
	target.Truncate(s, 0, cut)
	at := map[int32]record.Position{0: all.got[0][3].Position, 1: {}}
	r := s.open(target, at)
	g := newReading(s, at)
	var err error
	for err == nil {
		_, err = g.poll(r, 0)
	}
	if !codes.Has(err, codes.OffsetLost) {
		s.Fatalf("got %v, want OFFSET_LOST", err)
	}
	if len(g.got[0]) > 0 {
		s.Errorf("%d records behind the loss were delivered", len(g.got[0]))
	}
	at[0] = cut
	g = newReading(s, at)
	g.until(s.open(target, at), 0, func() bool { return g.records() == 13 })
}

func (s *suite) recreated() {
	target := s.h.New(s, fill(1, 10))
	before, err := target.Source.Info(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	all := s.starts(target, 1, 10)
	r := s.open(target, all.next)
	target.Recreate(s)
	if target.Append != nil {
		for i := range 20 {
			target.Append(s, 0, plain(1, 0, i))
		}
	}
	g := newReading(s, all.next)
	for err == nil {
		_, err = g.poll(r, 0)
	}
	if !codes.Has(err, codes.TopicRecreated) || g.records() > 0 {
		s.Errorf("got %d records, %v, want TOPIC_RECREATED", g.records(), err)
	}
	after, err := target.Source.Info(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	if before.ID == after.ID {
		s.Errorf("the recreated log has the id %q of the old one", after.ID)
	}
}

func (s *suite) missingPartition() {
	target := s.h.New(s, fill(2, 1))
	if _, err := target.Source.Open(s.ctx, from0(3)); !codes.Has(err, codes.TopicMissing) {
		s.Errorf("got %v, want TOPIC_MISSING", err)
	}
}
