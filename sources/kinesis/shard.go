package kinesis

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// shard reads one shard, page after page:
//
//	          iterator            page                    delivered
//	┌───────┐ ───────▶ ┌────────┐ ─────▶ ┌──────────────┐ ─────────▶ (fetch again, within the budget)
//	│ begin │          │ fetch  │        │ ready        │
//	└───────┘ ◀─────── └────────┘        └──────────────┘
//	    ▲     expired       │ no next iterator: the shard is closed and read
//	    └── next record     ▼
//	                     ended
//
// An iterator that has expired is replaced by one behind the last record that was read, never by one at either end of the shard.
type shard struct {
	r      *reader
	number int32
	// next is the position behind what was fetched. Only run touches it.
	next record.Position
	// seen: the record before next was seen, so nothing between it and what follows is missing. Only run touches it.
	seen bool
	// free holds a token when the page before was delivered.
	free chan struct{}

	keys [][]byte
	subs []subRecord

	// Guarded by the reader's mu.
	ready  []record.Record
	paused bool
	ended  bool
	// fault is why the shard is not read any more, though others may be.
	fault   *sources.Fault
	emptyAt time.Time
}

// deliver cuts a batch off the page, under the reader's lock. left 0 is no limit; an aggregate stays whole.
func (sh *shard) deliver(left int) record.Batch {
	n := len(sh.ready)
	if left > 0 && left < n {
		n = left
		for n > 1 && sh.ready[n].Sub > 0 {
			n--
		}
		if sh.ready[n].Sub > 0 { // the first one is longer than what is left
			for n++; n < len(sh.ready) && sh.ready[n].Sub > 0; n++ {
			}
		}
	}
	b := record.Batch{Partition: sh.number, Records: sh.ready[:n:n], Next: sh.ready[n-1].Position.Next()}
	for i := range b.Records {
		b.Bytes += len(b.Records[i].Key) + len(b.Records[i].Value)
	}
	sh.ready = sh.ready[n:]
	if len(sh.ready) == 0 {
		sh.ready = nil
		sh.free <- struct{}{} // there is room: it was taken before the page was fetched
	}
	return b
}

// run is the goroutine of the shard.
func (sh *shard) run(ctx context.Context) {
	read := sh.read
	if sh.r.s.cfg.FanOut != "" {
		read = sh.follow
	}
	if err := read(ctx); err != nil {
		sh.r.fail(sh, err)
	}
}

func (sh *shard) read(ctx context.Context) error {
	iterator, failures := "", 0
	due := time.Now()
	for {
		select {
		case <-sh.free:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !wait(ctx, time.Until(due)) {
			return ctx.Err()
		}
		began := time.Now()
		page, err := sh.page(ctx, &iterator)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			failures++
			if err := sh.again(err, failures, &iterator); err != nil {
				return err
			}
			due = time.Now().Add(sh.pauseAfter(err, failures))
			sh.free <- struct{}{}
			continue
		}
		failures = 0
		due = began.Add(sh.budget(page))
		ended, err := sh.keep(page)
		if err != nil || ended {
			return err
		}
		iterator = aws.ToString(page.NextShardIterator)
	}
}

// page fetches one page, with a new iterator where there is none.
func (sh *shard) page(ctx context.Context, iterator *string) (*kinesis.GetRecordsOutput, error) {
	cfg := &sh.r.s.cfg
	if *iterator == "" {
		within, cancel := context.WithTimeout(ctx, cfg.CallTimeout)
		defer cancel()
		out, err := sh.iterator(within)
		if err != nil {
			return nil, &callError{"GetShardIterator", err}
		}
		*iterator = aws.ToString(out.ShardIterator)
	}
	within, cancel := context.WithTimeout(ctx, cfg.CallTimeout)
	defer cancel()
	out, err := cfg.Client.GetRecords(within, &kinesis.GetRecordsInput{ShardIterator: iterator, Limit: &cfg.PageRecords})
	if err != nil {
		return nil, &callError{"GetRecords", err}
	}
	return out, nil
}

