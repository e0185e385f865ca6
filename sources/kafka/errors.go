package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kafkaclient"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

func (c Config) recreated(was, is kafkaclient.TopicID) error {
	now := "and no topic of that name is there now"
	if is != (kafkaclient.TopicID{}) {
		now = fmt.Sprintf("it is %s now", is)
	}
	return codes.New(codes.TopicRecreated, "topic %q was deleted and created again: the run reads topic id %s, %s; the old positions mean nothing in the new topic", c.Topic, was, now)
}

// fault is a failure of one partition; after is where the log goes on, below 0 if that is not known.
func (c *cursor) fault(after int64, err error) *sources.Fault {
	f := &sources.Fault{Partition: c.partition, Need: record.Offset(c.next), Err: err}
	if after >= 0 {
		f.After, f.Known = record.Offset(after), true
	}
	return f
}

// poison is POISON_BATCH for an error in the bytes of a batch.
func (c Config) poison(at *cursor, err error) error {
	var large *kgo.ErrDecompressTooLarge
	if errors.As(err, &large) {
		return at.fault(large.NextOffset, codes.New(codes.PoisonBatch, "topic %q partition %d offset %d: the batch decompresses to more than %d bytes; the log goes on at offset %d after it",
			c.Topic, at.partition, large.Offset, c.BatchBytes, large.NextOffset))
	}
	return at.fault(-1, codes.New(codes.PoisonBatch, "topic %q partition %d: the batch at or after offset %d cannot be read: %w", c.Topic, at.partition, at.next, err))
}
