// Package kinesis reads Kinesis streams. Each shard is a partition: its number is the one in its name, a position the sequence number behind the
// last record.
//
//	client, err := kinesis.Connect(ctx, kinesis.Connection{Region: "eu-west-1"})
//	stream, err := kinesis.New(kinesis.Config{Client: client, Stream: "ticks"})
//	reader, err := stream.Shard(0).Open(ctx, map[int32]record.Position{0: from})
//
// Kinesis acknowledges nothing and knows no offsets, so the reader is careful where others have lost records:
//
//   - A reader that goes on asks for the record it has seen last, and leaves it out. That it is still there proves that nothing after it is gone; when
//     it is not, that is OFFSET_LOST with the numbers, and only Config.AcceptGap goes on.
//   - An iterator expires after five minutes. It is replaced by one behind the last record that was read, never by one at an end of the shard.
//   - An empty page that is behind says nothing: the reader asks on. Only an answer that is at the end is an empty answer.
//   - A shard ends when it gives no further iterator and what it gave was delivered; an empty one ends too.
//   - Limits (calls and bytes in a second) are kept by itself. A call that is refused because of them is asked again, without end and with pauses.
//   - Records that a producer has packed into one are taken apart; they share a position, and no batch tears them apart. One that cannot be taken apart
//     is delivered as it is, for the flow to set aside.
package kinesis
