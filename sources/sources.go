// Package sources is the port through which weir reads partitioned logs.
package sources

import (
	"context"
	"errors"

	"github.com/weirstream/weir/record"
)

// Info says what a source is, so that a run that resumes can tell whether it still reads the same log.
type Info struct {
	// Name of the log: a topic, a file.
	Name string
	// ID identifies this incarnation of the log (a Kafka topic id, a file's log hash or ""), so that a recreated one is noticed.
	ID string
	// Partitions in ascending order.
	Partitions []int32
	// Bounded is true when the log has an end.
	Bounded bool
	// Hashed is true when ID is a hash of all that the log holds: two logs with one ID give the same records.
	Hashed bool
}

// Source opens a partitioned log.
type Source interface {
	// Info asks the log what it is. Errors: topic missing, broker unreachable, access denied.
	Info(ctx context.Context) (Info, error)
	// Open starts reading every partition named in from, each exactly at its position.
	Open(ctx context.Context, from map[int32]record.Position) (Reader, error)
}

// ErrClosed is what a Reader answers once it was closed.
var ErrClosed = errors.New("the reader is closed")

// Reader reads an open log. Poll is called by one goroutine; Pause, Resume and Close may be called by others.
type Reader interface {
	// Poll waits for at least one batch, or for ctx. It returns io.EOF once a bounded log is read to its end. An empty answer
	// (no batch, no error) says that the source was asked and had nothing. Batches of one partition come in log order. After an
	// error the reader is closed and a new one opened; positions stay those of the caller. max bounds the records of one answer,
	// all its batches together; 0 or less leaves it to the source. The slice belongs to the reader until the next Poll; the
	// batches are values, each the caller's until it calls Done, in any order and from any goroutine. When ctx ends, Poll
	// returns ctx.Err() at once and loses nothing.
	Poll(ctx context.Context, max int) ([]record.Batch, error)
	// Pause stops delivery of a partition. What is already buffered may still come from the Poll that is running, never from a later one.
	Pause(partitions ...int32)
	// Resume takes a paused partition up again at the next undelivered record.
	Resume(partitions ...int32)
	// Close ends a waiting Poll with ErrClosed. Batches that are out stay valid until they are released.
	Close() error
}
