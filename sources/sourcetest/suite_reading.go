package sourcetest

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

func (s *suite) info() {
	target := s.h.New(s, fill(3, 2))
	first, err := target.Source.Info(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	again, err := target.Source.Info(s.ctx)
	if err != nil {
		s.Fatal(err)
	}
	if first.Name == "" || !slices.Equal(first.Partitions, []int32{0, 1, 2}) {
		s.Errorf("info is %+v", first)
	}
	if first.ID != again.ID || first.Name != again.Name || first.Bounded != again.Bounded {
		s.Errorf("info changed from %+v to %+v", first, again)
	}
	if first.Bounded == (target.Append != nil) {
		s.Errorf("bounded is %v, and the log can be appended to: %v", first.Bounded, target.Append != nil)
	}
}

func (s *suite) orderAndLimits() {
	parts := fill(3, 200)
	target := s.h.New(s, parts)
	for _, limit := range []int{1, 7, 150, 10_000, 0, -1} {
		g := newReading(s, from0(3))
		r := s.open(target, from0(3))
		g.until(r, limit, func() bool { return g.records() == 600 })
		for p := range int32(3) {
			g.wantRecords(p, parts[p])
		}
		if err := r.Close(); err != nil {
			s.Error(err)
		}
	}
}

func (s *suite) exactStart() {
	parts := fill(2, 20)
	target := s.h.New(s, parts)
	all := s.starts(target, 2, 40)
	for i := range 20 {
		at := map[int32]record.Position{0: all.got[0][i].Position, 1: all.got[1][19-i].Position}
		if i > 0 {
			// A resumed run starts at the Next of a batch, which may stand before the next record.
			at[0] = all.got[0][i-1].Position.Next()
		}
		g := newReading(s, at)
		g.until(s.open(target, at), 0, func() bool { return g.records() == 21 })
		g.wantRecords(0, parts[0][i:])
		g.wantRecords(1, parts[1][19-i:])
	}
}

func (s *suite) chosenPartitions() {
	parts := fill(4, 10)
	target := s.h.New(s, parts)
	at := map[int32]record.Position{1: {}, 3: {}}
	g := newReading(s, at)
	g.until(s.open(target, at), 0, func() bool { return g.records() == 20 })
	g.wantRecords(1, parts[1])
	g.wantRecords(3, parts[3])
}

func (s *suite) pauseAndResume() {
	parts := fill(2, 300)
	target := s.h.New(s, parts)
	r := s.open(target, from0(2))
	g := newReading(s, from0(2))
	g.until(r, 10, func() bool { return len(g.got[0]) > 0 })
	r.Pause(0)
	kept := len(g.got[0])
	g.until(r, 10, func() bool { return len(g.got[1]) == 300 })
	if len(g.got[0]) != kept {
		s.Fatalf("%d records of a paused partition", len(g.got[0])-kept)
	}
	r.Pause(0, 1) // again, and one that is read to its end
	r.Resume(0, 1)
	g.until(r, 10, func() bool { return g.records() == 600 })
	g.wantRecords(0, parts[0])
	g.wantRecords(1, parts[1])
}

// pauseStorm pauses another set of partitions before every poll, always leaving one that has records.
func (s *suite) pauseStorm() {
	const partitions, n, seed = 4, 250, 1
	parts := fill(partitions, n)
	target := s.h.New(s, parts)
	r := s.open(target, from0(partitions))
	g := newReading(s, from0(partitions))
	rng := rand.New(rand.NewPCG(seed, 0))
	for g.records() < partitions*n && !g.ended {
		var paused, left []int32
		for p := range int32(partitions) {
			if len(g.got[p]) < n {
				left = append(left, p)
			}
		}
		keep := left[rng.IntN(len(left))]
		for p := range int32(partitions) {
			if p != keep && rng.IntN(2) == 0 {
				paused = append(paused, p)
			}
		}
		r.Resume(0, 1, 2, 3)
		r.Pause(paused...)
		delivered, err := g.poll(r, 1+rng.IntN(40))
		if err != nil {
			s.Fatalf("seed %d: %v", seed, err)
		}
		for _, p := range delivered {
			if slices.Contains(paused, p) {
				s.Fatalf("seed %d: partition %d was delivered although paused", seed, p)
			}
		}
	}
	for p := range int32(partitions) {
		g.wantRecords(p, parts[p])
	}
}

// pauseElsewhere pauses and resumes beside the poll: nothing may be lost, doubled or left behind.
func (s *suite) pauseElsewhere() {
	parts := fill(3, 400)
	target := s.h.New(s, parts)
	r := s.open(target, from0(3))
	done := make(chan struct{})
	var storm sync.WaitGroup
	storm.Go(func() {
		rng := rand.New(rand.NewPCG(2, 0))
		for {
			p := rng.Int32N(3)
			r.Pause(p)
			r.Resume(p)
			select {
			case <-done:
				return
			default:
			}
		}
	})
	g := newReading(s, from0(3))
	g.until(r, 25, func() bool { return g.records() == 1200 })
	close(done)
	storm.Wait()
	for p := range int32(3) {
		g.wantRecords(p, parts[p])
	}
}

func (s *suite) cancelled() {
	parts := fill(1, 100)
	target := s.h.New(s, parts)
	r := s.open(target, from0(1))
	g := newReading(s, from0(1))
	gone, cancel := context.WithCancel(s.ctx)
	cancel()
	for g.records() < 100 {
		if b, err := r.Poll(gone, 0); !errors.Is(err, context.Canceled) || len(b) > 0 {
			s.Fatalf("got %d batches, %v", len(b), err)
		}
		if _, err := g.poll(r, 9); err != nil {
			s.Fatal(err)
		}
	}
	g.wantRecords(0, parts[0])
	if target.Append == nil {
		return
	}
	// A poll that waits ends with its context, and the reader goes on afterwards.
	waiting, stop := context.WithCancel(s.ctx)
	polled := make(chan error, 1)
	go func() {
		for {
			if _, err := r.Poll(waiting, 0); err != nil {
				polled <- err
				return
			}
		}
	}()
	stop()
	if err := <-polled; !errors.Is(err, context.Canceled) {
		s.Fatalf("got %v", err)
	}
	target.Append(s, 0, plain(1, 0, 100))
	g.until(r, 0, func() bool { return g.records() == 101 })
}

func (s *suite) closed() {
	target := s.h.New(s, fill(1, 50))
	r := s.open(target, from0(1))
	g := newReading(s, from0(1))
	var kept []record.Batch
	g.hold = func(b *record.Batch) bool {
		kept = append(kept, *b)
		return true
	}
	g.until(r, 20, func() bool { return g.records() >= 20 })
	polled := make(chan error, 1)
	go func() {
		for {
			b, err := r.Poll(s.ctx, 0)
			for i := range b {
				b[i].Done()
			}
			if err != nil && err != io.EOF {
				polled <- err
				return
			}
		}
	}()
	if err := r.Close(); err != nil {
		s.Error(err)
	}
	if err := <-polled; !errors.Is(err, sources.ErrClosed) {
		s.Errorf("got %v, want ErrClosed", err)
	}
	if err := r.Close(); err != nil {
		s.Errorf("a second Close: %v", err)
	}
	for i := range kept {
		for j, rec := range kept[i].Records {
			if want := plain(1, 0, 0); j == 0 && i == 0 && !sameBytes(rec.Value, want.Value) {
				s.Errorf("a batch that is out changed with Close: %s", show(rec))
			}
		}
		kept[i].Done()
	}
}

func (s *suite) failures() {
	parts := fill(3, 100)
	target := s.h.New(s, parts)
	g := newReading(s, from0(3))
	failed := 0
	for round := 0; g.records() < 300; round++ {
		if round < 3 {
			target.Fail(s)
		}
		r, err := target.Source.Open(s.ctx, clonePositions(g.next))
		for err == nil && g.records() < 300 && (round >= 3 || g.records() < 80*(round+1) || failed <= round) {
			_, err = g.poll(r, 30)
		}
		if err != nil {
			failed++
			if v := codes.Of(err); v != nil && v.Verdict == codes.Fatal {
				s.Fatalf("a failure that may pass has verdict fatal: %v", err)
			}
		}
		if r != nil {
			_ = r.Close()
		}
	}
	if failed == 0 {
		s.Error("no failure came")
	}
	for p := range int32(3) {
		g.wantRecords(p, parts[p])
	}
}
