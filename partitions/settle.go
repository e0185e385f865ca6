package partitions

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/weirstream/weir/record"
)

// Outcome is how whoever handles a delivery wants it to end: Ack, Drop, Retry or RetryAfter. What becomes of it depends on what the consumer
// has declared, see Terms. The zero value is no outcome at all.
type Outcome struct {
	kind   outcomeKind
	delay  time.Duration
	reason string
}

type outcomeKind uint8

const (
	outcomeNone outcomeKind = iota
	outcomeAck
	outcomeDrop
	outcomeRetry
	outcomeRetryAfter
)

// Ack: the record was processed.
func Ack() Outcome { return Outcome{kind: outcomeAck} }

// Drop: the record cannot be processed and is not to come again. The reason is for people.
func Drop(reason string) Outcome { return Outcome{kind: outcomeDrop, reason: reason} }

// Retry: the record is to come again. The reason is for people, and goes with the record to where it ends.
func Retry(reason string) Outcome { return Outcome{kind: outcomeRetry, reason: reason} }

// RetryAfter is Retry, but not before a delay has passed. A delay below 0 is 0.
func RetryAfter(delay time.Duration, reason string) Outcome {
	return Outcome{kind: outcomeRetryAfter, delay: max(delay, 0), reason: reason}
}

// Delayed is the outcome with a delay before its copy is written, such as a back-off; Retry stays what it is otherwise. It changes nothing but retries.
func (o Outcome) Delayed(d time.Duration) Outcome {
	if o.IsRetry() {
		o.delay = max(d, 0)
	}
	return o
}

// Reason is why, in words; "" for Ack.
func (o Outcome) Reason() string { return o.reason }

// IsZero says that no outcome was chosen.
func (o Outcome) IsZero() bool { return o.kind == outcomeNone }

// IsAck says that the record was processed.
func (o Outcome) IsAck() bool { return o.kind == outcomeAck }

// IsRetry says that the record is to come again, at once or later.
func (o Outcome) IsRetry() bool { return o.kind == outcomeRetry || o.kind == outcomeRetryAfter }

// Delay is that of RetryAfter; 0 and false for any other outcome.
func (o Outcome) Delay() (time.Duration, bool) { return o.delay, o.kind == outcomeRetryAfter }

func (o Outcome) String() string {
	switch o.kind {
	case outcomeAck:
		return "ack"
	case outcomeDrop:
		return "drop"
	case outcomeRetry:
		return "retry"
	case outcomeRetryAfter:
		return "retry after " + o.delay.String()
	case outcomeNone:
	}
	return "none"
}

// Terms are what a consumer has declared about records that fail.
type Terms struct {
	// MaxAttempts is how often a record is handled at most, the first time included. 0 is no limit.
	MaxAttempts int
	// DeadLetter: there is a place for records that are given up.
	DeadLetter bool
	// RetryTarget: there is a log to which a copy of a record can be written, from where it comes again.
	RetryTarget bool
}

// Action is what has to be done about an outcome.
type Action uint8

// The actions.
const (
	// ActNothing: the outcome was refused, or comes too late to matter.
	ActNothing Action = iota
	// ActDone: the delivery is done.
	ActDone
	// ActCopy: a copy has to be written to the retry target, once the delay has passed. The delivery is done when the write is confirmed.
	ActCopy
	// ActBury: the record has to be written to the dead letters. The delivery is done when the write is confirmed.
	ActBury
)

var actionNames = [...]string{"NOTHING", "DONE", "COPY", "BURY"}

func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return "UNKNOWN"
}

// ErrUnsupported is what every refusal of an outcome is. The delivery stays undone and holds the committed position; the reader goes on; the
// partition is read again from there by its next owner.
var ErrUnsupported = errors.New("partitions: the outcome cannot be carried out with what was declared")

// Refusal says which outcome was refused and what would have to be declared. errors.Is(err, ErrUnsupported) is true for it.
type Refusal struct {
	Outcome Outcome
	// Why is a sentence for the person who wrote the handler.
	Why string
}

func (r *Refusal) Error() string { return r.Outcome.String() + " is refused: " + r.Why }

