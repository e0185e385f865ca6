package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/atomicfile"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/replay"
	sinkkafka "github.com/weirstream/weir/sinks/kafka"
	"github.com/weirstream/weir/sources/snapshot"
)

func (a *app) replayCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "replay",
		Short:   "Arrival logs: reproducible input with injected faults",
		Example: "  weir replay build --snapshot data.jsonl --faults faults.json --out arrivals.log",
		Args:    cobra.NoArgs,
		RunE:    a.needsSubcommand,
	}
	cmd.AddCommand(a.replayBuildCommand(), a.replayFaultsCommand(), a.replayGenerateCommand(), a.replayPublishCommand())
	return cmd
}

// fieldFlags name the fields of a snapshot, by a flow or one by one.
type fieldFlags struct{ flow, id, key, time string }

func (f *fieldFlags) add(cmd *cobra.Command) {
	d := snapshot.DefaultFields()
	cmd.Flags().StringVar(&f.flow, "flow", "", "take the names of the fields from this flow")
	cmd.Flags().StringVar(&f.id, "id-field", d.ID, "field of the event id")
	cmd.Flags().StringVar(&f.key, "key-field", d.Key, "field of the key")
	cmd.Flags().StringVar(&f.time, "time-field", d.Time, "field of the event time, RFC 3339")
}

func (a *app) fields(f fieldFlags) (snapshot.Fields, error) {
	if f.flow != "" {
		plan, err := a.loadFlow(f.flow)
		if err != nil {
			return snapshot.Fields{}, err
		}
		return snapshot.FieldsOf(plan), nil
	}
	fields := snapshot.DefaultFields()
	fields.ID, fields.Key, fields.Time = f.id, f.key, f.time
	return fields, nil
}

func (a *app) replayBuildCommand() *cobra.Command {
	var snap, faults, out string
	var seed uint64
	var names fieldFlags
	cmd := &cobra.Command{
		Use:     "build",
		Short:   "Build an arrival log from a snapshot and a fault schedule",
		Example: "  weir replay build --snapshot data.jsonl --faults faults.json --seed 7 --out arrivals.log",
		Args:    cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if snap == "" || out == "" {
			return usagef("--snapshot and --out are needed: the events to take and the log to write")
		}
		cfg := replay.BuildConfig{Snapshot: snap, Seed: seed, Out: out}
		err := distinct([]named{{"--out", out}}, []named{{"--snapshot", snap}, {"--faults", faults}, {"--flow", names.flow}})
		if err != nil {
			return err
		}
		if cfg.Fields, err = a.fields(names); err != nil {
			return err
		}
		if faults != "" {
			if cfg.Schedule, err = loadSchedule(faults); err != nil {
				return err
			}
			if !cmd.Flags().Changed("seed") {
				cfg.Seed = cfg.Schedule.Seed
			}
		}
		built, err := replay.Build(cmd.Context(), cfg)
		if err != nil {
			return err
		}
		if a.json {
			return a.document(map[string]any{"log": out, "arrivals": built.Arrivals, "faults_applied": built.FaultsApplied, "log_hash": built.LogHash, "seed": cfg.Seed})
		}
		a.printf("%s: %s, %s applied, %s\n", out, count(built.Arrivals, "arrival"), count(built.FaultsApplied, "fault"), built.LogHash)
		return nil
	}
	f := cmd.Flags()
	f.StringVar(&snap, "snapshot", "", "events: JSON Lines or CSV (required)")
	f.StringVar(&faults, "faults", "", "fault schedule; none by default")
	f.Uint64Var(&seed, "seed", 0, "seed that the log records; the schedule's by default")
	f.StringVar(&out, "out", "", "arrival log to write (required)")
	names.add(cmd)
	return cmd
}

