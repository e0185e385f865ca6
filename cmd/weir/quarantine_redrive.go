package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/consumer"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
	sinkkafka "github.com/weirstream/weir/sinks/kafka"
)

// Headers of a re-driven record: where it was set aside, and why.
const (
	headerRedrivenRun       = "weir-redriven-run"
	headerRedrivenPartition = "weir-redriven-partition"
	headerRedrivenPosition  = "weir-redriven-position"
	headerRedrivenReason    = "weir-redriven-reason"
)

// redriveBatch is how many records are written before they are recorded: what a kill in between writes twice.
const redriveBatch = 100

type redriveOptions struct {
	brokerFlags
	asideFilter
	topic, why, who string
	apply, again    bool
}

func (a *app) quarantineRedriveCommand() *cobra.Command {
	var o redriveOptions
	cmd := &cobra.Command{
		Use: "redrive RUN", Short: "Publish records that were set aside to a topic, with their original bytes",
		Long: "Shows which records of the quarantine would be published; with --apply they are: key, value and headers as they were, and headers that say where\n" +
			"they were set aside and why (weir-redriven-run, -partition, -position, -reason). The count of attempts begins anew. Each is recorded in the store once\n" +
			"the brokers have confirmed it, with who asked and why, and is not published to the same topic again without --again. A kill between the two\n" +
			"publishes up to 100 records twice. The quarantine itself is a record of what happened, and stays as it is.",
		Example: "  weir quarantine redrive ticks-1 --store sqlite:weir.db --brokers 127.0.0.1:9092 --topic ticks --kinds LATE\n" +
			"  weir quarantine redrive ticks-1 --store sqlite:weir.db --brokers 127.0.0.1:9092 --topic ticks --partition 0 --position 1200 --reason \"the decoder is mended\" --apply",
		Args: cobra.ExactArgs(1),
	}
	o.addBrokers(cmd, "broker addresses, HOST:PORT, separated by commas (required)")
	o.asideFilter.add(cmd)
	f := cmd.Flags()
	f.StringVar(&o.topic, "topic", "", "topic to publish to; it has to exist (required)")
	f.StringVar(&o.position, "position", "", "only the record at this position")
	f.StringVar(&o.why, "reason", "", "why, in a sentence: it is kept (required with --apply)")
	f.StringVar(&o.who, "who", "", "who asks (default: the user at this machine)")
	f.BoolVar(&o.apply, "apply", false, "publish; without it, what would be published is shown")
	f.BoolVar(&o.again, "again", false, "also what was published to this topic before")
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		if err := o.check(); err != nil {
			return err
		}
		return a.redrive(ctx, store, args[0], o)
	})
}

func (o *redriveOptions) check() error {
	if o.brokers == "" || o.topic == "" {
		return usagef("--brokers and --topic are needed: where to publish to")
	}
	if err := o.checkBrokers(); err != nil {
		return err
	}
	return o.asideFilter.check(o.apply, o.why, &o.who)
}

// original is the record as it was read; the second answer is false when only a part of it was kept (a journal of an earlier version had no headers).
func (q *setAside) original() (record.Record, bool) {
	if q.Reason == consumer.ReasonDeadLetter {
		if r, ok := consumer.OpenEnvelope(record.Record{Position: q.Position, Value: q.Value}); ok {
			return r, true
		}
	}
	r := q.Record()
	if q.Headers != nil {
		return r, true
	}
	if q.EventID != "" {
		r.Headers = []record.Header{{Key: record.HeaderEventID, Value: []byte(q.EventID)}}
	}
	return r, false
}

// redriven is the record to publish.
func (q *setAside) redriven(run string) record.Record {
	r, _ := q.original()
	out := record.Record{Arrival: record.NoTime, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		if h.Key != partitions.HeaderRetryCount && !strings.HasPrefix(h.Key, "weir-dead-") && !strings.HasPrefix(h.Key, "weir-redriven-") {
			out.Headers = append(out.Headers, h)
		}
	}
	for _, h := range [...][2]string{{headerRedrivenRun, run}, {headerRedrivenPartition, strconv.Itoa(int(q.Partition))}, {headerRedrivenPosition, q.Position.String()}, {headerRedrivenReason, q.Reason}} {
		out.Headers = append(out.Headers, record.Header{Key: h[0], Value: []byte(h[1])})
	}
	return out
}