// Is makes a Refusal an ErrUnsupported.
func (r *Refusal) Is(target error) bool { return target == ErrUnsupported }

// Verdict is what an outcome becomes.
type Verdict struct {
	Action Action
	// Attempt and Delay of a copy (ActCopy).
	Attempt int
	Delay   time.Duration
	// Omitted: the record was not processed, and will not be (ActDone, ActBury).
	Omitted bool
	// Exhausted: it was given up because of the limit of attempts.
	Exhausted bool
	// Err is a Refusal (ActNothing).
	Err error
}

// Judge says what an outcome of an attempt (from 1) becomes:
//
//	outcome        declared                            attempt        becomes
//	ack            anything                            any            done
//	drop           anything                            any            done; the committed position passes the record
//	retry          neither limit nor dead letter       any            refused (ErrUnsupported): stays undone
//	retry          a limit or a dead letter            below limit    a copy with the next attempt number; then done
//	retry after    anything                            below limit    the same, once the delay has passed
//	both           a dead letter                       at the limit   to the dead letters; then done
//	both           no dead letter                      at the limit   done; the committed position passes the record
//	both           no retry target                     below limit    refused (ErrUnsupported): stays undone
//	none           anything                            any            refused (ErrUnsupported): stays undone
func (t Terms) Judge(o Outcome, attempt int) Verdict {
	switch {
	case o.kind == outcomeAck:
		return Verdict{Action: ActDone}
	case o.kind == outcomeDrop:
		return Verdict{Action: ActDone, Omitted: true}
	case o.kind == outcomeNone:
		return refused(o, "the handler chose no outcome")
	case o.kind == outcomeRetry && t.MaxAttempts == 0 && !t.DeadLetter:
		return refused(o, "the log cannot take one record back; declare a limit of attempts or dead letters, so that a copy may be written")
	case t.MaxAttempts > 0 && attempt >= t.MaxAttempts && t.DeadLetter:
		return Verdict{Action: ActBury, Omitted: true, Exhausted: true}
	case t.MaxAttempts > 0 && attempt >= t.MaxAttempts:
		return Verdict{Action: ActDone, Omitted: true, Exhausted: true}
	case !t.RetryTarget:
		return refused(o, "there is no retry target to which a copy could be written")
	}
	return Verdict{Action: ActCopy, Attempt: attempt + 1, Delay: o.delay}
}

// TooLarge says what becomes of a record whose copy the retry target does not take: dead letters get it as it is; without them it stays undone,
// since nothing else would keep it.
func (t Terms) TooLarge(o Outcome) Verdict {
	if t.DeadLetter {
		return Verdict{Action: ActBury, Omitted: true}
	}
	return refused(o, "the copy is larger than the retry target takes, and there are no dead letters")
}

func refused(o Outcome, why string) Verdict { return Verdict{Err: &Refusal{Outcome: o, Why: why}} }

// HeaderRetryCount counts how often a record was written again: the copy that follows attempt n carries n, and is attempt n+1.
const HeaderRetryCount = "x-ruststream-retry-count"

// Attempt is the number of the delivery that these headers come with; the first one is 1. A count that is not a number from 0 on counts as
// none; of several the highest counts, so that nobody gets attempts back by adding one.
func Attempt(headers []record.Header) int {
	attempt := 1
	for _, h := range headers {
		if h.Key != HeaderRetryCount {
			continue
		}
		if n, err := strconv.ParseUint(string(h.Value), 10, 31); err == nil && n < math.MaxInt32 {
			attempt = max(attempt, int(n)+1)
		}
	}
	return attempt
}

// WithAttempt returns headers of a copy that is delivered as an attempt (from 2): the others as they are, in order, and one count.
func WithAttempt(headers []record.Header, attempt int) []record.Header {
	out := make([]record.Header, 0, len(headers)+1)
	for _, h := range headers {
		if h.Key != HeaderRetryCount {
			out = append(out, h)
		}
	}
	return append(out, record.Header{Key: HeaderRetryCount, Value: fmt.Append(nil, attempt-1)})
}
