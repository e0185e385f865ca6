package drill

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// watcher reads a store all the while, through a connection of its own, and notes whatever goes back, comes twice or disappears.
type watcher struct {
	store control.ControlStore
	width int // outputs of the flow
	every time.Duration
	kafka *kadm.Client

	mu   sync.Mutex
	runs map[string]*seen
	// blobs of the checkpoints, or nil where none are made.
	blobs checkpoint.Blobs
	wrong map[string][]string
	tally struct{ readings, epochs, rows, pointers int }

	stop context.CancelFunc
	done sync.WaitGroup
}

// What the watcher watches, in the words of its checks.
const (
	seeEpochs   = "epochs of the journal never go back"
	seeTokens   = "tokens of lease and journal never go back, and the journal's is never ahead of the lease's"
	seeNext     = "positions and watermark never go back"
	seeIDs      = "no event id is published twice"
	seeRows     = "published outputs only grow, and never change"
	seeGroup    = "the group's offsets are never ahead of the journal"
	seePointers = "every checkpoint that can be seen has its manifest, under a known token"
	seeAll      = "the reader could read all the while"
)

var seeing = []string{seeEpochs, seeTokens, seeNext, seeIDs, seeRows, seeGroup, seePointers, seeAll}

// seen is the latest of a run.
type seen struct {
	topic     string
	epoch     uint64
	fence     control.FenceToken
	token     control.FenceToken
	watermark record.EventTime
	next      map[int32]record.Position
	rows      map[int32]prefix
	pointers  map[uint64]string
}

// prefix is how many rows of a partition were seen, and their hash.
type prefix struct {
	count int
	hash  string
}

func newWatcher(ctx context.Context, d *drill, store control.ControlStore, every time.Duration) (*watcher, error) {
	w := &watcher{store: store, width: len(d.plan.Outputs), every: every, runs: map[string]*seen{}, wrong: map[string][]string{}}
	client, err := d.connect()
	if err != nil {
		return nil, err
	}
	w.kafka = kadm.NewClient(client)
	ctx, w.stop = context.WithCancel(ctx)
	w.done.Go(func() { w.watch(ctx) })
	return w, nil
}

// add watches a run over a topic from now on. Its consumer group has its name.
func (w *watcher) add(run, topic string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs[run] = &seen{topic: topic, next: map[int32]record.Position{}, rows: map[int32]prefix{}, pointers: map[uint64]string{}, watermark: record.NoTime}
}

