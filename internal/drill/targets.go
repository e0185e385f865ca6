package drill

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sinks"
)

// Target is a sink that every run of the drill publishes to.
type Target struct {
	// Name is the kind of the sink, such as "jsonl".
	Name string
	// Args and Env say it to a daemon.
	Args, Env []string
	// Once says that no row may be there twice, by the sink's guarantee.
	Once bool
	// Filled says that a target which comes to a run that has rows is given those too, from the journal. A topic begins with the rows that follow.
	Filled bool
	// Read gives what a reader of the target sees of a run, each row as sinks.JSON writes it, in any order. The line is valid during the call.
	Read func(ctx context.Context, run string, fn func(line []byte) error) error
}

// Place is where the drill keeps the targets that it makes.
type Place struct {
	// ID of the drill, for names; Dir is a folder; Brokers are addresses, separated by commas.
	ID, Dir, Brokers string
	// Outputs are the columns of the flow.
	Outputs []string
}

// layTargets makes the targets.
func (d *drill) layTargets(ctx context.Context) (err error) {
	if d.Targets == nil {
		return nil
	}
	d.targets, err = d.Targets(ctx, Place{ID: d.id, Dir: d.Dir, Brokers: d.brokers, Outputs: sinks.OutputsOf(d.plan)})
	return err
}

// address names a row of a run.
type address struct {
	partition int32
	row       int64
}

// published checks every target of the part's run, which is over, against its journal: every row is there with its bits, and as often as the
// guarantee allows. owners is how many processes have owned the run: each may leave one open epoch behind, and publish an epoch again as often as it says so.
// A row is there no more often than that.
func (p *part) published(ctx context.Context, owners int) error {
	if len(p.targets) == 0 {
		return nil
	}
	want, err := p.journalRows(ctx)
	if err != nil {
		return err
	}
	for _, t := range p.targets {
		since := p.inherited
		if t.Filled {
			since = nil
		}
		times, foreign, err := readTarget(ctx, t, p.run, want)
		if err != nil {
			return fmt.Errorf("what %s holds cannot be read: %w", t.Name, err)
		}
		due, lost, copies, most := 0, 0, 0, 0
		for at := range want {
			n := times[at]
			if at.row >= since[at.partition] {
				due++
				if n == 0 {
					lost++
				}
			}
			copies, most = copies+max(n-1, 0), max(most, n)
		}
		p.promise(lost == 0 && due > 0, "every row of the journal is in "+t.Name, "%d of %d", due-lost, due)
		p.promise(len(foreign) == 0, "nothing else is in "+t.Name, "%s", or(firstOf(foreign), "nothing"))
		if t.Once {
			p.promise(copies == 0, "no row is twice in "+t.Name, "%d copies", copies)
		} else {
			again := p.fleet.repeats(p.name + "-")
			p.promise(most <= owners+again, "no row is in "+t.Name+" more often than there were owners", "%d copies, one row %d times, %d owners, who began again %d times", copies, most, owners, again)
		}
		p.mu.Lock()
		p.report.Figures["copies_in_"+t.Name] += float64(copies)
		p.mu.Unlock()
	}
	return nil
}

func firstOf(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return fmt.Sprintf("%d, the first one %s", len(lines), lines[0])
}

// readTarget counts the rows of a run in a target, and gives those that are not the journal's.
func readTarget(ctx context.Context, t Target, run string, want map[address][]byte) (times map[address]int, foreign []string, err error) {
	times = map[address]int{}
	err = t.Read(ctx, run, func(line []byte) error {
		var at struct {
			Partition int32
			Row       int64
		}
		if err := json.Unmarshal(line, &at); err != nil {
			return err
		}
		a := address{at.Partition, at.Row}
		if !bytes.Equal(want[a], line) {
			foreign = append(foreign, string(line))
			return nil
		}
		times[a]++
		return nil
	})
	return times, foreign, err
}

// journalRows are the rows that the journal of the part's run holds, by address.
func (p *part) journalRows(ctx context.Context) (map[address][]byte, error) {
	s, _, err := p.state(ctx)
	if err != nil {
		return nil, err
	}
	outputs := sinks.OutputsOf(p.plan)
	text := sinks.NewJSON(sinks.Target{RunID: p.run, Outputs: outputs})
	out := map[address][]byte{}
	for of := range s.Cuts {
		from := int64(0)
		err := p.eyes.Outputs(ctx, p.run, of, func(rows partitions.Rows) error {
			r := sinks.Rows{Partition: of, From: from, Rows: rows}
			from = r.End()
			return r.Each(len(outputs), nil, func(number int64, row *partitions.Row) error {
				out[address{of, number}] = text.Append(nil, of, number, row)
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// targetArgs say to a daemon where it publishes.
func (d *drill) targetArgs() (args, env []string) {
	for _, t := range d.targets {
		args, env = append(args, t.Args...), append(env, t.Env...)
	}
	return args, slices.Compact(env)
}
