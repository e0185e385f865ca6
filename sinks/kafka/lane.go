package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/weirstream/weir/internal/kafkaclient"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
)

// lane is one partition of the run, with its transactional id.
//
// Opening: check that no higher token was there; initialise the transactional id, which ends what was open and fences others; check again; and mark our
// token in a transaction of that id, which the broker commits only if nobody has initialised the id since. So the mark never goes down, and whoever was
// there before us can commit nothing any more. Then the id is initialised for the writing, and the mark looked at once more.
type lane struct {
	w         *sinkWriter
	partition int32
	to        int32
	name      string
	session   *kafkaclient.Session

	// at is the number of rows that stand, -1 when the broker does not tell. sequence is the one that they are of, as it is kept.
	at       int64
	sequence string
	// records of this publication, and the number after the last row; -1 while there are none.
	records []*kgo.Record
	end     int64
}

func (l *lane) reset() { l.records, l.end = l.records[:0], -1 }

const owners = "/owner"

// glance is check before anything is done: a former owner's transaction may be open, and nothing waits for its end.
// Who is to be refused has fenced nobody by then. The sequence comes first: tokens of another store say nothing beside ours.
func (l *lane) glance(ctx context.Context) error {
	if err := l.decided(ctx); err != nil {
		return err
	}
	at, kept, err := l.offset(ctx, l.name)
	if err != nil {
		return err
	}
	if err := l.same(at, kept); err != nil {
		return err
	}
	token, _, err := l.offset(ctx, l.name+owners)
	return l.compare(token, err)
}

// decided waits for the end of a transaction of our id that was committed or aborted and is not written everywhere yet: until then the groups do not show what it
// has changed, and a present owner would be fenced by one who is refused afterwards. Brokers before 3.0 do not tell.
func (l *lane) decided(ctx context.Context) error {
	return patient(ctx, func() error {
		found, err := kadm.NewClient(l.w.plain.Client).DescribeTransactions(ctx, l.name)
		if state := found[l.name].State; err == nil && (state == "PrepareCommit" || state == "PrepareAbort") {
			return kerr.ConcurrentTransactions
		}
		return nil
	})
}

// check refuses us when the target has seen a higher token.
func (l *lane) check(ctx context.Context) error {
	token, _, err := l.offset(kadm.RequireStable(ctx), l.name+owners)
	return l.compare(token, err)
}

func (l *lane) compare(token int64, err error) error {
	if err == nil && token > int64(l.w.to.Token) {
		return sinks.Overtaken(fmt.Sprintf("sink topic %q", l.w.s.cfg.Topic), l.w.to, l.partition)
	}
	return err
}

