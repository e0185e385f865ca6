package replay

import (
	"context"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	"github.com/weirstream/weir/sources/logfile"
)

// Names of the headers that Publish writes besides record.HeaderEventID: the number of the arrival in its log, as a decimal, and the
// kinds of the faults that touch it, sorted, with commas; an arrival that none touches has no such header.
const (
	HeaderArrival = "arrival"
	HeaderFaults  = "faults"
)

// Speed is how fast a log is published. The zero value is as fast as the producer takes it.
type Speed struct{ factor float64 }

// ParseSpeed reads "max", "realtime", or a number above 0, with or without an x: how many times as fast as the arrivals were.
func ParseSpeed(s string) (Speed, error) {
	switch s {
	case "max":
		return Speed{}, nil
	case "realtime":
		return Speed{factor: 1}, nil
	}
	f, err := strconv.ParseFloat(strings.TrimSuffix(s, "x"), 64)
	if err != nil || !(f > 0) || math.IsInf(f, 0) {
		return Speed{}, codes.New(codes.ConfigInvalid, "%.40q is no speed: write max, realtime, or a number above 0 such as 10", s)
	}
	return Speed{factor: f}, nil
}

// String is what ParseSpeed reads.
func (s Speed) String() string {
	switch s.factor {
	case 0:
		return "max"
	case 1:
		return "realtime"
	}
	return strconv.FormatFloat(s.factor, 'g', -1, 64) + "x"
}

// PublishConfig says what to publish where.
type PublishConfig struct {
	// Log is the path of the arrival log.
	Log      string
	Producer sinks.Producer
	Speed    Speed
	// Now and Wait are the clock; the system's by default. Wait returns early, with an error, when ctx ends.
	Now  func() time.Time
	Wait func(ctx context.Context, d time.Duration) error
	// Progress, unless nil, is called every now and then, and at the end, with the number of arrivals handed over.
	Progress func(arrivals int64)
}

// Published says what was published.
type Published struct {
	// Arrivals handed over to the producer; after an error the producer may not have written all of them.
	Arrivals int64
	// LogHash of the log, once all of it was read.
	LogHash string
}

const (
	// ahead is how much too early an arrival may be sent, so that not every record waits by itself.
	ahead         = 2 * time.Millisecond
	progressEvery = 1 << 13
	checkEvery    = 1 << 8
)

// Publish sends every arrival of a log, in order, and ends when all of them are written: with its key, its value (nil for a tombstone),
// its time as the record's timestamp, and headers. Unless the speed is max, it keeps the distances between the arrivals, divided by the
// speed, and stands still for the wall time of every PAUSE and SOURCE_FAILURE, which no speed shortens; before it waits, everything
// sent so far is flushed. The log is verified while it is read: an error in it ends the publication there, after a flush, and a hash
// that does not match is noticed at the end. Errors: of the log (codes.FileMissing, codes.LogInvalid), of the producer, or the
// cause of ctx's end.
func Publish(ctx context.Context, cfg PublishConfig) (Published, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Wait == nil {
		cfg.Wait = wait
	}
	log, err := logfile.Open(cfg.Log)
	if err != nil {
		return Published{}, err
	}
	defer log.Close()
	p := &publisher{PublishConfig: cfg}
	logErr := p.send(ctx, log)
	if p.err != nil {
		return p.done, p.err
	}
	if err := cfg.Producer.Flush(ctx); err != nil {
		return p.done, orCause(ctx, err)
	}
	p.progress()
	if logErr != io.EOF {
		return p.done, logErr
	}
	p.done.LogHash = log.End().LogHash
	return p.done, nil
}

// orCause is the cause of ctx's end when it has ended, otherwise err.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

type publisher struct {
	PublishConfig
	done Published
	err  error // of the producer or the context

	// first is the time of the first arrival, sent at started; both move on by what the log stood still.
	first   record.EventTime
	started time.Time

	number  []byte
	faults  []byte
	headers [3]record.Header
}

// send sends arrivals until the log ends, with or without an error, which it returns, or p.err is set.
func (p *publisher) send(ctx context.Context, log *logfile.Reader) error {
	var a logfile.Arrival
	for {
		if p.done.Arrivals%checkEvery == 0 && ctx.Err() != nil {
			p.err = context.Cause(ctx)
			return nil
		}
		if err := log.Next(&a); err != nil {
			return err
		}
		err := p.pace(ctx, &a)
		if err == nil {
			err = p.Producer.Produce(ctx, p.record(&a))
		}
		if err != nil {
			p.err = orCause(ctx, err)
			return nil
		}
		if p.done.Arrivals++; p.done.Arrivals%progressEvery == 0 {
			p.progress()
		}
	}
}

func (p *publisher) progress() {
	if p.Progress != nil {
		p.Progress(p.done.Arrivals)
	}
}

// pace waits until an arrival is due.
func (p *publisher) pace(ctx context.Context, a *logfile.Arrival) error {
	if p.Speed.factor == 0 {
		return nil
	}
	if p.done.Arrivals == 0 {
		p.first, p.started = a.Time, p.Now()
	}
	due := p.started.Add(p.distance(a.Time))
	if d := due.Sub(p.Now()); d > ahead {
		if err := p.stand(ctx, d); err != nil {
			return err
		}
	}
	if still := a.Pause + a.Failure; still > 0 {
		p.started = p.started.Add(still)
		return p.stand(ctx, still)
	}
	return nil
}

// distance is how long after the first arrival one is due.
func (p *publisher) distance(t record.EventTime) time.Duration {
	d := float64(t-p.first) / p.Speed.factor
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(d)
}

// stand flushes and waits.
func (p *publisher) stand(ctx context.Context, d time.Duration) error {
	if err := p.Producer.Flush(ctx); err != nil {
		return err
	}
	p.progress()
	return p.Wait(ctx, d)
}

// record makes the record of an arrival. It belongs to the publisher.
func (p *publisher) record(a *logfile.Arrival) record.Record {
	p.number = strconv.AppendInt(p.number[:0], a.N, 10)
	p.headers[0] = record.Header{Key: record.HeaderEventID, Value: a.EventID}
	p.headers[1] = record.Header{Key: HeaderArrival, Value: p.number}
	n := 2
	if a.Faults != 0 {
		p.faults = appendKinds(p.faults[:0], a.Faults)
		p.headers[2] = record.Header{Key: HeaderFaults, Value: p.faults}
		n = 3
	}
	return record.Record{Arrival: a.Time, Key: a.Key, Value: a.Value, Headers: p.headers[:n]}
}

func appendKinds(dst []byte, set logfile.KindSet) []byte {
	for k := logfile.Burst; k <= logfile.SourceFailure; k++ {
		if !set.Has(k) {
			continue
		}
		if len(dst) > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, k.String()...)
	}
	return dst
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
