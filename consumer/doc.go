// Package consumer is for people who write consumers in Go: a function is called for every record of a log, says how the record ends, and the
// committed position follows.
//
//	c, err := consumer.New(consumer.Config{Source: source, Store: store, RunID: "invoices", Handler: func(ctx context.Context, d consumer.Delivery) consumer.Outcome {
//	    return consumer.Of(book(ctx, d.Key, d.Value))
//	}})
//	result, err := c.Run(ctx)
//
// # What holds
//
// Every record is handled at least once. The committed position of a partition is the last record of the contiguous done run from the oldest: it
// never passes a record that is not done, never goes back, and is written only when it moves, in the journal, in a transaction that verifies the
// lease. So a restart, a take-over by another process, and an owner that was only slow go as with any other run.
//
// A record may be handled twice: after a crash, everything behind the committed position is. A handler's effects have to stand that.
//
// # How a record ends
//
//	outcome         with                               what happens
//	Ack, Drop                                          done
//	Retry           nothing declared                   refused: undone, it holds its partition and comes again with the next owner, or by Rewind
//	Retry           Retry, and MaxAttempts or dead     a copy with the next attempt number goes to Retry, after Backoff; then done
//	                letters
//	RetryAfter      Retry                              the same, once the delay has passed
//	either, at      dead letters                       to the dead letters, with its headers, where it stood, why, and the attempts; then done
//	MaxAttempts     none                               done: the position passes it
//	(a panic)                                          what Config.OnPanic says; Retry by default
//
// A copy is confirmed before its original is done, so a crash in between makes two of it and never none. It goes behind all later records: order
// relative to its neighbours is lost, and every other consumer of the log gets it as well. A delayed copy lives in this process; it is dropped with
// the lease, with the partition, by Rewind and by the end of the process, and the record then comes again as it was, since it was not done.
//
// While a copy or dead letter cannot be written (the topic is missing, the broker away) its record stays undone, the partition's position with it,
// and it is tried again. Config.OnHeld and the log tell the cause.
//
// # Bounds
//
// Config.Capacity bounds how far a partition is read beyond its oldest undone record, and Config.Bytes the memory of what is not handled. At either
// the partition is paused at its source; the lease is renewed all the same. A record that holds its partition for Config.HeldAlarm is told.
package consumer
