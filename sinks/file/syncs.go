package file

import (
	"os"
	"sync"
)

// maxSyncs bounds the files that are synced at once, and by that those that are open.
const maxSyncs = 8

// syncs has files synced and closed while others are written: a disk takes hardly longer for several than for one.
type syncs struct {
	slots chan struct{}
	all   sync.WaitGroup
	mu    sync.Mutex
	err   error
}

func newSyncs() *syncs { return &syncs{slots: make(chan struct{}, maxSyncs)} }

// add takes a file over. It waits while too many are under way.
func (s *syncs) add(f *os.File) {
	s.slots <- struct{}{}
	s.all.Go(func() {
		err := f.Sync()
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err = unwritable(f.Name(), err); err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
		}
		<-s.slots
	})
}

// wait waits for all of them and returns an error of one.
func (s *syncs) wait() error {
	s.all.Wait()
	return s.err
}
