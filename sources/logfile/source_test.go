package logfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// writeLog writes a log of n arrivals with the keys 0…keys-1 drawn from a seed; every hundredth is a tombstone.
func writeLog(t testing.TB, n, keys int, touch func(i int, a *Arrival) []Fault) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.log")
	f, err := Create(path, testHeader)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Discard()
	rng := rand.New(rand.NewPCG(uint64(n), uint64(keys)))
	for i := range n {
		a := Arrival{EventID: fmt.Appendf(nil, "e%d", i), Time: at(int64(i)), Key: fmt.Appendf(nil, "%d", rng.IntN(keys)), Value: fmt.Appendf(nil, `{"i":%d}`, i)}
		if i%100 == 99 {
			a.Value = nil
		}
		if touch != nil {
			for _, fault := range touch(i, &a) {
				a.Faults |= SetOf(fault.Kind)
				if err := f.Fault(&fault); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := f.Arrival(&a); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	return path
}

// delivered is what came of one partition, as text.
type delivered map[int32][]string

func (d delivered) add(t testing.TB, b *record.Batch, next map[int32]record.Position) {
	t.Helper()
	for _, r := range b.Records {
		if r.Position != next[b.Partition] || len(r.Headers) != 1 || r.Headers[0].Key != record.HeaderEventID {
			t.Fatalf("partition %d: position %s, want %s; headers %v", b.Partition, r.Position, next[b.Partition], r.Headers)
		}
		next[b.Partition] = next[b.Partition].Next()
		d[b.Partition] = append(d[b.Partition], fmt.Sprintf("%s %s %s %s %t", r.Headers[0].Value, r.Key, r.Value, r.Arrival, r.Value == nil))
	}
	if b.Next != next[b.Partition] || b.Bytes <= 0 {
		t.Fatalf("partition %d: next %s, want %s; %d bytes", b.Partition, b.Next, next[b.Partition], b.Bytes)
	}
	b.Done()
}

// drain reads a source to its end.
func drain(t testing.TB, s *Source, max int) (delivered, error) {
	t.Helper()
	next := map[int32]record.Position{}
	for p := range s.cfg.Partitions {
		next[p] = record.Position{}
	}
	return drainFrom(t, s, max, next)
}

func drainFrom(t testing.TB, s *Source, max int, next map[int32]record.Position) (delivered, error) {
	t.Helper()
	got := delivered{}
	r, err := s.Open(t.Context(), next)
	if err != nil {
		return got, err
	}
	defer r.Close()
	for {
		batches, err := r.Poll(t.Context(), max)
		if err == io.EOF {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		n := 0
		for i := range batches {
			n += len(batches[i].Records)
			got.add(t, &batches[i], next)
		}
		if n == 0 || max > 0 && n > max {
			t.Fatalf("%d records in an answer of at most %d", n, max)
		}
	}
}

// model reads a log by the Reader and deals it out to partitions.
func model(t testing.TB, path string, partitions int32) delivered {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want := delivered{}
	var a Arrival
	for {
		err := r.Next(&a)
		if err == io.EOF {
			return want
		}
		if err != nil {
			t.Fatal(err)
		}
		p := record.PartitionOf(a.Key, partitions)
		want[p] = append(want[p], fmt.Sprintf("%s %s %s %s %t", a.EventID, a.Key, a.Value, a.Time, a.Value == nil))
	}
}

func (d delivered) equal(other delivered) bool {
	for p := range max(len(d), len(other)) + 16 {
		if !slices.Equal(d[int32(p)], other[int32(p)]) {
			return false
		}
	}
	return true
}

func TestAnyPartitionCountAndFetchSizeDeliversTheLog(t *testing.T) {
	t.Parallel()
	path := writeLog(t, 1000, 7, nil)
	for partitions := int32(1); partitions <= 8; partitions++ {
		want := model(t, path, partitions)
		for _, max := range []int{0, 1, 2, 17, 10_000} {
			got, err := drain(t, NewSource(path, SourceConfig{Partitions: partitions}), max)
			if err != nil || !got.equal(want) {
				t.Errorf("%d partitions, fetch %d: %v", partitions, max, err)
			}
		}
	}
}

func TestInfoNamesTheLogByItsHash(t *testing.T) {
	t.Parallel()
	path := writeLog(t, 10, 2, nil)
	info, err := NewSource(path, SourceConfig{Partitions: 3}).Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, end, err := Verify(path)
	if err != nil || info.ID != end.LogHash || info.Name != path+" (3 partitions)" || !info.Bounded || !slices.Equal(info.Partitions, []int32{0, 1, 2}) {
		t.Errorf("got %+v, %v", info, err)
	}
	for name, content := range map[string]string{"empty": "", "text": "hello\n", "cut": `{"arrivals":1`} {
		broken := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(broken, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := NewSource(broken, SourceConfig{}).Info(t.Context()); !codes.Has(err, codes.LogInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := NewSource(filepath.Join(t.TempDir(), "none"), SourceConfig{})
	if _, err := s.Info(t.Context()); !codes.Has(err, codes.FileMissing) {
		t.Errorf("missing: %v", err)
	}
	if _, err := s.Open(t.Context(), nil); !codes.Has(err, codes.FileMissing) {
		t.Errorf("missing: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Info(ended); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := s.Open(ended, nil); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

// TestALogDealtAnewIsAnotherSource: positions in a log mean nothing once it is dealt to more or fewer partitions.
func TestALogDealtAnewIsAnotherSource(t *testing.T) {
	t.Parallel()
	path := writeLog(t, 10, 2, nil)
	header := func(partitions int32) control.RunHeader {
		info, err := NewSource(path, SourceConfig{Partitions: partitions}).Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return control.RunHeader{RunID: "r", Fingerprint: "f", Source: info.Name, SourceID: info.ID, Partitions: info.Partitions}
	}
	for was := int32(1); was <= 4; was++ {
		for is := int32(1); is <= 4; is++ {
			_, _, err := control.CheckOpen(control.RunOpen, header(was), header(is))
			if was == is {
				if err != nil {
					t.Errorf("%d partitions again: %v", was, err)
				}
				continue
			}
			if !codes.Has(err, codes.RunMismatch) {
				t.Errorf("%d partitions, then %d: %v", was, is, err)
				continue
			}
			for _, h := range []control.RunHeader{header(was), header(is)} {
				if !strings.Contains(err.Error(), strconv.Quote(h.Source)) {
					t.Errorf("%d partitions, then %d: %v does not name %s", was, is, err, h.Source)
				}
			}
		}
	}
}

// TestAnyPausesAndReopeningsDeliverTheSame is the property that the order of reading does not matter: whatever is paused, resumed or
// opened again, and when, each partition comes in order and whole.
func TestAnyPausesAndReopeningsDeliverTheSame(t *testing.T) {
	t.Parallel()
	path := writeLog(t, 3000, 11, func(i int, a *Arrival) []Fault {
		if i%500 != 250 {
			return nil
		}
		a.Failure = time.Second
		return []Fault{{EventID: string(a.EventID), Kind: SourceFailure, Wait: time.Second}}
	})
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) { pausesAndReopenings(t, seed, path) })
	}
}

func pausesAndReopenings(t *testing.T, seed uint64, path string) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	partitions := 1 + rng.Int32N(6)
	s := NewSource(path, SourceConfig{Partitions: partitions, Faults: true})
	next := map[int32]record.Position{}
	for p := range partitions {
		next[p] = record.Position{}
	}
	got, failures := delivered{}, 0
	for ended := false; !ended; {
		r, err := s.Open(t.Context(), next)
		if err != nil {
			t.Fatal(err)
		}
		ended = drainAtRandom(t, rng, r, partitions, got, next, &failures)
		r.Close()
	}
	if !got.equal(model(t, path, partitions)) || failures != 6 {
		t.Fatalf("seed %d: %d partitions: not the log, or %d failures instead of 6", seed, partitions, failures)
	}
}

// drainAtRandom polls with pauses until the end (true), a failure of the source, or whenever it likes.
func drainAtRandom(t *testing.T, rng *rand.Rand, r sources.Reader, partitions int32, got delivered, next map[int32]record.Position, failures *int) bool {
	t.Helper()
	paused := make([]bool, partitions)
	for rng.IntN(40) > 0 {
		for p := range partitions {
			if rng.IntN(3) > 0 {
				continue
			}
			if paused[p] = !paused[p]; paused[p] {
				r.Pause(p)
			} else {
				r.Resume(p)
			}
		}
		if !slices.Contains(paused, false) {
			p := rng.Int32N(partitions)
			paused[p] = false
			r.Resume(p)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // of virtual time
		batches, err := r.Poll(ctx, 1+rng.IntN(200))
		cancel()
		switch {
		case err == context.DeadlineExceeded && slices.Contains(paused, true): // all is delivered but what is paused
		case err == io.EOF:
			return true
		case codes.Has(err, codes.SourceFailure):
			*failures++
			return false
		case err != nil:
			t.Fatal(err)
		}
		for i := range batches {
			if paused[batches[i].Partition] {
				t.Fatalf("partition %d is paused", batches[i].Partition)
			}
			got.add(t, &batches[i], next)
		}
	}
	return false
}

func TestAFailureComesOnceAndOnlyWhenAskedFor(t *testing.T) {
	t.Parallel()
	path := writeLog(t, 10, 1, func(i int, a *Arrival) []Fault {
		if i != 4 {
			return nil
		}
		a.Failure = 300 * time.Millisecond
		return []Fault{{EventID: string(a.EventID), Kind: SourceFailure, Wait: a.Failure}}
	})
	if got, err := drain(t, NewSource(path, SourceConfig{}), 0); err != nil || len(got[0]) != 10 {
		t.Fatalf("not asked for: %d records, %v", len(got[0]), err)
	}
	s := NewSource(path, SourceConfig{Faults: true})
	r, err := s.Open(t.Context(), map[int32]record.Position{0: {}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	batches, err := r.Poll(t.Context(), 0)
	if err != nil || len(batches) != 1 || len(batches[0].Records) != 4 {
		t.Fatalf("what stands before comes first: %v, %v", batches, err)
	}
	for range 2 {
		if _, err := r.Poll(t.Context(), 0); !codes.Has(err, codes.SourceFailure) || codes.Of(err).Verdict != codes.Retry {
			t.Fatalf("got %v, want a failure until the reader is closed", err)
		}
	}
	if got, err := drainFrom(t, s, 0, map[int32]record.Position{0: batches[0].Next}); err != nil || len(got[0]) != 6 {
		t.Errorf("opened again: %d records, %v", len(got[0]), err)
	}
	if got, err := drainFrom(t, NewSource(path, SourceConfig{Faults: true}), 0, map[int32]record.Position{0: record.Offset(5)}); err != nil || len(got[0]) != 5 {
		t.Errorf("a failure before the position is none: %d records, %v", len(got[0]), err)
	}
}

func TestAPauseIsWaitedForWhenAskedAndEndsWithTheContext(t *testing.T) {
	t.Parallel()
	path := writeLog(t, 10, 1, func(i int, a *Arrival) []Fault {
		if i%5 != 2 {
			return nil
		}
		a.Pause = time.Duration(i) * time.Second
		return []Fault{{EventID: string(a.EventID), Kind: Pause, Wait: a.Pause}}
	})
	var waits []time.Duration
	s := NewSource(path, SourceConfig{Wait: func(_ context.Context, d time.Duration) error {
		waits = append(waits, d)
		return nil
	}})
	for range 2 {
		if got, err := drain(t, s, 0); err != nil || len(got[0]) != 10 {
			t.Fatalf("%d records, %v", len(got[0]), err)
		}
	}
	if !slices.Equal(waits, []time.Duration{2 * time.Second, 7 * time.Second}) {
		t.Errorf("waited %v", waits)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s = NewSource(path, SourceConfig{Wait: func(ctx context.Context, d time.Duration) error {
		cancel()
		return ctx.Err()
	}})
	r, err := s.Open(t.Context(), map[int32]record.Position{0: {}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	first, err := r.Poll(ctx, 0)
	if err != nil || len(first[0].Records) != 2 {
		t.Fatalf("got %v, %v", first, err)
	}
	if _, err := r.Poll(ctx, 0); err != context.Canceled {
		t.Errorf("got %v", err)
	}
	if rest, err := r.Poll(t.Context(), 5); err != nil || len(rest[0].Records) != 5 {
		t.Errorf("nothing may be lost: %v, %v", rest, err)
	}
}

// TestAPausedPartitionIsSilentUntilItIsResumed is the recipe of clients that delivered after a pause: 10 records, pause, nothing
// for however long, resume, and the next record is the one after the tenth.
func TestAPausedPartitionIsSilentUntilItIsResumed(t *testing.T) {
	t.Parallel()
	path := writeLog(t, 500, 1, nil)
	synctest.Test(t, func(t *testing.T) {
		r, err := NewSource(path, SourceConfig{}).Open(t.Context(), map[int32]record.Position{0: {}})
		if err != nil {
			t.Fatal(err)
		}
		got, next := delivered{}, map[int32]record.Position{0: {}}
		batches, err := r.Poll(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		got.add(t, &batches[0], next)
		r.Pause(0)
		hour, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := r.Poll(hour, 10); err != context.DeadlineExceeded {
			t.Fatalf("paused: %v", err)
		}
		done := make(chan error)
		go func() {
			batches, err := r.Poll(t.Context(), 10)
			if err == nil {
				got.add(t, &batches[0], next)
			}
			done <- err
		}()
		synctest.Wait()
		r.Resume(0)
		if err := <-done; err != nil || len(got[0]) != 20 {
			t.Fatalf("resumed: %d records, %v", len(got[0]), err)
		}
		r.Pause(0)
		go func() {
			_, err := r.Poll(t.Context(), 10)
			done <- err
		}()
		synctest.Wait()
		r.Close()
		if err := <-done; err != sources.ErrClosed {
			t.Fatalf("closed: %v", err)
		}
		if _, err := r.Poll(t.Context(), 1); err != sources.ErrClosed {
			t.Fatalf("after Close: %v", err)
		}
	})
}

func TestAPausedPartitionWithNothingLeftDoesNotHoldTheEnd(t *testing.T) {
	t.Parallel()
	path := writeLog(t, 50, 5, nil)
	r, err := NewSource(path, SourceConfig{Partitions: 2}).Open(t.Context(), map[int32]record.Position{0: {}, 1: {}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	batches, err := r.Poll(t.Context(), 50)
	if err != nil || len(batches) != 2 {
		t.Fatalf("got %v, %v", batches, err)
	}
	r.Pause(0)
	if _, err := r.Poll(t.Context(), 1); err != io.EOF {
		t.Errorf("got %v", err)
	}
}

func TestPositionsOutsideTheLogAreRefused(t *testing.T) {
	t.Parallel()
	path := writeLog(t, 10, 1, nil)
	huge, err := record.ParsePosition("99999999999999999999")
	if err != nil {
		t.Fatal(err)
	}
	for code, from := range map[*codes.Code]map[int32]record.Position{codes.TopicMissing: {1: {}}, codes.LogInvalid: {0: huge}} {
		if _, err := NewSource(path, SourceConfig{}).Open(t.Context(), from); !codes.Has(err, code) {
			t.Errorf("%v: %v", from, err)
		}
	}
	if _, err := drainFrom(t, NewSource(path, SourceConfig{}), 0, map[int32]record.Position{0: record.Offset(11)}); !codes.Has(err, codes.LogInvalid) {
		t.Errorf("beyond the end: %v", err)
	}
	if got, err := drainFrom(t, NewSource(path, SourceConfig{}), 0, map[int32]record.Position{0: record.Offset(10)}); err != nil || len(got) != 0 {
		t.Errorf("at the end: %v, %v", got, err)
	}
	if got, err := drainFrom(t, NewSource(path, SourceConfig{Partitions: 2}), 0, map[int32]record.Position{}); err != nil || len(got) != 0 {
		t.Errorf("no partition: %v, %v", got, err)
	}
}

func TestALaterReaderStartsAtAMark(t *testing.T) {
	t.Parallel()
	const n = 2*markEvery + 100
	path := writeLog(t, n, 9, nil)
	s := NewSource(path, SourceConfig{Partitions: 3})
	want, err := drain(t, s, 0)
	if err != nil {
		t.Fatal(err)
	}
	from := map[int32]record.Position{}
	for p, list := range want {
		from[p] = record.Offset(int64(len(list) - 10))
	}
	r, err := s.Open(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	if started := r.(*sourceReader).front.seen.Arrivals; started != 2*markEvery {
		t.Errorf("started at arrival %d", started)
	}
	r.Close()
	got, err := drainFrom(t, s, 0, from)
	for p, list := range want {
		if err != nil || !slices.Equal(got[p], list[len(list)-10:]) {
			t.Errorf("partition %d: %v, %v", p, got[p], err)
		}
	}
	// Another log at the same path has other places.
	log := smallLog(t)
	if err := os.WriteFile(path, log, 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := drain(t, s, 0); err != nil || !again.equal(model(t, path, 3)) {
		t.Errorf("a new log: %v, %v", again, err)
	}
}

func TestManyReadersOfOneSourceDoNotMeet(t *testing.T) {
	t.Parallel()
	path := writeLog(t, markEvery+500, 5, nil)
	s := NewSource(path, SourceConfig{Partitions: 2})
	want := model(t, path, 2)
	errs := make(chan error)
	for range 3 {
		go func() {
			got, err := drain(t, s, 100)
			if err == nil && !got.equal(want) {
				err = errors.New("not the log")
			}
			errs <- err
		}()
	}
	for range 3 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func TestBatchesOutliveTheReaderAndTheMemoryOfOthers(t *testing.T) {
	t.Parallel()
	path := writeLog(t, 20_000, 3, nil)
	r, err := NewSource(path, SourceConfig{Partitions: 2}).Open(t.Context(), map[int32]record.Position{0: {}, 1: {}})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := r.Poll(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	kept = slices.Clone(kept)
	first := string(kept[0].Records[0].Headers[0].Value)
	for range 10 {
		batches, err := r.Poll(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		for i := range batches {
			batches[i].Done()
		}
	}
	r.Close()
	if got := string(kept[0].Records[0].Headers[0].Value); got != first {
		t.Errorf("%q became %q", first, got)
	}
	for i := range kept {
		kept[i].Done()
	}
}

// It is not parallel: allocations are counted for the whole process.
func TestAnAnswerCostsNoAllocationPerRecord(t *testing.T) {
	path := writeLog(t, 20_000, 3, nil)
	r, err := NewSource(path, SourceConfig{Partitions: 2}).Open(t.Context(), map[int32]record.Position{0: {}, 1: {}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	allocs := testing.AllocsPerRun(10, func() {
		batches, err := r.Poll(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		for i := range batches {
			batches[i].Done()
		}
	})
	if allocs > 20 {
		t.Errorf("%v allocations for 1000 records", allocs)
	}
}

func TestAGiantValuePassesAndItsMemoryDoesNotStay(t *testing.T) {
	t.Parallel()
	giant := slices.Concat([]byte(`{"x":"`), bytes.Repeat([]byte("y"), 10<<20), []byte(`"}`))
	path := writeLog(t, 3, 1, func(i int, a *Arrival) []Fault {
		if i == 1 {
			a.Value = giant
		}
		return nil
	})
	r, err := NewSource(path, SourceConfig{}).Open(t.Context(), map[int32]record.Position{0: {}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for n := 0; n < 3; {
		batches, err := r.Poll(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if n += len(batches[0].Records); n == 2 && !bytes.Equal(batches[0].Records[1].Value, giant) {
			t.Error("the value changed")
		}
		batches[0].Done()
	}
	for _, b := range r.(*sourceReader).free {
		if cap(b.buf) > 2*maxFetchBytes {
			t.Errorf("%d bytes stayed", cap(b.buf))
		}
	}
}

func BenchmarkSource(b *testing.B) {
	path := writeLog(b, 200_000, 50, nil)
	s := NewSource(path, SourceConfig{Partitions: 4})
	from := map[int32]record.Position{0: {}, 1: {}, 2: {}, 3: {}}
	for b.Loop() {
		r, err := s.Open(b.Context(), from)
		if err != nil {
			b.Fatal(err)
		}
		for {
			batches, err := r.Poll(b.Context(), 1024)
			if err == io.EOF {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			for i := range batches {
				batches[i].Done()
			}
		}
		r.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/200_000, "ns/record")
}
