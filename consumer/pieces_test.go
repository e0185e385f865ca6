package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

func TestEnvelopeBytes(t *testing.T) {
	t.Parallel()
	r := record.Record{Key: []byte("bolts"), Value: []byte(`{"price":1}`), Headers: []record.Header{{Key: "content-type", Value: []byte("json")}, {Key: partitions.HeaderRetryCount, Value: []byte("1")},
		{Key: "\xff", Value: nil}, {Key: "", Value: []byte{}}}}
	b, err := Envelope(r)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"format":"weir.envelope/1","headers":[{"name":"content-type","value":"anNvbg=="},{"name_base64":"/w==","value":null},{"name":"","value":""}],"key":"Ym9sdHM=","payload":"eyJwcmljZSI6MX0=","x-ruststream-retry-count":1}`
	if string(b) != want {
		t.Errorf("got  %s\nwant %s", b, want)
	}
	for _, broken := range []string{want[:len(want)-1], strings.Replace(want, "null", "7", 1), strings.Replace(want, "Ym9", "!!!", 1), strings.Replace(want, `:1}`, `:"1"}`, 1), strings.Replace(want, `"key"`, `"kez"`, 1), `{"format":"weir.envelope/1",}`} {
		if got, ok := OpenEnvelope(record.Record{Value: []byte(broken)}); ok || string(got.Value) != broken {
			t.Errorf("opened: %s", broken)
		}
	}
}

func FuzzEnvelope(f *testing.F) {
	f.Add([]byte("k"), []byte("v"), "h", []byte("x"), uint8(3))
	f.Add([]byte(nil), []byte(nil), "\xff", []byte(nil), uint8(0))
	f.Fuzz(func(t *testing.T, key, value []byte, name string, header []byte, kind uint8) {
		r := record.Record{Position: record.Offset(7), Sub: 2, Key: key, Value: value, Headers: []record.Header{{Key: name, Value: header}, {Key: name, Value: nil}}}
		if name == partitions.HeaderRetryCount {
			r.Headers = nil
		}
		if n := int(kind); n > 0 {
			r.Headers = partitions.WithAttempt(r.Headers, n+1)
		}
		b, err := Envelope(r)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := OpenEnvelope(record.Record{Position: r.Position, Sub: r.Sub, Value: b})
		if !ok || fmt.Sprintf("%#v", got.Headers) != fmt.Sprintf("%#v", normal(r.Headers)) || fmt.Sprintf("%#v %#v", got.Key, got.Value) != fmt.Sprintf("%#v %#v", r.Key, r.Value) || got.Position != r.Position || got.Sub != r.Sub {
			t.Fatalf("%+v became %+v (%v)", r, got, ok)
		}
		// Anything else is handed over as it is, or is an envelope that opens to the same again.
		if opened, ok := OpenEnvelope(record.Record{Value: value}); ok {
			if _, err := Envelope(opened); err != nil {
				t.Fatal(err)
			}
		} else if string(opened.Value) != string(value) {
			t.Fatal("changed what is no envelope")
		}
	})
}

// normal are headers as an envelope gives them back.
func normal(h []record.Header) []record.Header {
	if len(h) == 0 {
		return nil
	}
	return h
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := Backoff{Min: time.Second, Max: 10 * time.Second}
	for attempt, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 5: 10 * time.Second, 1 << 30: 10 * time.Second} {
		if got := b.Delay(attempt, nil); got != want {
			t.Errorf("attempt %d: %v, want %v", attempt, got, want)
		}
	}
	b.Jitter = 0.5
	var draws [2][]time.Duration
	for i := range draws {
		r := rand.New(rand.NewPCG(1, 2))
		for range 20 {
			d := b.Delay(2, r)
			if d <= time.Second || d > 2*time.Second {
				t.Errorf("drew %v", d)
			}
			draws[i] = append(draws[i], d)
		}
	}
	if fmt.Sprint(draws[0]) != fmt.Sprint(draws[1]) || draws[0][0] == draws[0][1] {
		t.Errorf("the jitter is not that of its seed: %v", draws)
	}
	if (Backoff{}).Delay(5, nil) != 0 {
		t.Error("no back-off is a delay")
	}
}

// The back-off delays the copies of Retry, and not those of RetryAfter.
func TestBackoffOfRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, false)
		w.put(0, 0, 1)
		began := time.Now()
		var at []string
		cfg := w.config(func(_ context.Context, d Delivery) Outcome {
			at = append(at, time.Since(began).String())
			switch d.Attempt {
			case 1, 2:
				return Retry("busy")
			case 3:
				return RetryAfter(time.Second, "busy")
			}
			return Ack()
		})
		cfg.Retry, cfg.MaxAttempts, cfg.Backoff = w.back(), 9, Backoff{Min: time.Minute, Max: time.Hour}
		stop := w.start(w.consumer(cfg))
		after(time.Hour)
		_, err := stop()
		wantNil(t, err)
		w.want("times", fmt.Sprint(at), "[0s 1m0s 3m0s 3m1s]")
	})
}

func TestMiddleware(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t, 1, true)
		w.put(0, 0, 1)
		var order []string
		note := func(name string) Middleware {
			return func(next Handler) Handler {
				return func(ctx context.Context, d Delivery) Outcome {
					order = append(order, name)
					o := next(ctx, d)
					order = append(order, name+" "+o.String())
					return o
				}
			}
		}
		cfg := w.config(func(ctx context.Context, _ Delivery) Outcome {
			<-ctx.Done()
			return Drop(ctx.Err().Error())
		})
		cfg.Middleware = []Middleware{note("a"), Timeout(time.Second), note("b")}
		_, err := w.consumer(cfg).Run(t.Context())
		wantNil(t, err)
		w.want("order", strings.Join(order, ", "), "a, b, b drop, a drop")
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Order: 7, Concurrency: -1, MaxAttempts: -1, DeadLetter: CopierFunc(nil), Quarantine: true, Backoff: Backoff{Min: 2, Max: 1, Jitter: 2}, Capacity: -1, Drain: -1})
	for _, part := range []string{"no source", "no store", "no run id", "no handler", "Order is 7", "Concurrency is -1", "MaxAttempts is -1", "Choose one", "back-off is from", "jitter is 2", "Capacity is -1", "TTL, StandEvery"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not named by %v", part, err)
		}
	}
	wantCode(t, err, codes.ConfigInvalid)
	_, err = New(Config{MaxAttempts: 2, Concurrency: 4})
	if err == nil || !strings.Contains(err.Error(), "no Retry to write the copies to") || !strings.Contains(err.Error(), "Choose ByKey") {
		t.Errorf("%v", err)
	}
}

// producer fails as it is told, and keeps what was flushed.
type producer struct {
	mu      sync.Mutex
	pending []string
	written []string
	bad     string
	flushes int
	closed  int
	gate    chan struct{}
}

func (p *producer) Produce(_ context.Context, r record.Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if string(r.Value) == p.bad {
		return codes.New(codes.RecordTooLarge, "too large")
	}
	p.pending = append(p.pending, string(r.Value))
	return nil
}

func (p *producer) Flush(context.Context) error {
	<-p.gate
	p.mu.Lock()
	defer p.mu.Unlock()
	p.flushes++
	p.written = append(p.written, p.pending...)
	p.pending = nil
	return nil
}

func (p *producer) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = nil
	p.closed++
}

// Copies that come together are written together; one to blame does not fail the others; a failed producer is opened anew.
func TestProducing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &producer{bad: "bad", gate: make(chan struct{})}
		opened := 0
		c := NewProducing(func() (sinks.Producer, error) {
			if opened++; opened == 1 {
				return nil, errDown
			}
			return p, nil
		})
		defer c.Close()
		if err := c.Copy(t.Context(), record.Record{}); !errors.Is(err, errDown) {
			t.Errorf("got %v", err)
		}
		errs := map[string]error{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, v := range []string{"first", "a", "bad", "b", "c"} {
			all.Go(func() {
				err := c.Copy(t.Context(), record.Record{Value: []byte(v)})
				mu.Lock()
				defer mu.Unlock()
				errs[v] = err
			})
			after(time.Millisecond)
		}
		close(p.gate)
		all.Wait()
		for v, err := range errs {
			if v == "bad" {
				wantCode(t, err, codes.RecordTooLarge)
				continue
			}
			wantNil(t, err)
		}
		if got := strings.Join(p.written, " "); got != "first a b c" {
			t.Errorf("written: %s", got)
		}
		if opened != 4 || p.closed != 2 {
			t.Errorf("opened %d times, closed %d times", opened, p.closed)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(ErrRevoked)
		p.gate = make(chan struct{})
		if err := c.Copy(ctx, record.Record{Value: []byte("late")}); !errors.Is(err, ErrRevoked) {
			t.Errorf("got %v", err)
		}
		close(p.gate)
		after(time.Millisecond)
	})
}
