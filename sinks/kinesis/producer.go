// Package kinesis writes records to a Kinesis stream.
//
//	p, err := kinesis.New(kinesis.Config{Client: client, Stream: "ticks"})
//	err = p.Produce(ctx, record)
//	err = p.Flush(ctx)
//
// Records go out in batches. Of a batch each may be refused by itself, and is sent again before anything that came after it; since a batch holds at
// most one record of a key, the records of a key arrive in the order in which they were produced. A record may arrive twice when an answer is
// lost: whoever reads recognises it by its event id.
package kinesis

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"
	"github.com/aws/smithy-go"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

// What Kinesis takes in one call, and in one record with its key.
const (
	maxBatch       = 500
	maxBatchBytes  = 5 << 20
	maxRecordBytes = 1 << 20
	maxKeyBytes    = 256
)

// Config of a producer.
type Config struct {
	// Client to write with. Required.
	Client *kinesis.Client
	// Stream is its name. Required.
	Stream string
	// Buffer is the number of records that are handed over and not sent. Defaults to 500.
	Buffer int
	// CallTimeout bounds one call, StallTimeout how long Kinesis may take nothing while something waits. Default to 10 s and 30 s.
	CallTimeout, StallTimeout time.Duration
	// OnTrouble is told when Kinesis takes nothing for now, before it is tried again, once until it takes something. Defaults to none.
	OnTrouble func(cause error)
}

// Producer writes to a stream. As the port says, it is used by one goroutine.
type Producer struct {
	cfg     Config
	pending []types.PutRecordsRequestEntry
	// batch is memory that is used again, as are the keys in it and the places in pending.
	batch  []types.PutRecordsRequestEntry
	places []int
	keys   map[string]bool
}

var _ sinks.Producer = (*Producer)(nil)

// New makes a producer. Nothing is connected before the first use. Errors: CONFIG_INVALID without a client or a name.
func New(cfg Config) (*Producer, error) {
	if cfg.Client == nil || cfg.Stream == "" {
		return nil, codes.New(codes.ConfigInvalid, "a Kinesis producer needs a client and the name of a stream")
	}
	if cfg.Buffer <= 0 {
		cfg.Buffer = maxBatch
	}
	if cfg.CallTimeout <= 0 {
		cfg.CallTimeout = 10 * time.Second
	}
	if cfg.StallTimeout <= 0 {
		cfg.StallTimeout = 30 * time.Second
	}
	return &Producer{cfg: cfg, keys: map[string]bool{}}, nil
}

