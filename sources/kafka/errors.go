package kafka

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kafkaclient"
)

func (c Config) recreated(was, is kafkaclient.TopicID) error {
	now := "and no topic of that name is there now"
	if is != (kafkaclient.TopicID{}) {
		now = fmt.Sprintf("it is %s now", is)
	}
	return codes.New(codes.TopicRecreated, "topic %q was deleted and created again: the run reads topic id %s, %s; the old positions mean nothing in the new topic", c.Topic, was, now)
}

// poison is POISON_BATCH for an error in the bytes of a batch.
func (c Config) poison(partition int32, next int64, err error) error {
	var large *kgo.ErrDecompressTooLarge
	if errors.As(err, &large) {
		return codes.New(codes.PoisonBatch, "topic %q partition %d offset %d: the batch decompresses to more than %d bytes; the log goes on at offset %d after it",
			c.Topic, partition, large.Offset, c.BatchBytes, large.NextOffset)
	}
	return codes.New(codes.PoisonBatch, "topic %q partition %d: the batch at or after offset %d cannot be read: %w", c.Topic, partition, next, err)
}