func (a *app) replayFaultsCommand() *cobra.Command {
	var snap, out string
	var seed uint64
	var rates replay.Rates
	var names fieldFlags
	cmd := &cobra.Command{
		Use:     "faults",
		Short:   "Make a random fault schedule for a snapshot",
		Example: "  weir replay faults --snapshot data.jsonl --seed 3 --delay 0.05 --gap 0.01 --out faults.json",
		Args:    cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if snap == "" || out == "" {
			return usagef("--snapshot and --out are needed: the events to take and the schedule to write")
		}
		if err := distinct([]named{{"--out", out}}, []named{{"--snapshot", snap}, {"--flow", names.flow}}); err != nil {
			return err
		}
		fields, err := a.fields(names)
		if err != nil {
			return err
		}
		schedule, err := replay.RandomSchedule(cmd.Context(), snap, fields, seed, rates)
		if err != nil {
			return err
		}
		text, err := schedule.Encode()
		if err != nil {
			return err
		}
		if err := atomicfile.Write(out, text, 0o644); err != nil {
			return err
		}
		if a.json {
			return a.document(map[string]any{"faults": len(schedule.Faults), "schedule": out, "seed": seed})
		}
		a.printf("%s: %s\n", out, count(len(schedule.Faults), "fault"))
		return nil
	}
	f := cmd.Flags()
	f.StringVar(&snap, "snapshot", "", "events: JSON Lines or CSV (required)")
	f.StringVar(&out, "out", "", "fault schedule to write (required)")
	f.Uint64Var(&seed, "seed", 0, "seed of the choice")
	for _, r := range []struct {
		name string
		to   *float64
		def  float64
		what string
	}{
		{"duplicate", &rates.Duplicate, 0.02, "delivered twice"},
		{"delay", &rates.Delay, 0.05, "delayed"},
		{"gap", &rates.Gap, 0.01, "missing"},
		{"revision", &rates.Revision, 0.01, "revised later"},
		{"pause", &rates.Pause, 0, "preceded by a pause"},
		{"burst", &rates.Burst, 0.01, "delivered several times"},
		{"source-failure", &rates.SourceFailure, 0, "preceded by an outage of the source"},
	} {
		f.Float64Var(r.to, r.name, r.def, "share of the events that are "+r.what+", 0 to 1")
	}
	f.DurationVar(&rates.MinDelay, "min-delay", 100*time.Millisecond, "shortest delay, in event time")
	f.DurationVar(&rates.MaxDelay, "max-delay", 2*time.Minute, "longest delay, in event time")
	names.add(cmd)
	return cmd
}

func (a *app) replayGenerateCommand() *cobra.Command {
	var cfg replay.GenerateConfig
	var start string
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Generate a snapshot of any size, and a fault schedule that fits it",
		Long: "Writes events of several instruments in (event time, event id) order: prices that walk on a grid, volumes, ids and times, the same for the\n" +
			"same seed. With --faults it writes the schedule that delays (--disorder), loses (--gaps), revises (--revisions) and doubles (--duplicates) shares of them.",
		Example: "  weir replay generate --events 5000000 --instruments 50 --seed 1 --snapshot big.jsonl --faults big.faults.json",
		Args:    cobra.NoArgs,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cfg.Snapshot == "" {
			return usagef("--snapshot is needed: the file to write")
		}
		if cfg.Rate <= 0 {
			return usagef("--rate must be above 0, not %v", cfg.Rate)
		}
		if err := distinct([]named{{"--snapshot", cfg.Snapshot}, {"--faults", cfg.Faults}}, nil); err != nil {
			return err
		}
		if start != "" {
			t, err := record.ParseTime([]byte(start))
			if err != nil {
				return usagef("--start %q: %v; write it as in 2026-01-05T14:30:00Z", start, err)
			}
			cfg.Start = t
		}
		if err := replay.Generate(cmd.Context(), cfg); err != nil {
			return err
		}
		if a.json {
			return a.document(map[string]any{"events": cfg.Events, "instruments": cfg.Instruments, "seed": cfg.Seed, "snapshot": cfg.Snapshot, "faults": cfg.Faults})
		}
		a.printf("%s: %s of %s\n", cfg.Snapshot, count(cfg.Events, "event"), count(cfg.Instruments, "instrument"))
		if cfg.Faults != "" {
			a.printf("%s: their faults\n", cfg.Faults)
		}
		return nil
	}
	f := cmd.Flags()
	f.Int64Var(&cfg.Events, "events", 10000, "number of events")
	f.IntVar(&cfg.Instruments, "instruments", 10, "number of instruments")
	f.Uint64Var(&cfg.Seed, "seed", 0, "seed")
	f.Float64Var(&cfg.Rate, "rate", 100, "events a second, over all instruments")
	f.StringVar(&start, "start", "", "event time of the first event, RFC 3339 (default 2026-01-05T14:30:00Z)")
	f.StringVar(&cfg.Snapshot, "snapshot", "", "snapshot to write (required)")
	f.StringVar(&cfg.Faults, "faults", "", "fault schedule to write")
	f.Float64Var(&cfg.Disorder, "disorder", 0.05, "share of the events that arrive later, 0 to 1")
	f.DurationVar(&cfg.MaxDelay, "max-delay", 4*time.Second, "by at most so much, in event time")
	f.Float64Var(&cfg.Gaps, "gaps", 0.001, "share of the events that never arrive")
	f.Float64Var(&cfg.Revisions, "revisions", 0.001, "share of the events that are revised later")
	f.Float64Var(&cfg.Duplicates, "duplicates", 0.01, "share of the events that arrive twice")
	return cmd
}

