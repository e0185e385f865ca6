// Package sinks holds the ports through which weir writes: a Producer appends records to a log; a Sink makes the rows of a run visible, under
// the promises that it declares.
package sinks

import (
	"context"

	"github.com/weirstream/weir/record"
)

// Producer appends records to one log. It is used by one goroutine.
type Producer interface {
	// Produce hands a record over. It may return before the record is written; an error that comes later is returned by a later
	// Produce or by Flush. Key, Value and Headers belong to the caller again when Produce returns, so a producer that goes on in the
	// background copies them. A nil Value is a tombstone. Arrival, unless it is record.NoTime, becomes the log's own timestamp of
	// the record; Position is ignored, the log gives one.
	Produce(ctx context.Context, r record.Record) error
	// Flush waits until everything handed over is written and durable as far as the log goes, or returns the first error.
	Flush(ctx context.Context) error
}
