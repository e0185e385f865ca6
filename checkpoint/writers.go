package checkpoint

import (
	"bytes"
	"context"
	"strings"
	"sync"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
)

// writers put several blobs at once.
type writers struct {
	blobs Blobs
	slots chan struct{}
	all   sync.WaitGroup

	mu      sync.Mutex
	written int64
	err     error
}

func newWriters(blobs Blobs, n int) *writers {
	return &writers{blobs: blobs, slots: make(chan struct{}, n)}
}

// put begins to write a state blob, once one of the writers is free, whose content has to have the name. Its data need be valid during the call
// only. The error is the first of those before.
func (w *writers) put(ctx context.Context, partition int32, b partitions.StateBlob, name string) error {
	w.slots <- struct{}{}
	w.mu.Lock()
	err := w.err
	w.mu.Unlock()
	if err != nil {
		<-w.slots
		return err
	}
	data, state := bytes.Clone(b.Data), strings.Clone(b.Name)
	w.all.Go(func() {
		defer func() { <-w.slots }()
		info, err := w.blobs.Put(ctx, bytes.NewReader(data))
		if err == nil && info.Name != name {
			err = codes.New(codes.JournalCorrupt, "partition %d: state blob %q has the hash %s, and the journal says %s", partition, state, info.Name, name)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.err == nil {
			w.err = err
		}
		if err == nil {
			w.written += info.Size
		}
	})
	return nil
}

// wait waits for all that was begun, and says how many bytes were written and the first error.
func (w *writers) wait() (int64, error) {
	w.all.Wait()
	return w.written, w.err
}
