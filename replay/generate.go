package replay

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/atomicfile"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
)

// GenerateConfig says what to generate.
type GenerateConfig struct {
	// Events to write, over so many instruments, which are the keys "1", "2"…
	Events      int64
	Instruments int
	Seed        uint64
	// Snapshot and Faults are the paths of the events and of the fault schedule; Faults "" writes none.
	Snapshot, Faults string
	// Rate is the mean number of events a second, over all instruments; 0 means 1. At most MaxRate.
	Rate float64
	// Start is the event time of the first event; 0 means 2026-01-05T14:30:00Z.
	Start record.EventTime
	// Disorder, Gaps, Revisions and Duplicates are the shares, from 0 to 1, of the events that the schedule delays, loses, revises and
	// doubles. Delays are between a millisecond and MaxDelay, where 0 means 2 minutes. Without Faults they decide nothing.
	Disorder, Gaps, Revisions, Duplicates float64
	MaxDelay                              time.Duration
}

// Bounds of what can be generated.
const (
	MaxRate        = 1e6
	MaxInstruments = 1_000_000
)

const (
	// defaultStart is 2026-01-05T14:30:00Z.
	defaultStart = record.EventTime(1767623400) * record.EventTime(time.Second)
	writeAt      = 256 << 10
)

// Generate writes a snapshot in JSON Lines: canonical values in the order of (event time, event id),
//
//	{"close":100.25,"event_id":"g.3.0000012","event_time":"2026-01-05T14:30:07.25Z","instrument":"3","volume":17}
//
// and a schedule of the faults that are asked for. Each event belongs to an instrument by chance and follows the one before it by
// up to twice the mean distance, in whole milliseconds; the price of an instrument walks on a grid of 0.25. The same configuration
// gives the same bytes, and the events do not depend on the faults. Memory does not grow with the number of events. Both files are
// whole or not there. Errors carry codes.ConfigInvalid (naming everything that is out of range) or codes.OutputUnwritable.
func Generate(ctx context.Context, cfg GenerateConfig) error {
	g, err := newGenerator(cfg)
	if err != nil {
		return err
	}
	if g.events, err = createOutput(cfg.Snapshot); err != nil {
		return err
	}
	defer g.events.file.Discard()
	if cfg.Faults != "" {
		if g.faults, err = createOutput(cfg.Faults); err != nil {
			return err
		}
		defer g.faults.file.Discard()
		g.faults.buf = append(g.faults.buf, scheduleStart...)
	}
	if err := g.run(ctx); err != nil {
		return err
	}
	return g.commit()
}

// generator makes events, one millisecond after the other.
type generator struct {
	cfg   GenerateConfig
	rng   *rand.Rand
	draw  *faultDraw
	width int // of the number in an id

	// prices are in quarters; counts number the events of an instrument.
	prices, counts []int64
	// same are the events of one millisecond, whose order is not known before all of them are.
	same  []generated
	ids   []byte
	drawn []Fault
	first bool // no fault was written yet

	events, faults *output
}

// generated is an event that was drawn.
type generated struct {
	from, to   int // of its id in generator.ids
	instrument int
	price      int64
	volume     int64
}

func newGenerator(cfg GenerateConfig) (*generator, error) {
	cfg.Rate, cfg.Start = cmp.Or(cfg.Rate, 1), cmp.Or(cfg.Start, defaultStart)
	if problems := cfg.problems(); problems != nil {
		return nil, codes.New(codes.ConfigInvalid, "%s", strings.Join(problems, "; "))
	}
	draw, err := newFaultDraw(cfg.Seed, Rates{
		Duplicate: cfg.Duplicates, Delay: cfg.Disorder, Gap: cfg.Gaps, Revision: cfg.Revisions,
		MinDelay: time.Millisecond, MaxDelay: cfg.MaxDelay,
	})
	if err != nil {
		return nil, err
	}
	g := &generator{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, priceStream)), draw: draw, first: true, width: len(strconv.FormatInt(cfg.Events, 10)),
		prices: make([]int64, cfg.Instruments), counts: make([]int64, cfg.Instruments),
	}
	for i := range g.prices {
		g.prices[i] = 4 * (50 + g.rng.Int64N(150))
	}
	return g, nil
}

// problems says what is out of range.
func (cfg *GenerateConfig) problems() []string {
	var list []string
	problem := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if cfg.Events < 0 {
		problem("the number of events must not be negative: %d", cfg.Events)
	}
	if cfg.Instruments < 1 || cfg.Instruments > MaxInstruments {
		problem("the number of instruments must be between 1 and %d, not %d", MaxInstruments, cfg.Instruments)
	}
	if !(cfg.Rate > 0 && cfg.Rate <= MaxRate) {
		problem("the rate must be above 0 and at most %d events a second, not %v", int(MaxRate), cfg.Rate)
	} else if seconds := float64(cfg.Events) * 2 / cfg.Rate; seconds > float64(record.MaxTime-record.EventTime(time.Second))/1e9-float64(cfg.Start)/1e9 {
		problem("%d events at %v a second go beyond the end of time, 2262-04-11", cfg.Events, cfg.Rate)
	}
	if cfg.Snapshot == "" || cfg.Faults != "" && filepath.Clean(cfg.Snapshot) == filepath.Clean(cfg.Faults) {
		problem("the snapshot needs a path, and one that differs from that of the faults: %q", cfg.Snapshot)
	}
	for _, share := range []struct {
		name  string
		value float64
	}{
		{"disorder", cfg.Disorder}, {"the share of gaps", cfg.Gaps}, {"the share of revisions", cfg.Revisions}, {"the share of duplicates", cfg.Duplicates},
	} {
		list = checkShare(list, share.name, share.value)
	}
	if cfg.MaxDelay != 0 && cfg.MaxDelay < time.Millisecond {
		problem("the longest delay must be at least a millisecond: %v", cfg.MaxDelay)
	}
	return list
}