// note is the record of a re-drive. It says nothing of when, which the store does, so that a repeated note of one is the same.
func (q *setAside) note(run string, o redriveOptions) (control.Publication, error) {
	doc := quarantineDocument(q.Quarantined)
	value, err := record.AppendJSON(nil, map[string]any{"format": "weir-redriven/1", "run": run, "partition": q.Partition, "position": q.Position.String(), "n": q.n,
		"kind": q.Reason, "event_id": doc["event_id"], "value_hash": record.Hash(q.Value), "topic": o.topic, "who": o.who, "why": o.why})
	if err != nil {
		return control.Publication{}, codes.New(codes.RequestInvalid, "--reason, --who and --topic have to be text: %w", err)
	}
	// Who re-drives again, for another reason, leaves another note.
	return control.Publication{Key: q.key(run) + shortHash(o.topic+"\x00"+o.who+"\x00"+o.why), Value: value, RunID: run}, nil
}

func (a *app) redrive(ctx context.Context, store control.ControlStore, run string, o redriveOptions) error {
	state, err := runOf(ctx, store, run, o.partition)
	if err != nil {
		return err
	}
	run = state.Header.RunID
	if err := o.standing(ctx, store, []control.RunState{state}, run); err != nil {
		return err
	}
	all, err := readAside(ctx, store, run, o.asideFilter)
	if err != nil {
		return err
	}
	var due []setAside
	before := 0
	for _, q := range all {
		if !o.again && slices.Contains(q.driven, o.topic) {
			before++
			continue
		}
		due = append(due, q)
	}
	if o.apply && len(due) > 0 {
		err := checkpoint.Hold(ctx, store, "redrive/"+shortHash(run), control.NewOwner(), 0, func(ctx context.Context, l control.Lease) error {
			return a.redriveUnder(ctx, store, l, run, due, o)
		})
		if err != nil {
			return err
		}
	}
	return a.showRedrive(run, o, due, before)
}

// redriveUnder publishes records and notes them, a batch after the other. The lease keeps two commands from doing the same at once.
func (a *app) redriveUnder(ctx context.Context, store control.ControlStore, l control.Lease, run string, due []setAside, o redriveOptions) error {
	security, err := o.security()
	if err != nil {
		return err
	}
	p, err := sinkkafka.New(sinkkafka.Config{Brokers: addresses(o.brokers), Topic: o.topic, Security: security, Logger: a.log})
	if err != nil {
		return err
	}
	defer p.Close()
	for at := 0; at < len(due); at += redriveBatch {
		batch := due[at:min(at+redriveBatch, len(due))]
		notes := make([]control.Publication, len(batch))
		for i := range batch {
			if notes[i], err = batch[i].note(run, o); err != nil {
				return err
			}
		}
		if err := publishAll(ctx, p, run, batch); err != nil {
			a.notice("weir: %d of %d records were published and recorded before that; what was being published may stand without a record\n", at, len(due))
			return err
		}
		if err := store.Fenced(ctx, l, control.Publish{Publications: notes}); err != nil {
			a.notice("weir: the last %d records were published, and that was not recorded: they will be published again\n", len(batch))
			return err
		}
	}
	return nil
}

// publishAll returns nil when the brokers have confirmed every record.
func publishAll(ctx context.Context, p sinks.Producer, run string, batch []setAside) error {
	for i := range batch {
		if err := p.Produce(ctx, batch[i].redriven(run)); err != nil {
			return err
		}
	}
	return p.Flush(ctx)
}

func (a *app) showRedrive(run string, o redriveOptions, due []setAside, before int) error {
	if a.json {
		rows := make([]any, len(due))
		for i := range due {
			rows[i] = map[string]any{"partition": due[i].Partition, "position": due[i].Position.String(), "kind": due[i].Reason, "event_id": textOrNull(due[i].EventID)}
		}
		return a.document(map[string]any{"run": run, "topic": o.topic, "applied": o.apply, "records": rows, "driven_before": before})
	}
	a.table("partition\tposition\treason\tevent id\tkey\tbytes", len(due), func(w io.Writer, i int) {
		q := due[i]
		r, _ := q.original()
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%d\n", q.Partition, q.Position, cell(q.Reason), brief(q.EventID), brief(string(r.Key)), len(r.Value))
	})
	if before > 0 {
		a.printf("%d were published to %s before and are left out; --again publishes them too\n", before, shown(o.topic))
	}
	switch {
	case len(due) == 0:
	case o.apply:
		a.printf("%d published to %s and recorded\n", len(due), shown(o.topic))
	default:
		a.printf("nothing was published; --apply publishes these %d to %s\n", len(due), shown(o.topic))
	}
	return nil
}
