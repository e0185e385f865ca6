package record

// Position is where a partition is read: a Kafka offset or a Kinesis sequence number (56 digits). It is an unsigned integer of
// 192 bits, comparable with ==, ordered by Cmp, and always written as a decimal, never as a float.
// The zero value is the start of a dense log (offset 0).
type Position struct{ hi, mid, lo uint64 }

// Offset is the position of a Kafka offset. n must not be negative.
func Offset(n int64) Position { return Position{lo: uint64(n)} }
