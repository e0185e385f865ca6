package consumer

import (
	"context"
	"sync"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

// Copier writes a record to a log: the retry target, or the dead letters.
type Copier interface {
	// Copy returns nil once the record is written and durable as far as the log goes. Of any error it is unknown whether it stands, except of
	// RECORD_TOO_LARGE: the log does not take it, whenever it is tried. It is called by several goroutines and keeps nothing of r.
	Copy(ctx context.Context, r record.Record) error
}

// CopierFunc is a Copier.
type CopierFunc func(ctx context.Context, r record.Record) error

// Copy implements Copier.
func (f CopierFunc) Copy(ctx context.Context, r record.Record) error { return f(ctx, r) }

// Producing is a Copier over a sinks.Producer. Copies that come while others are written go together in the next write.
type Producing struct {
	open func() (sinks.Producer, error)

	mu      sync.Mutex
	waiting []*copying
	running bool
	current sinks.Producer
}

type copying struct {
	r    record.Record
	done chan error
}

// NewProducing makes one. open is called for the first copy, and again after an error, since a producer that failed stays so; a producer with
// a Close method is closed when it is given up, and by Close.
func NewProducing(open func() (sinks.Producer, error)) *Producing { return &Producing{open: open} }

// Copy implements Copier. When ctx ends the copy may still be written.
func (p *Producing) Copy(ctx context.Context, r record.Record) error {
	c := &copying{r: clone(r), done: make(chan error, 1)}
	p.mu.Lock()
	p.waiting = append(p.waiting, c)
	if !p.running {
		p.running = true
		go p.run(context.WithoutCancel(ctx))
	}
	p.mu.Unlock()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run writes until nothing waits.
func (p *Producing) run(ctx context.Context) {
	for {
		p.mu.Lock()
		batch := p.waiting
		p.waiting = nil
		p.running = len(batch) > 0
		p.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		err := p.write(ctx, batch...)
		for _, c := range batch {
			if err != nil && len(batch) > 1 {
				// One of them may be to blame; each is tried alone.
				c.done <- p.write(ctx, c)
				continue
			}
			c.done <- err
		}
	}
}

func (p *Producing) write(ctx context.Context, batch ...*copying) (err error) {
	if p.current == nil {
		if p.current, err = p.open(); err != nil {
			p.current = nil
			return err
		}
	}
	for _, c := range batch {
		if err = p.current.Produce(ctx, c.r); err != nil {
			break
		}
	}
	if err == nil {
		err = p.current.Flush(ctx)
	}
	if err != nil {
		p.giveUp()
	}
	return err
}

func (p *Producing) giveUp() {
	if c, ok := p.current.(interface{ Close() }); ok {
		c.Close()
	}
	p.current = nil
}

// Close gives the producer up. No Copy may be under way.
func (p *Producing) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		p.giveUp()
	}
}

// Enveloped is a Copier for a log without headers: records are written as envelopes (see Envelope), without a key's or header's bytes lost.
// One whose key and envelope are larger than limit bytes together is RECORD_TOO_LARGE and not written.
func Enveloped(to Copier, limit int) Copier {
	return CopierFunc(func(ctx context.Context, r record.Record) error {
		value, err := Envelope(r)
		if err != nil {
			return err
		}
		if size := len(value) + len(r.Key); size > limit {
			return codes.New(codes.RecordTooLarge, "the record at %s takes %d bytes with its key, headers and envelope; the log takes %d at most", r.Position, size, limit)
		}
		r.Value, r.Headers = value, nil
		return to.Copy(ctx, r)
	})
}

// clone copies what a record aliases.
func clone(r record.Record) record.Record {
	r.Key, r.Value = bytesOf(r.Key), bytesOf(r.Value)
	headers := make([]record.Header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = record.Header{Key: string([]byte(h.Key)), Value: bytesOf(h.Value)}
	}
	r.Headers = headers
	return r
}

// bytesOf copies bytes: nil stays nil and empty stays empty.
func bytesOf(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}