// iterator asks for an iterator. A position that stands on a record, and not behind the one before it, has no proof to ask for.
func (sh *shard) iterator(ctx context.Context) (*kinesis.GetShardIteratorOutput, error) {
	api, in := sh.r.s.cfg.Client, sh.start()
	out, err := api.GetShardIterator(ctx, in)
	var invalid *types.InvalidArgumentException
	if !errors.As(err, &invalid) || in.ShardIteratorType != types.ShardIteratorTypeAtSequenceNumber {
		return out, err
	}
	on := sh.next.String()
	in.StartingSequenceNumber = &on
	if exact, refused := api.GetShardIterator(ctx, in); refused == nil {
		return exact, nil
	}
	return out, err
}

// callError is an error with the call that met it.
type callError struct {
	call string
	err  error
}

func (e *callError) Error() string { return e.call + ": " + e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// start asks for an iterator. A run that goes on asks for the last record that it has seen and leaves it out: that it is still there proves
// that nothing after it is gone.
func (sh *shard) start() *kinesis.GetShardIteratorInput {
	cfg := &sh.r.s.cfg
	id := ShardID(sh.number)
	in := &kinesis.GetShardIteratorInput{StreamName: &cfg.Stream, ShardId: &id}
	switch {
	case sh.next != record.Position{}:
		last := sh.next.Prev().String()
		in.StartingSequenceNumber = &last
		in.ShardIteratorType = types.ShardIteratorTypeAtSequenceNumber
		if sh.seen {
			in.ShardIteratorType = types.ShardIteratorTypeAfterSequenceNumber
		}
	case !cfg.StartAt.IsZero():
		in.ShardIteratorType, in.Timestamp = types.ShardIteratorTypeAtTimestamp, &cfg.StartAt
	default:
		in.ShardIteratorType = types.ShardIteratorTypeTrimHorizon
	}
	return in
}

// again decides about a failed page: nil is to try again.
func (sh *shard) again(err error, failures int, iterator *string) error {
	s := sh.r.s
	var call *callError
	if !errors.As(err, &call) {
		return err // it is explained already
	}
	switch kindOf(call.err) {
	case expired:
		*iterator = ""
		return nil
	case throttled:
		if s.cfg.OnThrottle != nil {
			s.cfg.OnThrottle(sh.number, pause(failures))
		}
		return nil
	case unsteady:
		// Whoever drives the reader has its own patience: what lasts is told.
		if failures < unsteadyTries {
			s.cfg.Logger.Debug("kinesis: asking again", "call", call.call, "shard", sh.number, "cause", call.err.Error())
			return nil
		}
	case failed:
	}
	return s.explain(call.call, call.err)
}

// unsteadyTries is how often in a row the service may fail before the reader gives up, with pauses about 10 s in all.
const unsteadyTries = 6

// pauseAfter is how long to wait after a failed page. An iterator that expired is replaced at once.
func (sh *shard) pauseAfter(err error, failures int) time.Duration {
	if kindOf(err) == expired {
		return 0
	}
	return pause(failures)
}

// budget is how long after the beginning of a fetch the next one may begin.
func (sh *shard) budget(page *kinesis.GetRecordsOutput) time.Duration {
	cfg := &sh.r.s.cfg
	size := 0
	for i := range page.Records {
		size += len(page.Records[i].Data)
	}
	return time.Duration(float64(time.Second) * max(1/cfg.CallsPerSecond, float64(size)/cfg.BytesPerSecond))
}

// keep makes a page ready to be delivered. ended says that the shard is closed and read.
func (sh *shard) keep(page *kinesis.GetRecordsOutput) (ended bool, err error) {
	in := page.Records
	atEnd := aws.ToInt64(page.MillisBehindLatest) == 0
	ended = page.NextShardIterator == nil
	if in, err = sh.unseen(in, atEnd || ended); err != nil {
		return false, err
	}
	var out []record.Record
	for i := range in {
		if out, err = sh.unpack(out, &in[i]); err != nil {
			return false, err
		}
	}
	r := sh.r
	r.s.lags.note(sh, sources.Lag{Behind: time.Duration(aws.ToInt64(page.MillisBehindLatest)) * time.Millisecond, At: time.Now(), Read: sh.next})
	r.mu.Lock()
	defer r.mu.Unlock()
	sh.ended = ended
	if len(out) == 0 {
		// An empty page that is behind says nothing about what follows.
		if atEnd {
			sh.emptyAt = time.Now()
		}
		if !ended {
			sh.free <- struct{}{}
		}
		if ended || atEnd {
			r.wake()
		}
		return ended, nil
	}
	sh.ready = out
	r.wake()
	return ended, nil
}

// unseen leaves out the record that was asked for as proof. When it does not come, those behind it may be gone too.
func (sh *shard) unseen(in []types.Record, atEnd bool) ([]types.Record, error) {
	if sh.next == (record.Position{}) || sh.seen {
		return in, nil
	}
	if len(in) == 0 && !atEnd {
		return in, nil
	}
	if len(in) > 0 && aws.ToString(in[0].SequenceNumber) == sh.next.Prev().String() {
		sh.seen = true
		return in[1:], nil
	}
	if len(in) > 0 && aws.ToString(in[0].SequenceNumber) == sh.next.String() {
		sh.seen = true
		return in, nil
	}
	sh.seen = true
	if sh.r.s.cfg.AcceptGap {
		return in, nil
	}
	return nil, sh.lost(in)
}

func (sh *shard) lost(in []types.Record) error {
	holds := "it holds no record now"
	if len(in) > 0 {
		holds = "the oldest that it holds is " + aws.ToString(in[0].SequenceNumber) + ", which arrived at " + aws.ToTime(in[0].ApproximateArrivalTimestamp).UTC().Format(time.RFC3339)
	}
	f := &sources.Fault{Partition: sh.number, Need: sh.next}
	if len(in) > 0 {
		f.After, f.Known = sh.next, true
		if first, err := record.ParsePosition(aws.ToString(in[0].SequenceNumber)); err == nil {
			f.After = first
		}
	}
	f.Err = codes.New(codes.OffsetLost, "stream %q, shard %s: the record %s, which the run read last, is gone, and with it maybe some that came after: %s. Records are kept as long as the stream's retention says",
		sh.r.s.cfg.Stream, ShardID(sh.number), sh.next.Prev(), holds)
	return f
}

// unpack appends a record of the stream, or those that it carries.
func (sh *shard) unpack(out []record.Record, in *types.Record) ([]record.Record, error) {
	pos, err := record.ParsePosition(aws.ToString(in.SequenceNumber))
	if err != nil || pos.Cmp(sh.next) < 0 {
		return out, codes.New(codes.BrokerRefused, "stream %q, shard %s: the sequence number %.80q follows %s", sh.r.s.cfg.Stream, ShardID(sh.number), aws.ToString(in.SequenceNumber), sh.next)
	}
	sh.next, sh.seen = pos.Next(), true
	one := record.Record{Position: pos, Arrival: record.NoTime, Key: []byte(aws.ToString(in.PartitionKey)), Value: in.Data}
	if in.ApproximateArrivalTimestamp != nil {
		one.Arrival = record.EventTime(in.ApproximateArrivalTimestamp.UnixNano())
	}
	if one.Value == nil {
		one.Value = []byte{} // there are no tombstones
	}
	message, is := aggregated(in.Data)
	if !is {
		return append(out, one), nil
	}
	if sh.subs, sh.keys, err = takeApart(sh.subs[:0], sh.keys, message); err != nil {
		// It goes on as it is: no flow can read it, so it is set aside with its bytes.
		return append(out, one), nil
	}
	for i, sub := range sh.subs {
		one.Sub, one.Key, one.Value = uint32(i), sub.key, sub.data
		out = append(out, one)
	}
	return out, nil
}