func (w *watcher) watch(ctx context.Context) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for ctx.Err() == nil {
		w.look(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// close looks a last time and ends.
func (w *watcher) close(ctx context.Context) {
	w.stop()
	w.done.Wait()
	w.look(ctx)
	w.kafka.Close()
	_ = w.store.Close() // it was read only
}

// look reads every run once.
func (w *watcher) look(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tally.readings++
	for _, run := range slices.Sorted(maps.Keys(w.runs)) {
		if err := w.read(ctx, run, w.runs[run]); err != nil && ctx.Err() == nil {
			w.note(seeAll, "run %s: %v", run, err)
		}
	}
}

// note keeps the first few of a kind.
func (w *watcher) note(kind, format string, args ...any) {
	if len(w.wrong[kind]) < 5 {
		w.wrong[kind] = append(w.wrong[kind], fmt.Sprintf(format, args...))
	}
}

// read looks at a run. What may only be behind is read before what it may not be ahead of.
func (w *watcher) read(ctx context.Context, run string, s *seen) error {
	group, err := w.kafka.FetchOffsets(ctx, run)
	if err != nil {
		group = nil // the broker may be new, and the group not there yet: a courtesy
	}
	var state control.RunState
	err = w.store.Snapshot(ctx, run, func(v control.JournalView) error {
		state = v.State()
		return nil
	})
	if codes.Has(err, codes.RunUnknown) {
		return nil
	}
	if err != nil {
		return err
	}
	lease, _, err := w.store.LookupLease(ctx, control.StreamLease(run))
	if err != nil {
		return err
	}
	w.compare(run, s, state, lease.Token)
	for _, o := range group.Offsets()[s.topic] {
		if next, ok := state.Cuts[o.Partition]; o.At > 0 && (!ok || record.Offset(o.At).Cmp(next.Next) > 0) {
			w.note(seeGroup, "run %s, partition %d: the group stands at %d, the journal at %s", run, o.Partition, o.At, next.Next)
		}
	}
	if err := w.outputs(ctx, run, s, state); err != nil {
		return err
	}
	return w.checkpoints(ctx, run, s)
}

// compare takes the journal as it stands now.
func (w *watcher) compare(run string, s *seen, state control.RunState, token control.FenceToken) {
	if state.Epoch < s.epoch {
		w.note(seeEpochs, "run %s: from epoch %d to %d", run, s.epoch, state.Epoch)
	}
	if state.Epoch > s.epoch {
		w.tally.epochs++
	}
	if state.Fence < s.fence || token < s.token || state.Fence > token {
		w.note(seeTokens, "run %s: the journal's from %d to %d, the lease's from %d to %d", run, s.fence, state.Fence, s.token, token)
	}
	if state.Watermark < s.watermark {
		w.note(seeNext, "run %s: the watermark from %s to %s", run, s.watermark, state.Watermark)
	}
	for p, cut := range state.Cuts {
		if cut.Next.Cmp(s.next[p]) < 0 {
			w.note(seeNext, "run %s, partition %d: from %s to %s", run, p, s.next[p], cut.Next)
		}
		s.next[p] = cut.Next
	}
	for p := range s.next {
		if _, ok := state.Cuts[p]; !ok {
			w.note(seeNext, "run %s: partition %d has no position any more", run, p)
		}
	}
	s.epoch, s.fence, s.token, s.watermark = state.Epoch, state.Fence, token, state.Watermark
}

// outputs reads every row that is published.
func (w *watcher) outputs(ctx context.Context, run string, s *seen, state control.RunState) error {
	ids := map[string]bool{}
	for _, p := range slices.Sorted(maps.Keys(state.Cuts)) {
		before, sum, n := s.rows[p], sha256.New(), 0
		err := w.store.Outputs(ctx, run, p, func(rows partitions.Rows) error {
			var row partitions.Row
			for data := rows.Data; len(data) > 0; {
				rest, err := partitions.DecodeRow(data, w.width, &row)
				if err != nil {
					return err
				}
				if ids[string(row.ID)] {
					w.note(seeIDs, "run %s: %s", run, row.ID)
				}
				ids[string(row.ID)] = true
				sum.Write(data[:len(data)-len(rest)])
				if n++; n == before.count && hex.EncodeToString(sum.Sum(nil)) != before.hash {
					w.note(seeRows, "run %s, partition %d: the first %d outputs are not those that were seen before", run, p, n)
				}
				data = rest
			}
			return nil
		})
		if err != nil {
			return err
		}
		if n < before.count {
			w.note(seeRows, "run %s, partition %d: %d outputs where %d had been seen", run, p, n, before.count)
		}
		w.tally.rows += max(0, n-before.count)
		s.rows[p] = prefix{n, hex.EncodeToString(sum.Sum(nil))}
	}
	return nil
}

// checkpoints looks whether each new pointer points to something.
func (w *watcher) checkpoints(ctx context.Context, run string, s *seen) error {
	if w.blobs == nil {
		return nil
	}
	pointers, err := w.store.ListPointers(ctx, run)
	if err != nil {
		return err
	}
	lease, _, err := w.store.LookupLease(ctx, control.StreamLease(run))
	if err != nil {
		return err
	}
	for _, p := range pointers {
		if s.pointers[p.Epoch] == p.Manifest {
			continue
		}
		if s.pointers[p.Epoch] != "" {
			w.note(seePointers, "run %s: the checkpoint of epoch %d is another one now", run, p.Epoch)
		}
		ok, err := w.blobs.Has(ctx, p.Manifest)
		if err != nil {
			return err
		}
		if !ok {
			w.note(seePointers, "run %s: the manifest of epoch %d is not there", run, p.Epoch)
		}
		s.pointers[p.Epoch] = p.Manifest
		w.tally.pointers++
		if p.Token == 0 || p.Token > lease.Token {
			w.note(seePointers, "run %s: the checkpoint of epoch %d was written under token %d, the lease is at %d", run, p.Epoch, p.Token, lease.Token)
		}
	}
	return nil
}
