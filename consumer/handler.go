package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// Outcome is how a delivery ends: Ack, Drop, Retry, RetryAfter, or Later.
type Outcome = partitions.Outcome

// Later is the outcome of a handler that settles its delivery itself (Config.Explicit), by Delivery.Settle. Without Config.Explicit it is
// refused, and the record stays undone.
var Later Outcome

// Ack: the record was processed.
func Ack() Outcome { return partitions.Ack() }

// Drop: the record cannot be processed and is not to come again. The reason is for people.
func Drop(reason string) Outcome { return partitions.Drop(reason) }

// Retry: the record is to come again, after Config.Backoff. It needs Config.MaxAttempts or dead letters, and a Config.Retry to write the copy to;
// otherwise it is refused, the record stays undone, holds the committed position and is read again by the next owner of the partition.
func Retry(reason string) Outcome { return partitions.Retry(reason) }

// RetryAfter is Retry with a delay of its own; it needs a Config.Retry and nothing else.
func RetryAfter(delay time.Duration, reason string) Outcome {
	return partitions.RetryAfter(delay, reason)
}

// Of is the outcome of an error: Ack for none, Retry with its text otherwise.
func Of(err error) Outcome {
	if err == nil {
		return Ack()
	}
	return Retry(err.Error())
}

// Errors of Settle. A refused outcome is partitions.ErrUnsupported.
var (
	// ErrSettled: the delivery was settled before.
	ErrSettled = errors.New("consumer: the delivery was settled before")
	// ErrVoid: the partition was given up or read again meanwhile; somebody else has the record, or will have it.
	ErrVoid = errors.New("consumer: the delivery is void: its partition was given up, or is read again")
)

// What the context of a handler may end with (context.Cause), beside the error by which a lease was lost.
var (
	// ErrRevoked: the partition is given up, or the consumer is stopped, and the time to drain has passed.
	ErrRevoked = errors.New("consumer: the partition is given up")
	// ErrRewound: the partition is read again from its committed position.
	ErrRewound = errors.New("consumer: the partition is read again from its committed position")
	// ErrKilled: Config.Kill has ended.
	ErrKilled = errors.New("consumer: the consumer was killed")
)

// Delivery is one record on its way through a handler.
type Delivery struct {
	// Record is valid until the delivery is settled: by the outcome that the handler returns, or by Settle. Whoever keeps bytes longer copies them.
	record.Record
	// Source is the log, Partition the part of it.
	Source    string
	Partition int32
	// Attempt counts the deliveries of this record, its copies included; the first is 1.
	Attempt int
	// Claims counts the terms of a lease that began with just this record as the oldest undone one of its partition, this term included. It is
	// kept with Config.MaxClaims only, and 0 for every other record.
	Claims int

	item *item
}

// Settle ends a delivery whose handler returned Later. It may be called from any goroutine, before or after the handler has returned. Errors: nil when the
// outcome was taken; a *partitions.Refusal (ErrUnsupported), after which another outcome may be tried; ErrSettled; ErrVoid. That it was taken does
// not say that it is committed.
func (d Delivery) Settle(o Outcome) error { return d.item.w.settle(d.item, o) }

// Handler processes a delivery. Its context ends when the partition is lost, read again, or given up and the time to drain has passed;
// what it does after that is done twice. A panic is an outcome too, see Config.OnPanic.
type Handler func(ctx context.Context, d Delivery) Outcome

// Middleware wraps a handler.
type Middleware func(next Handler) Handler

// Chain wraps a handler in middleware, the first one outermost.
func Chain(h Handler, m ...Middleware) Handler {
	for i := len(m) - 1; i >= 0; i-- {
		h = m[i](h)
	}
	return h
}

// Timeout bounds the context of every call. The handler has to heed it.
func Timeout(d time.Duration) Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, del Delivery) Outcome {
			within, cancel := context.WithTimeout(ctx, d)
			defer cancel()
			return next(within, del)
		}
	}
}

// call runs the handler and makes an outcome of a panic.
func (w *worker) call(it *item) (o Outcome) {
	d := Delivery{Record: it.rec, Source: w.info.Name, Partition: it.p.n, Attempt: it.attempt, Claims: it.claims, item: it}
	defer func() {
		if v := recover(); v != nil {
			w.log.Error("a handler panicked", "partition", it.p.n, "position", it.rec.Position.String(), "attempt", it.attempt, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			o = w.afterPanic(v, d)
		}
	}()
	return w.handler(it.ctx, d)
}

// afterPanic asks the policy, which may panic too.
func (w *worker) afterPanic(v any, d Delivery) (o Outcome) {
	defer func() {
		if recover() != nil {
			o = Retry("panic")
		}
	}()
	return w.cfg.OnPanic(v, d)
}