// Produce implements sinks.Producer. A record needs a key of 1 to 256 bytes of UTF-8; headers and the time of arrival have no place in a record of
// Kinesis and are left out, and a tombstone is written as an empty value. Errors: RECORD_TOO_LARGE, and those of Flush.
func (p *Producer) Produce(ctx context.Context, r record.Record) error {
	if len(r.Key) == 0 || len(r.Key) > maxKeyBytes {
		return codes.New(codes.RecordTooLarge, "a record has a key of %d bytes; stream %q takes 1 to %d", len(r.Key), p.cfg.Stream, maxKeyBytes)
	}
	if n := len(r.Key) + len(r.Value); n > maxRecordBytes {
		return codes.New(codes.RecordTooLarge, "a record with the key %.40q has %d bytes; stream %q takes %d", r.Key, n, p.cfg.Stream, maxRecordBytes)
	}
	p.pending = append(p.pending, types.PutRecordsRequestEntry{PartitionKey: aws.String(string(r.Key)), Data: append([]byte{}, r.Value...)})
	for len(p.pending) >= p.cfg.Buffer {
		if err := p.send(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Flush implements sinks.Producer. Errors: TOPIC_MISSING, ACCESS_DENIED, SOURCE_FAILURE when Kinesis takes nothing for too long.
func (p *Producer) Flush(ctx context.Context) error {
	for len(p.pending) > 0 {
		if err := p.send(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Discard forgets what was handed over and not sent, for who gives up after an error. It returns how many records that were.
func (p *Producer) Discard() int {
	n := len(p.pending)
	p.pending = nil
	return n
}

// send sends batches until at least one record was taken.
func (p *Producer) send(ctx context.Context) error {
	stalled := time.Now().Add(p.cfg.StallTimeout)
	for failures := 1; ; failures++ {
		taken, err := p.put(ctx)
		switch {
		case taken > 0:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !passes(err):
			return p.explain(err)
		case time.Now().After(stalled):
			return p.explain(err)
		case failures == 1 && p.cfg.OnTrouble != nil:
			p.cfg.OnTrouble(err)
		}
		timer := time.NewTimer(min(100*time.Millisecond<<min(failures-1, 6), 5*time.Second))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// errRefused stands for a batch of which nothing was taken.
var errRefused = errors.New("every record of a batch was refused, since the stream's limits are reached")

// put sends one batch and keeps what was refused, in order.
func (p *Producer) put(ctx context.Context) (taken int, err error) {
	p.fill()
	within, cancel := context.WithTimeout(ctx, p.cfg.CallTimeout)
	defer cancel()
	out, err := p.cfg.Client.PutRecords(within, &kinesis.PutRecordsInput{StreamName: &p.cfg.Stream, Records: p.batch})
	if err != nil {
		return 0, err
	}
	if len(out.Records) != len(p.batch) {
		return 0, codes.New(codes.BrokerRefused, "stream %q answered for %d of %d records", p.cfg.Stream, len(out.Records), len(p.batch))
	}
	left := p.pending[:0]
	place := 0
	for i := range p.pending {
		if place < len(p.places) && p.places[place] == i {
			place++
			if aws.ToString(out.Records[place-1].ErrorCode) == "" {
				taken++
				continue
			}
		}
		left = append(left, p.pending[i])
	}
	clear(p.pending[len(left):])
	p.pending = left
	if taken == 0 {
		err = errRefused
	}
	return taken, err
}

// fill makes a batch of the oldest records, at most one of each key.
func (p *Producer) fill() {
	p.batch, p.places = p.batch[:0], p.places[:0]
	clear(p.keys)
	size := 0
	for i := range p.pending {
		e := &p.pending[i]
		n := len(*e.PartitionKey) + len(e.Data)
		if len(p.batch) == maxBatch || size+n > maxBatchBytes {
			return
		}
		if p.keys[*e.PartitionKey] {
			continue
		}
		p.keys[*e.PartitionKey] = true
		p.batch, p.places = append(p.batch, *e), append(p.places, i)
		size += n
	}
}

// passes says whether an error may be gone the next time.
func passes(err error) bool {
	var api smithy.APIError
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return false // a region that is none
	}
	if !errors.As(err, &api) {
		return !strings.Contains(err.Error(), "credentials")
	}
	switch api.ErrorCode() {
	case "ProvisionedThroughputExceededException", "LimitExceededException", "KMSThrottlingException", "ThrottlingException",
		"InternalFailure", "InternalFailureException", "ServiceUnavailable", "ServiceUnavailableException":
		return true
	}
	return false
}

func (p *Producer) region() string { return p.cfg.Client.Options().Region }

func (p *Producer) explain(err error) error {
	var missing *types.ResourceNotFoundException
	var api smithy.APIError
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return codes.New(codes.SourceFailure, "no host %s is known, which would be Kinesis in region %q: name the stream's region with --region or AWS_REGION, or give this machine a way to resolve names: %w", dns.Name, p.region(), err)
	case errors.As(err, &missing):
		return codes.New(codes.TopicMissing, "stream %q does not exist in this account and region %q, or is being deleted: %w", p.cfg.Stream, p.region(), err)
	case errors.As(err, &api) && !passes(err):
		return codes.New(codes.AccessDenied, "kinesis:PutRecords is refused on stream %q in region %q: %w", p.cfg.Stream, p.region(), err)
	case !errors.As(err, &api) && !errors.Is(err, errRefused) && strings.Contains(err.Error(), "credentials"):
		return codes.New(codes.AccessDenied, "there are no credentials to write to stream %q with: set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role: %w", p.cfg.Stream, err)
	}
	return codes.New(codes.SourceFailure, "stream %q has taken nothing for %v: %w", p.cfg.Stream, p.cfg.StallTimeout, err)
}