// mark leaves our token, by a client of its own: it speaks the older versions of the requests, which every broker has, and in which the producer's epoch
// stays, so that the transaction can be made by hand, without a record.
func (l *lane) mark(ctx context.Context) error {
	old := kversion.Stable()
	old.SetMaxKeyVersion(int16(kmsg.EndTxn), 4)
	old.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), 4)
	session, err := l.w.s.client(kgo.TransactionalID(l.name), kgo.TransactionTimeout(l.w.s.cfg.TransactionTimeout), kgo.MaxVersions(old))
	if err != nil {
		return err
	}
	defer session.Close()
	id, epoch, err := producerID(ctx, session.Client)
	if err != nil {
		return err
	}
	if err := l.check(ctx); err != nil {
		return err
	}
	if err := l.begin(ctx, session.Client); err != nil {
		return err
	}
	if err := l.commitOffset(ctx, session.Client, l.name+owners, int64(l.w.to.Token), ""); err != nil {
		return err
	}
	return patient(ctx, func() error {
		end := kmsg.NewPtrEndTxnRequest()
		end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = l.name, id, epoch, true
		resp, err := end.RequestWith(ctx, session.Client)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
}

// begin notes where a partition stands of which the broker does not tell, so that it can tell what a kill leaves out from now on; and of which sequence
// its rows are, if nothing says so yet.
func (l *lane) begin(ctx context.Context, client *kgo.Client) error {
	at, kept, err := l.offset(kadm.RequireStable(ctx), l.name)
	if err != nil {
		return err
	}
	if err := l.same(at, kept); err != nil {
		return err
	}
	committed, known := l.w.to.Committed[l.partition]
	switch {
	case at < 0 && known:
		at = committed
	case at < 0 || kept != "" || l.w.to.Sequence == "":
		return nil
	}
	return l.commitOffset(ctx, client, l.name, at, sequenceText(l.w.to.Sequence))
}

// initialise makes the client of the transactional id.
func (l *lane) initialise(ctx context.Context) error {
	session, err := l.w.s.client(kgo.TransactionalID(l.name), kgo.TransactionTimeout(l.w.s.cfg.TransactionTimeout))
	if err != nil {
		return err
	}
	l.session = session
	_, _, err = producerID(ctx, session.Client)
	return err
}

// producerID initialises the transactional id of a client, once.
func producerID(ctx context.Context, client *kgo.Client) (id int64, epoch int16, err error) {
	err = patient(ctx, func() error {
		id, epoch, err = client.ProducerID(ctx)
		return err
	})
	return id, epoch, err
}

// readBack looks at the mark again and at what stands.
func (l *lane) readBack(ctx context.Context) error {
	if err := l.check(ctx); err != nil {
		return err
	}
	var err error
	if l.at, l.sequence, err = l.offset(kadm.RequireStable(ctx), l.name); err != nil {
		return err
	}
	if l.sequence == "" {
		l.sequence = sequenceText(l.w.to.Sequence)
	}
	return l.same(l.at, l.sequence)
}

// offset is that of a group and what is kept beside it, -1 when there is none. With kadm.RequireStable, one that is part of a transaction is waited for.
func (l *lane) offset(ctx context.Context, group string) (at int64, beside string, err error) {
	err = patient(ctx, func() error {
		at, beside = -1, ""
		found, err := kadm.NewClient(l.w.plain.Client).FetchOffsets(ctx, group)
		if errors.Is(err, kerr.GroupIDNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if o, has := found.Lookup(l.w.s.cfg.Topic, 0); has {
			at, beside = o.At, o.Metadata
			return o.Err
		}
		return nil
	})
	return at, beside, err
}

// arenaBytes is the size of the pieces of memory that records are cut from.
const arenaBytes = 256 << 10

// encode makes records of rows. What they need is allocated in large pieces, since the client keeps them until they are written.
func (l *lane) encode(r sinks.Rows) error {
	token := strconv.AppendUint(nil, l.w.to.Token, 10)
	width := int64(2)
	if l.w.to.Revised {
		width = 3
	}
	structs, headers := make([]kgo.Record, r.Count), make([]kgo.RecordHeader, width*int64(r.Count))
	var arena []byte
	cut := func(from int) []byte { return arena[from:len(arena):len(arena)] }
	err := r.Each(len(l.w.to.Outputs), nil, func(number int64, row *partitions.Row) error {
		if cap(arena)-len(arena) < arenaBytes/64 {
			arena = make([]byte, 0, arenaBytes)
		}
		i := number - r.From
		rec, head := &structs[i], headers[width*i:width*(i+1):width*(i+1)]
		rec.Partition = l.to
		at := len(arena)
		arena = append(arena, row.Key...)
		rec.Key = cut(at)
		at = len(arena)
		arena = l.w.json.Append(arena, r.Partition, number, row)
		rec.Value = cut(at)
		at = len(arena)
		arena = strconv.AppendInt(append(strconv.AppendInt(arena, int64(r.Partition), 10), '/'), number, 10)
		head[0], head[1] = kgo.RecordHeader{Key: HeaderRow, Value: cut(at)}, kgo.RecordHeader{Key: HeaderToken, Value: token}
		if width == 3 {
			at = len(arena)
			arena = strconv.AppendFloat(arena, row.Values[len(row.Values)-1].F, 'f', -1, 64)
			head[2] = kgo.RecordHeader{Key: HeaderRevision, Value: cut(at)}
		}
		rec.Headers = head
		l.records = append(l.records, rec)
		return nil
	})
	l.end = r.End()
	return err
}

// produce writes the records, in a transaction if there is one, and waits until they are written.
func (l *lane) produce(ctx context.Context) error {
	client := l.session.Client
	if !l.w.s.cfg.Idempotent {
		if err := client.BeginTransaction(); err != nil {
			return err
		}
	}
	return client.ProduceSync(ctx, l.records...).FirstErr()
}

// count puts the number of rows into the transaction.
func (l *lane) count(ctx context.Context) error {
	return l.commitOffset(ctx, l.session.Client, l.name, l.end, l.sequence)
}

// commitOffset puts a group's offset, and what is kept beside it, into the transaction of a client.
func (l *lane) commitOffset(ctx context.Context, client *kgo.Client, group string, at int64, beside string) error {
	id, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return err
	}
	err = patient(ctx, func() error {
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = l.name, id, epoch, group
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	})
	if err != nil {
		return err
	}
	return patient(ctx, func() error {
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = l.name, id, epoch, group
		topic := kmsg.NewTxnOffsetCommitRequestTopic()
		topic.Topic, topic.TopicID = l.w.s.cfg.Topic, l.w.topic.ID
		partition := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		partition.Offset = at
		partition.Metadata = kmsg.StringPtr(beside)
		topic.Partitions = append(topic.Partitions, partition)
		req.Topics = append(req.Topics, topic)
		resp, err := req.RequestWith(ctx, client)
		if err != nil {
			return err
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// patient asks again while a coordinator is busy: with ending the transaction before, or with starting.
func patient(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if !slices.ContainsFunc(busy, func(e error) bool { return errors.Is(err, e) }) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(askAgain):
		}
	}
}

var busy = []error{kerr.ConcurrentTransactions, kerr.UnstableOffsetCommit, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator}

// askAgain is about as long as a coordinator takes to end a transaction.
const askAgain = 10 * time.Millisecond

// commit makes the rows and their number visible.
func (l *lane) commit(ctx context.Context) error {
	return l.session.Client.EndTransaction(ctx, kgo.TryCommit)
}
