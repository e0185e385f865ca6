package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/kafkaclient"
	"github.com/weirstream/weir/sources"
)

// askTimeout bounds the questions of one silent stretch, so that Poll looks again for data.
const askTimeout = 3 * time.Second

// silence is what the reader knows of a stretch in which nothing came.
type silence struct {
	outage      bool
	absentSince time.Time // since when the brokers do not know the topic; zero: they do
}

// ask finds out why nothing comes. It answers true if every partition that is not paused stands at the end of what is committed. The
// client delivers neither holes at the end of a log nor the disappearance of a topic, so both are found here.
func (r *reader) ask(ctx context.Context) (empty bool, err error) {
	within, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	t, err := r.Describe(within)
	if err != nil || t.ID != r.id {
		return false, r.noTopic(ctx, t, err)
	}
	r.silence.absentSince = time.Time{}
	cursors, partitions := r.reading()
	if len(cursors) == 0 {
		return false, nil
	}
	for _, p := range partitions {
		if slices.Contains(t.Leaderless, p) {
			return false, r.unanswered(ctx, r.leaderless(p))
		}
	}
	ends, err := r.offsets(within, partitions, endOffset, committedRecord)
	if err != nil {
		return false, r.unanswered(ctx, err)
	}
	r.answered()
	empty = true
	for _, c := range cursors {
		if ends[c.partition] > c.next {
			empty = false
			if err := r.probe(within, c); err != nil {
				return false, r.unanswered(ctx, err)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return empty && !r.deliverable(), nil // a partition resumed meanwhile may have something queued
}

// reading lists the partitions that are not paused.
func (r *reader) reading() (cursors []*cursor, partitions []int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.cursors {
		if !c.paused {
			cursors, partitions = append(cursors, c), append(partitions, c.partition)
		}
	}
	return cursors, partitions
}

// noTopic judges an answer in which the topic is absent or another one.
func (r *reader) noTopic(ctx context.Context, t kafkaclient.Topic, err error) error {
	switch {
	case err == nil:
		return r.cfg.recreated(r.id, t.ID)
	case !errors.Is(err, kerr.UnknownTopicOrPartition):
		return r.unanswered(ctx, err)
	case r.silence.absentSince.IsZero():
		r.silence.absentSince = time.Now()
	case kafkaclient.GraceOver(r.silence.absentSince):
		return codes.New(codes.TopicMissing, "topic %q (id %s) was deleted while it was read", r.cfg.Topic, r.id)
	}
	return nil
}

// probe fetches a partition at its position, apart from the client. If what stands there holds no record, the position moves over it;
// if it holds one, the client is about to deliver it.
func (r *reader) probe(ctx context.Context, c *cursor) error {
	leader, _, err := r.Client.PartitionLeader(r.cfg.Topic, c.partition)
	if err != nil || leader < 0 { // below 0: not known yet
		return err
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.IsolationLevel = r.cfg.FetchBytes, committedRecord
	req.SessionEpoch = -1 // no fetch session
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = r.cfg.Topic, r.id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = c.partition, c.next, r.cfg.PartitionBytes
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := r.Client.Broker(int(leader)).RetriableRequest(ctx, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fmt.Errorf("the broker did not answer for partition %d", c.partition)
	}
	opts := kgo.ProcessFetchPartitionOpts{
		KeepControlRecords: true,
		Offset:             c.next,
		IsolationLevel:     kgo.ReadCommitted(),
		Topic:              r.cfg.Topic,
		Partition:          c.partition,
	}
	found, next := kgo.ProcessFetchPartition(opts, &resp.Topics[0].Partitions[0], whole{r.inflate}, nil)
	if found.Err == nil && len(found.Records) == 0 && next > c.next && r.Client.BufferedFetchRecords() == 0 {
		c.next = next
		r.enqueue(fetched{cursor: c, next: next})
	}
	return nil // an error of the partition reaches the client too, which handles it
}

// answered notes that the brokers answer.
func (r *reader) answered() {
	if !r.silence.outage {
		return
	}
	r.silence.outage = false
	if r.cfg.Logger != nil {
		r.cfg.Logger.Info("kafka: the brokers answer again", "topic", r.cfg.Topic)
	}
	if r.cfg.OnOutage != nil {
		r.cfg.OnOutage(nil)
	}
}

// unanswered notes that the brokers do not answer, and returns an error only if trying again cannot help.
func (r *reader) unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, kgo.ErrClientClosed) {
		return nil
	}
	if codes.Of(err) == nil {
		err = r.Unreachable(ctx, err)
	}
	if codes.Has(err, codes.AccessDenied) {
		return err
	}
	if r.silence.outage {
		return nil
	}
	r.silence.outage = true
	if r.cfg.Logger != nil {
		r.cfg.Logger.Warn("kafka: the brokers do not answer; trying again", "topic", r.cfg.Topic, "error", err)
	}
	if r.cfg.OnOutage != nil {
		r.cfg.OnOutage(err)
	}
	return nil
}

// fault judges an error that came with a fetch. Nil: the client tries again by itself. c is nil for an error of no partition.
func (r *reader) fault(ctx context.Context, c *cursor, err error) error {
	var loss *kgo.ErrDataLoss
	var ke *kerr.Error
	switch {
	case err == nil, errors.Is(err, errInflated):
		return nil
	case errors.Is(err, kgo.ErrClientClosed):
		return sources.ErrClosed
	case r.Denied(err) != nil:
		return r.Denied(err)
	case c == nil:
		return codes.New(codes.BrokerRefused, "topic %q: %w", r.cfg.Topic, err)
	case errors.Is(err, kerr.OffsetOutOfRange):
		return r.lost(ctx, c)
	case errors.As(err, &loss):
		return c.fault(loss.ResetTo, codes.New(codes.OffsetLost, "topic %q partition %d: need offset %d, have records only up to %d: the log lost its end (an unclean election?)",
			r.cfg.Topic, c.partition, loss.ConsumedTo, loss.ResetTo))
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
		within, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if t, err := r.Describe(within); err != nil || t.ID != r.id {
			return r.noTopic(ctx, t, err)
		}
		return nil
	case errors.As(err, &ke) && ke.Retriable:
		return nil
	case errors.As(err, &ke):
		return c.fault(-1, codes.New(codes.BrokerRefused, "topic %q partition %d: the broker answered: %w", r.cfg.Topic, c.partition, err))
	}
	return r.cfg.poison(c, err)
}

// lost is OFFSET_LOST with what is needed and what the log has, or TOPIC_RECREATED if it is another log.
func (r *reader) lost(ctx context.Context, c *cursor) error {
	within, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if t, err := r.Describe(within); err == nil && t.ID != r.id {
		return r.cfg.recreated(r.id, t.ID)
	}
	only := []int32{c.partition}
	starts, err := r.offsets(within, only, startOffset, anyRecord)
	if err != nil {
		return c.fault(-1, codes.New(codes.OffsetLost, "topic %q partition %d: need offset %d, which the log does not have", r.cfg.Topic, c.partition, c.next))
	}
	start := starts[c.partition]
	ends, err := r.offsets(within, only, endOffset, anyRecord)
	if err != nil {
		return c.fault(start, codes.New(codes.OffsetLost, "topic %q partition %d: need offset %d, have %d and later", r.cfg.Topic, c.partition, c.next, start))
	}
	end, after, why := ends[c.partition], start, "what was between was removed by retention or by hand"
	if c.next > end {
		after, why = end, "the log ends before it: it was cut, or is not the log that the run has read"
	}
	return c.fault(after, codes.New(codes.OffsetLost, "topic %q partition %d: need offset %d, have %d to %d; %s", r.cfg.Topic, c.partition, c.next, start, end, why))
}