func (g *generator) run(ctx context.Context) error {
	const milli = record.EventTime(time.Millisecond)
	start, _ := ceilMillis(g.cfg.Start)
	mean := 1000 / g.cfg.Rate // milliseconds
	at, elapsed := start, 0.0
	for i := range g.cfg.Events {
		if i%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if i > 0 {
			elapsed += float64(2 * mean * g.rng.Float64())
		}
		if t := start + record.EventTime(elapsed)*milli; t != at {
			if err := g.write(at); err != nil {
				return err
			}
			at = t
		}
		g.next()
	}
	return g.write(at)
}

// next draws an event of the present millisecond.
func (g *generator) next() {
	i := g.rng.IntN(len(g.prices))
	if step := g.rng.Int64N(5) - 2; g.prices[i]+step > 0 {
		g.prices[i] += step
	}
	e := generated{from: len(g.ids), instrument: i, price: g.prices[i], volume: 1 + g.rng.Int64N(1000)}
	g.ids = append(strconv.AppendInt(append(g.ids, "g."...), int64(i+1), 10), '.')
	number := len(g.ids)
	g.ids = strconv.AppendInt(g.ids, g.counts[i], 10)
	for pad := g.width - (len(g.ids) - number); pad > 0; pad-- {
		g.ids = slices.Insert(g.ids, number, '0')
	}
	g.counts[i]++
	e.to = len(g.ids)
	g.same = append(g.same, e)
}

// write writes the events of one millisecond, in the order of their ids, with their faults.
func (g *generator) write(at record.EventTime) error {
	if len(g.same) > 1 {
		slices.SortFunc(g.same, func(a, b generated) int { return bytes.Compare(g.ids[a.from:a.to], g.ids[b.from:b.to]) })
	}
	for i := range g.same {
		e := &g.same[i]
		id := g.ids[e.from:e.to]
		g.events.buf = appendEvent(g.events.buf, e, id, at)
		if err := g.events.flush(writeAt); err != nil {
			return err
		}
		if g.faults == nil {
			continue
		}
		if err := g.writeFaults(e, id); err != nil {
			return err
		}
	}
	g.same, g.ids = g.same[:0], g.ids[:0]
	return nil
}

func appendEvent(dst []byte, e *generated, id []byte, at record.EventTime) []byte {
	dst = appendPrice(append(dst, `{"close":`...), e.price)
	dst = append(append(dst, `,"event_id":"`...), id...)
	dst = record.AppendTime(append(dst, `","event_time":"`...), at)
	dst = strconv.AppendInt(append(dst, `","instrument":"`...), int64(e.instrument+1), 10)
	dst = strconv.AppendInt(append(dst, `","volume":`...), e.volume, 10)
	return append(dst, "}\n"...)
}

// appendPrice writes quarters as a canonical float.
func appendPrice(dst []byte, quarters int64) []byte {
	dst = strconv.AppendInt(dst, quarters/4, 10)
	return append(dst, [...]string{".0", ".25", ".5", ".75"}[quarters%4]...)
}

func (g *generator) writeFaults(e *generated, id []byte) error {
	g.drawn = g.draw.faults(g.drawn[:0])
	for i := range g.drawn {
		f := &g.drawn[i]
		if f.EventID = string(id); f.Kind == logfile.Revision {
			f.Values = map[string]any{"close": float64(e.price+1+g.draw.rng.Int64N(mostSteps)) / 4}
		}
		if !g.first {
			g.faults.buf = append(g.faults.buf, ',')
		}
		g.first = false
		var err error
		if g.faults.buf, err = appendFault(append(g.faults.buf, '\n'), f); err != nil {
			return codes.New(codes.Internal, "a generated fault: %w", err)
		}
	}
	return g.faults.flush(writeAt)
}

// commit ends both files and puts them in their places.
func (g *generator) commit() error {
	if g.faults != nil {
		g.faults.buf = append(appendScheduleEnd(append(g.faults.buf, '\n'), g.cfg.Seed), '\n')
		if err := g.faults.flush(0); err != nil {
			return err
		}
	}
	if err := g.events.flush(0); err != nil {
		return err
	}
	if err := g.events.file.Commit(); err != nil || g.faults == nil {
		return err
	}
	return g.faults.file.Commit()
}

// output is a file in the making and what was not written to it yet.
type output struct {
	file *atomicfile.File
	buf  []byte
}

func createOutput(path string) (*output, error) {
	f, err := atomicfile.Create(path, 0o644)
	if err != nil {
		return nil, err
	}
	return &output{file: f, buf: make([]byte, 0, writeAt+writeAt/4)}, nil
}

// flush writes the buffer once it holds so many bytes.
func (o *output) flush(at int) error {
	if len(o.buf) < max(at, 1) {
		return nil
	}
	_, err := o.file.Write(o.buf)
	o.buf = o.buf[:0]
	return err
}
