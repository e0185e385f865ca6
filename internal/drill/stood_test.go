package drill

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirstream/weir/record"
)

// clock is a time so many milliseconds after a beginning.
func clock(ms int) time.Time {
	return time.Unix(1_700_000_000, 0).Add(time.Duration(ms) * time.Millisecond)
}

// tracked is a track of partition 0 whose records were written at the given milliseconds.
func tracked(at ...int) *track {
	t := newTrack(1)
	for _, ms := range at {
		t.at[0] = append(t.at[0], clock(ms))
	}
	return t
}

func TestStop(t *testing.T) {
	t.Parallel()
	w := window{kind: byMove, began: clock(100), ended: clock(200)}
	step := func(ms, pid int, from int64) advance { return advance{clock(ms), pid, from, from + 1} }
	for name, c := range map[string]struct {
		track *track
		steps []advance
		took  int
		moved bool
		none  bool
	}{
		"nothing to do":                        {track: tracked(0, 300), steps: []advance{step(10, 1, 0), step(310, 1, 1)}, none: true},
		"no feed is no stop":                   {track: tracked(0, 190), steps: []advance{step(10, 1, 0), step(195, 1, 1)}, took: 5},
		"lag all the while":                    {track: tracked(0, 0, 0), steps: []advance{step(90, 1, 0), step(150, 1, 1), step(160, 1, 2)}, took: 50},
		"goes on behind the window":            {track: tracked(0, 0), steps: []advance{step(90, 1, 0), step(260, 1, 1)}, took: 160},
		"what was before is not of the window": {track: tracked(0, 0), steps: []advance{step(10, 1, 0), step(101, 1, 1)}, took: 1},
		"moved":                                {track: tracked(0, 120), steps: []advance{step(90, 1, 0), step(180, 2, 1)}, took: 60, moved: true},
		"there and back":                       {track: tracked(0, 110, 120), steps: []advance{step(90, 1, 0), step(118, 2, 1), step(130, 1, 2)}, took: 10, moved: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ok := c.track.stop(0, w, onwards(c.steps))
			if ok == c.none || s.took != time.Duration(c.took)*time.Millisecond || s.moved != c.moved {
				t.Errorf("%v, %v; want %d ms, moved %v, nothing to do %v", s, ok, c.took, c.moved, c.none)
			}
		})
	}
}

// Work that is done again, by a process that takes over from a commit, is no advance.
func TestOnwards(t *testing.T) {
	t.Parallel()
	all := onwards([]advance{{clock(30), 2, 1, 2}, {clock(10), 1, 0, 1}, {clock(20), 1, 4, 5}, {clock(40), 2, 5, 6}})
	if got, want := fmt.Sprint(len(all), all[0].from, all[1].from, all[2].from), "3 0 4 5"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	// A commit says only how far it is: it begins where the last one ended.
	all = onwards([]advance{{at: clock(10), next: 3}, {at: clock(20), next: 9}})
	if all[0].from != 0 || all[1].from != 3 {
		t.Errorf("%+v", all)
	}
}

func TestCommittedLine(t *testing.T) {
	t.Parallel()
	at, p, n, ok := committedLine("time=2026-01-02T03:04:05.006Z level=INFO msg=committed partition=2 epoch=7 records=140 outputs=9 watermark=x commit=3ms")
	if !ok || p != 2 || n != 140 || !at.Equal(time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)) {
		t.Error(at, p, n, ok)
	}
	for _, text := range []string{"weir: partition 2 assigned", "time=x level=INFO msg=committed partition=2 records=1"} {
		if _, _, _, ok := committedLine(text); ok {
			t.Errorf("%q is the line of a commit", text)
		}
	}
}

// The share of a step lasts as long as anything of it is waited for, and something comes all the while.
func TestASharesLasts(t *testing.T) {
	t.Parallel()
	const share = 100
	sent := int64(0)
	for in := time.Duration(0); in < stepLimit-patience; in += patience / 2 {
		due := dueAfter(share, in+patience/2)
		if due <= sent || due >= share {
			t.Errorf("%d of %d records after %s, %d before", due, share, in, sent)
		}
		sent = due
	}
	if due := dueAfter(share, 100*stepLimit); due > share {
		t.Errorf("%d of %d", due, share)
	}
}

func TestTrack(t *testing.T) {
	t.Parallel()
	k := newTrack(4)
	for i := range 100 {
		k.write(record.Record{Key: fmt.Append(nil, i)})
	}
	n := int64(0)
	for p := range int32(4) {
		n += k.written(p)
		if _, ok := k.when(p, k.written(p)); ok {
			t.Errorf("partition %d has a record at its end", p)
		}
		if at, ok := k.when(p, k.written(p)-1); !ok || at.IsZero() {
			t.Errorf("partition %d has no last record", p)
		}
	}
	if n != 100 {
		t.Errorf("%d records", n)
	}
}

func TestWaiter(t *testing.T) {
	t.Parallel()
	w := startWaiter(t.Context())
	w.close()
	w.close()
	w.late = []lateness{{clock(90), 70 * time.Millisecond}, {clock(150), 20 * time.Millisecond}, {clock(230), 40 * time.Millisecond}, {clock(400), 90 * time.Millisecond}}
	if got := w.longest(window{began: clock(100), ended: clock(200)}); got != 40*time.Millisecond {
		t.Errorf("%s", got)
	}
}
