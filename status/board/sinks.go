package board

import (
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/status"
)

// Sink takes what sinks.Publisher.OnState tells.
func (b *Board) Sink(s sinks.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.Err == nil {
		b.back(s.Sink)
		return
	}
	d := b.down(s.Sink, s.Err)
	d.Attempts = max(d.Attempts, s.Attempts)
}

// Handed takes what a sink tells that is watched.
func (b *Board) Handed(h sinks.Handed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.target(h.Sink)
	if p.Began = nil; !h.Opening && !h.Done && h.Err == nil && h.Rows > 0 {
		began := b.cfg.Now()
		p.Began = &began
	}
	switch at := b.cfg.Now(); {
	case h.Err != nil:
		b.refused(h.Err)
		if c := codes.Of(h.Err); c == nil || c.Verdict != codes.Retry {
			return // the run ends by it
		}
		p.Retries++
		d := b.down(h.Sink, h.Err)
		if d.Attempts++; d.Attempts == 1 {
			b.unopened[h.Sink] = h.Opening
		}
	case h.Opening:
		// A target that opens may still take nothing. One that failed to open does well now.
		if p.Lag = 0; b.unopened[h.Sink] {
			b.back(h.Sink)
		}
	case !h.Done:
		p.Lag = h.Rows
	default:
		b.back(h.Sink)
		if p.Lag = 0; h.Rows > 0 {
			p.Rows, p.Bytes, p.Publications, p.Last = p.Rows+h.Rows, p.Bytes+h.Bytes, p.Publications+1, &at
			p.Seconds += h.Took.Seconds()
		}
	}
}

// down finds a sink that is down, or makes it so.
func (b *Board) down(name string, cause error) *status.Sink {
	i := slices.IndexFunc(b.sinks, func(o status.Sink) bool { return o.Name == name })
	if i < 0 {
		at := b.cfg.Now()
		i = len(b.sinks)
		b.sinks = append(b.sinks, status.Sink{Name: name, Since: &at})
	}
	b.sinks[i].Cause = status.CauseOf(cause)
	return &b.sinks[i]
}

func (b *Board) back(name string) {
	delete(b.unopened, name)
	b.sinks = slices.DeleteFunc(b.sinks, func(o status.Sink) bool { return o.Name == name })
}

// known makes a sink that has not published yet.
func (b *Board) known(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.target(name)
}

// target finds a sink, or makes it.
func (b *Board) target(name string) *status.Published {
	i := slices.IndexFunc(b.published, func(p status.Published) bool { return p.Sink == name })
	if i < 0 {
		i = len(b.published)
		b.published = append(b.published, status.Published{Sink: name})
	}
	return &b.published[i]
}
