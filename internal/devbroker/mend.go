package devbroker

import (
	"context"
	"os"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/weirstream/weir/codes"
)

// inUse stands in the lock file while a broker has the folder, so that the next one finds it when this one was killed.
const inUse = "in use\n"

// take makes the folder ready for a broker, and mends what a broker left that was killed.
func (c Config) take(lock *os.File) error {
	if n, _ := lock.ReadAt(make([]byte, 1), 0); n > 0 {
		if err := c.mend(); err != nil {
			return err
		}
	}
	if _, err := lock.WriteAt([]byte(inUse), 0); err != nil {
		return codes.New(codes.StoreUnavailable, "the data folder of the broker cannot be written: %w", err)
	}
	return nil
}

// mend ends the transactions that were open when the broker was killed. kfake takes them for aborted and writes no marker: readers would take what their
// producer commits next for aborted too, and after another kill the aborted records would be taken for committed. Nobody is connected meanwhile, since
// nobody knows the port: what a client begins is not touched.
func (c Config) mend() error {
	c.Port = 0
	cluster, err := kfake.NewCluster(c.options()...)
	if err != nil {
		return c.startError(err)
	}
	defer cluster.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DisableClientMetrics(), kgo.DisableFetchSessions(), kgo.KeepControlRecords())
	if err != nil {
		return codes.New(codes.Internal, "the broker's own client: %w", err)
	}
	defer cl.Close()
	if err := abortOpen(cl); err != nil {
		return codes.New(codes.StoreUnavailable, "the data folder %s of a broker that was killed cannot be mended: %w", c.DataDir, err)
	}
	return nil
}

// abortOpen writes a marker for each transaction that has none and that the broker does not hold open.
func abortOpen(cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), createTimeout)
	defer cancel()
	adm := kadm.NewClient(cl)
	starts, err := adm.ListStartOffsets(ctx)
	if err != nil {
		return err
	}
	ends, err := adm.ListEndOffsets(ctx)
	if err != nil {
		return err
	}
	stable, err := adm.ListCommittedOffsets(ctx)
	if err != nil {
		return err
	}
	open, err := openTransactions(cl, starts, ends)
	if err != nil {
		return err
	}
	var markers []kadm.TxnMarkers
	for at, t := range open {
		if lso, ok := stable.Lookup(at.topic, at.partition); !ok || t.first >= lso.Offset {
			continue
		}
		m := kadm.TxnMarkers{ProducerID: at.producer, ProducerEpoch: t.epoch, Topics: kadm.TopicsSet{}}
		m.Topics.Add(at.topic, at.partition)
		markers = append(markers, m)
	}
	return write(ctx, adm, markers)
}

func write(ctx context.Context, adm *kadm.Client, markers []kadm.TxnMarkers) error {
	for _, m := range markers {
		written, err := adm.WriteTxnMarkers(ctx, m)
		if err != nil {
			return err
		}
		for _, w := range written {
			w.Topics.EachPartition(func(p kadm.TxnMarkersPartitionResponse) {
				if err == nil {
					err = p.Err
				}
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type producerOf struct {
	topic     string
	partition int32
	producer  int64
}

type opened struct {
	first int64
	epoch int16
}

// openTransactions reads all partitions, and finds the transactional records behind which their producer has no marker.
func openTransactions(cl *kgo.Client, starts, ends kadm.ListedOffsets) (map[producerOf]opened, error) {
	from, left := map[string]map[int32]kgo.Offset{}, map[producerOf]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		if start, ok := starts.Lookup(end.Topic, end.Partition); ok && start.Offset < end.Offset {
			if from[end.Topic] == nil {
				from[end.Topic] = map[int32]kgo.Offset{}
			}
			from[end.Topic][end.Partition] = kgo.NewOffset().At(start.Offset)
			left[producerOf{topic: end.Topic, partition: end.Partition}] = end.Offset
		}
	})
	cl.AddConsumePartitions(from)
	open := map[producerOf]opened{}
	for len(left) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), createTimeout)
		fetches := cl.PollFetches(ctx)
		cancel()
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			at := producerOf{r.Topic, r.Partition, r.ProducerID}
			switch _, begun := open[at]; {
			case r.Attrs.IsControl():
				delete(open, at)
			case r.Attrs.IsTransactional() && !begun:
				open[at] = opened{r.Offset, r.ProducerEpoch}
			}
			if log := (producerOf{topic: r.Topic, partition: r.Partition}); r.Offset+1 >= left[log] {
				delete(left, log)
			}
		})
	}
	return open, nil
}
