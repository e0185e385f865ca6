package invariant

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Entry is an event with its place in the history.
type Entry struct {
	// N counts from 0. At is since the beginning.
	N       int
	At      time.Duration
	Process string
	Event   Event
}

func (e Entry) String() string {
	return fmt.Sprintf("%5d %12s %-10s %s", e.N, e.At, e.Process, e.Event)
}

// History records events in one order. Its methods may be called from any goroutine.
type History struct {
	now   func() time.Time
	start time.Time

	mu      sync.Mutex
	entries []Entry
}

// NewHistory begins a history on a clock.
func NewHistory(now func() time.Time) *History { return &History{now: now, start: now()} }

// Add records what a process did, or what was done for it.
func (h *History) Add(process string, e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, Entry{N: len(h.entries), At: h.now().Sub(h.start), Process: process, Event: e})
}

// Entries are those so far.
func (h *History) Entries() []Entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.entries)
}

// Text is the history for people: the last lines of it, at most so many.
func Text(entries []Entry, most int) string {
	var b strings.Builder
	if left := len(entries) - most; left > 0 {
		fmt.Fprintf(&b, "… %d before\n", left)
		entries = entries[left:]
	}
	for _, e := range entries {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}
