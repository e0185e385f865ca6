package checkpoint_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/checkpoint/dir"
	"github.com/weirstream/weir/control/controltest"
	"github.com/weirstream/weir/partitions"
)

// BenchmarkSave makes checkpoints of a state with many keys in a folder, of which a share has changed since the last one, beside what one would
// write by hand: all of the state to one file, synced and renamed. The shares are of neighbouring keys; keys that are strewn over all chunks
// (of 256) change all of them.
func BenchmarkSave(b *testing.B) {
	const keys = 100_000
	for _, share := range []int{keys / 100, keys} {
		b.Run(fmt.Sprintf("%d of %d keys changed", share, keys), func(b *testing.B) {
			w := newWorldOf(b, controltest.NewMemory(), "bench", flowText)
			blobs, err := dir.OpenOwned(filepath.Join(b.TempDir(), "checkpoints"), w.store.ID)
			if err != nil {
				b.Fatal(err)
			}
			defer blobs.Close()
			saver := w.saver()
			saver.Blobs = blobs
			w.feed(b, keys, keys)
			if _, err := saver.Save(b.Context(), w.lease, w.runID); err != nil {
				b.Fatal(err)
			}
			var fresh, total int64
			for b.Loop() {
				b.StopTimer()
				w.fed[0], w.fed[1] = w.fed[0]+keys-w.fed[0]%keys, w.fed[1]+keys-w.fed[1]%keys // from the first key on again
				w.feed(b, share, keys)
				b.StartTimer()
				p, err := saver.Save(b.Context(), w.lease, w.runID)
				if err != nil {
					b.Fatal(err)
				}
				fresh, total = fresh+p.NewBytes, total+p.Bytes
			}
			b.ReportMetric(float64(fresh)/float64(total), "new/state")
			b.ReportMetric(float64(total)/float64(b.N), "state-B")
		})
	}
	b.Run("by hand", func(b *testing.B) {
		w := newWorldOf(b, controltest.NewMemory(), "bench", flowText)
		w.feed(b, keys, keys)
		path := filepath.Join(b.TempDir(), "state")
		for b.Loop() {
			if err := byHand(b, w, path); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func byHand(b *testing.B, w *world, path string) error {
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	for n := range int32(2) {
		if err := w.store.LoadBlobs(b.Context(), w.runID, n, func(s partitions.StateBlob) error {
			_, err := f.Write(s.Data)
			return err
		}); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

var _ checkpoint.Blobs = (*dir.Store)(nil)