func (a *app) replayPublishCommand() *cobra.Command {
	var log, topic, speed string
	var brokers brokerFlags
	var stream streamFlags
	var partitions int32
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Send an arrival log to a topic and end",
		Long: "Sends every arrival with its key, headers and arrival time, partitioned as Kafka's own clients do by key. --speed max sends as fast as the broker\n" +
			"takes it; realtime keeps the distances of the arrivals and waits where the log has a pause or an outage; a number is so many times as fast.",
		Example: "  weir replay publish --log arrivals.log --brokers 127.0.0.1:9092 --topic ticks --speed 10",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stream.kinesis != "" {
				return a.publishStream(cmd.Context(), log, speed, stream, brokers.brokers+topic, partitions)
			}
			if log == "" || brokers.brokers == "" || topic == "" {
				return usagef("--log, --brokers and --topic are needed, or --log and --kinesis")
			}
			if err := brokers.checkBrokers(); err != nil {
				return err
			}
			if partitions < 0 || partitions > maxPartitions {
				return usagef("--create-partitions must be between 0 and %d, not %d", maxPartitions, partitions)
			}
			s, err := replay.ParseSpeed(speed)
			if err != nil {
				return usagef("--speed: %v", err)
			}
			return a.publish(cmd.Context(), replay.PublishConfig{Log: log, Speed: s}, brokers, topic, partitions)
		},
	}
	f := cmd.Flags()
	f.StringVar(&log, "log", "", "arrival log (required)")
	brokers.addBrokers(cmd, "broker addresses, HOST:PORT, separated by commas (required without --kinesis)")
	stream.addStream(cmd, "send to this Kinesis stream, which exists, instead of a topic")
	f.StringVar(&topic, "topic", "", "topic (required without --kinesis)")
	f.StringVar(&speed, "speed", "max", "max, realtime, or how many times as fast")
	f.Int32Var(&partitions, "create-partitions", 0, "create the topic with this many partitions if it does not exist; 0 never creates one")
	return cmd
}

func (a *app) publish(ctx context.Context, cfg replay.PublishConfig, brokers brokerFlags, topic string, partitions int32) error {
	if missing(cfg.Log) {
		return codes.New(codes.FileMissing, "--log: %w", &os.PathError{Op: "open", Path: cfg.Log, Err: os.ErrNotExist})
	}
	security, err := brokers.security()
	if err != nil {
		return err
	}
	producer, err := sinkkafka.New(sinkkafka.Config{Brokers: addresses(brokers.brokers), Topic: topic, Security: security, Logger: a.log})
	if err != nil {
		return err
	}
	defer producer.Close()
	if partitions > 0 {
		if err := producer.EnsureTopic(ctx, partitions); err != nil {
			return err
		}
	}
	cfg.Producer = producer
	return a.published(ctx, cfg, topic)
}

// published sends the log and says so.
func (a *app) published(ctx context.Context, cfg replay.PublishConfig, topic string) error {
	done, err := replay.Publish(ctx, cfg)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			a.notice("weir: stopped after %s\n", count(done.Arrivals, "arrival"))
		}
		return err
	}
	if a.json {
		return a.document(map[string]any{"log": cfg.Log, "topic": topic, "arrivals": done.Arrivals, "log_hash": done.LogHash})
	}
	a.printf("%s sent to %s\n", count(done.Arrivals, "arrival"), topic)
	return nil
}
