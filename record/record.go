package record

// Header is one name and value that travels beside a record.
type Header struct {
	Key   string
	Value []byte
}

// Header names that weir's own publisher writes and its reader understands.
const (
	// HeaderEventID carries the event id beside the value, so that a tombstone still names the event it stands for.
	HeaderEventID = "event_id"
)

// Record is one input. Key and Value may alias a fetch buffer: whoever keeps them past the release of their batch copies them.
type Record struct {
	// Position is where the record stands in its partition.
	Position Position
	// Sub numbers the records that one record of the log carries (an aggregate), from 0; they share its position. A batch never
	// tears them apart: a position cannot stand between them.
	Sub uint32
	// Arrival is the log's own timestamp of the record, or NoTime.
	Arrival EventTime
	// Key is nil when the record has none.
	Key []byte
	// Value is nil for a tombstone; an empty value is not nil.
	Value []byte
	// Headers in the order of the log.
	Headers []Header
}

// Batch is a run of records of one partition, in log order: the unit in which everything moves.
type Batch struct {
	Partition int32
	// Records may be empty when only the position moved (compaction, transaction markers).
	Records []Record
	// Next is where the partition is read after this batch.
	Next Position
	// Bytes is the memory that the batch holds until it is released.
	Bytes int
	// Release gives the batch's memory back to its source. Nil means that there is nothing to give back.
	Release func()
}

// Done releases the batch's memory. The records must not be used afterwards. It may be called once.
func (b *Batch) Done() {
	if b.Release != nil {
		b.Release()
		b.Release = nil
	}
}
