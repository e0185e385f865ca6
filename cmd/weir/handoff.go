package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/handoff"
	"github.com/weirstream/weir/internal/atomicfile"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/kafka"
)

func (a *app) handoffCommand() *cobra.Command {
	return a.group("handoff", "Say where a run or a topic stands, and check it", "  weir handoff export ticks-1 --store sqlite:weir.db --out ticks-1.handoff.json",
		a.handoffMarkCommand(), a.handoffExportCommand(), a.handoffVerifyCommand())
}

// topicFlags name a live topic.
type topicFlags struct {
	brokerFlags
	topic string
}

func (f *topicFlags) add(cmd *cobra.Command, brokers, topic string) {
	f.addBrokers(cmd, brokers)
	cmd.Flags().StringVar(&f.topic, "topic", "", topic)
}

func (f *topicFlags) source(a *app) (*kafka.Source, error) {
	security, err := f.security()
	if err != nil {
		return nil, err
	}
	return kafka.New(kafka.Config{Brokers: addresses(f.brokers), Topic: f.topic, Security: security, Logger: a.log})
}

// bounds asks the brokers about the topic.
func (f *topicFlags) bounds(ctx context.Context, a *app) (handoff.Topic, error) {
	s, err := f.source(a)
	if err != nil {
		return handoff.Topic{}, err
	}
	return boundsOf(ctx, s)
}

func boundsOf(ctx context.Context, s *kafka.Source) (handoff.Topic, error) {
	info, bounds, err := s.Bounds(ctx)
	t := handoff.Topic{Name: info.Name, ID: info.ID, Bounds: make(map[int32]handoff.Bounds, len(bounds))}
	for p, b := range bounds {
		t.Bounds[p] = handoff.Bounds(b)
	}
	return t, err
}

// endsOf are where the partitions end.
func endsOf(t handoff.Topic) map[int32]record.Position {
	ends := make(map[int32]record.Position, len(t.Bounds))
	for p, b := range t.Bounds {
		ends[p] = b.End
	}
	return ends
}

func (a *app) handoffMarkCommand() *cobra.Command {
	var topic topicFlags
	var out string
	cmd := &cobra.Command{
		Use:   "mark",
		Short: "Note where a topic ends, before its history is dumped",
		Long: "Writes the identity of the topic and the end of each of its partitions. A history that is dumped after that holds everything that\n" +
			"stands before the mark, so `weir batch run --hand-over-to --at` can take it in, and the stream goes on exactly at the mark.",
		Example: "  weir handoff mark --brokers 127.0.0.1:9092 --topic ticks --out ticks.mark.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if topic.brokers == "" || topic.topic == "" {
				return usagef("--brokers and --topic are needed: the topic to mark")
			}
			if err := topic.checkBrokers(); err != nil {
				return err
			}
			t, err := topic.bounds(cmd.Context(), a)
			if err != nil {
				return err
			}
			return a.leaveManifest(handoff.Mark(t.Name, t.ID, endsOf(t)), out)
		},
	}
	topic.add(cmd, "broker addresses, HOST:PORT, separated by commas (required)", "topic to mark (required)")
	cmd.Flags().StringVar(&out, "out", "", "write the manifest here instead of standard output")
	return cmd
}

func (a *app) handoffExportCommand() *cobra.Command {
	var topic topicFlags
	var store, out string
	cmd := &cobra.Command{
		Use:   "export RUN",
		Short: "Write where a run stands in its journal",
		Long: "The manifest names the run, its flow and its log, and says where each partition is read on, under which token the run was written last\n" +
			"and how far event time is closed. The journal stays the only truth: the next owner begins where it says, manifest or not.\n" +
			"A run that has ended (FINISHED) cannot be continued, so there is nothing to hand over. With --brokers the ends of the log are noted too.",
		Example: "  weir handoff export ticks-1 --store sqlite:weir.db --brokers 127.0.0.1:9092 --out ticks-1.handoff.json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := topic.checkBrokers(); err != nil {
				return err
			}
			if err := distinct([]named{{"--out", out}}, storeFiles(store)); err != nil {
				return err
			}
			return a.withStore(cmd.Context(), store, func(s control.ControlStore) error {
				return a.exportRun(cmd.Context(), s, args[0], topic, out)
			})
		},
	}
	topic.add(cmd, "broker addresses, HOST:PORT, separated by commas, to note where the log ends", "topic, unless it is the one that the run names")
	cmd.Flags().StringVar(&store, "store", "", "store of the journal: sqlite:PATH, postgres://…, or a reference env:NAME or file:PATH (required)")
	cmd.Flags().StringVar(&out, "out", "", "write the manifest here instead of standard output")
	return cmd
}

func (a *app) exportRun(ctx context.Context, s control.ControlStore, runID string, topic topicFlags, out string) error {
	j, err := handoff.Look(ctx, s, runID)
	if err != nil {
		return err
	}
	if !j.Known {
		return codes.New(codes.RunUnknown, "the store holds no run %q that `weir run` or a hand-over has begun", runID)
	}
	var ends map[int32]record.Position
	if topic.brokers != "" {
		if topic.topic == "" {
			topic.topic = j.State.Header.Source
		}
		t, err := topic.bounds(ctx, a)
		if err != nil {
			return err
		}
		if h := j.State.Header; t.Name == h.Source && t.ID != h.SourceID {
			return codes.New(codes.TopicRecreated, "run %q reads %q with the identity %q; that name now belongs to %q", runID, h.Source, h.SourceID, t.ID)
		} else if t.Name != h.Source {
			return codes.New(codes.RunMismatch, "run %q reads %q, not %q", runID, h.Source, t.Name)
		}
		ends = endsOf(t)
	}
	m, err := handoff.Of(handoff.KindOwner, j, ends)
	if err != nil {
		return err
	}
	return a.leaveManifest(m, out)
}

// withStore opens a store that has to be there.
func (a *app) withStore(ctx context.Context, store string, fn func(control.ControlStore) error) error {
	if store == "" {
		return usagef("--store is missing: say where the journal is kept, such as --store sqlite:weir.db")
	}
	if files := storeFiles(store); len(files) > 0 && missing(files[0].path) {
		return codes.New(codes.FileMissing, "there is no store at %s; `weir run` makes one", files[0].path)
	}
	s, err := openStore(ctx, store)
	if err != nil {
		return err
	}
	defer s.Close()
	return fn(s)
}

// leaveManifest writes a manifest to a file, or else to standard output.
func (a *app) leaveManifest(m handoff.Manifest, out string) error {
	b, err := m.Encode()
	if err != nil {
		return err
	}
	if out == "" {
		a.printf("%s", b)
		return nil
	}
	if err := atomicfile.Write(out, b, 0o600); err != nil {
		return err
	}
	if a.json {
		a.printf("%s", b)
		return nil
	}
	a.printf("%s\nwritten to %s\n", printable(manifestText(m)), out)
	return nil
}

func manifestText(m handoff.Manifest) string {
	what := fmt.Sprintf("topic %s ends at", m.Source)
	if m.Kind != handoff.KindMark {
		what = fmt.Sprintf("run %s, epoch %d, token %d: reads %s on at", m.RunID, m.Epoch, m.Fence, m.Source)
	}
	const most = 16
	for i, p := range m.Partitions {
		if i == most {
			what += fmt.Sprintf(" and %d more partitions", len(m.Partitions)-most)
			break
		}
		what += fmt.Sprintf(" %d:%s", p.Partition, p.Next)
	}
	return what
}

func (a *app) handoffVerifyCommand() *cobra.Command {
	var topic topicFlags
	var store string
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Hold a manifest against the journal and the live topic",
		Long: "Checks each claim and prints it with what is there. A run that has gone on since the manifest was written is fine; one that has gone\n" +
			"back, or changed its flow or topic, is not. With --brokers the topic has to be the same one and still hold everything from the next\n" +
			"positions on. Exit code 4 when a claim does not hold.",
		Example: "  weir handoff verify ticks-1.handoff.json --store sqlite:weir.db --brokers 127.0.0.1:9092",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.handoffVerify(cmd.Context(), args[0], store, topic)
		},
	}
	topic.add(cmd, "broker addresses, HOST:PORT, separated by commas, to ask about the topic", "topic, unless it is the one that the manifest names")
	cmd.Flags().StringVar(&store, "store", "", "store of the journal: sqlite:PATH, postgres://…, or a reference env:NAME or file:PATH")
	return cmd
}

func readManifest(path string) (handoff.Manifest, error) {
	src, err := readFile("the manifest", path, handoff.MaxSize)
	if err != nil {
		return handoff.Manifest{}, err
	}
	return handoff.Read(path, src)
}

func (a *app) handoffVerify(ctx context.Context, path, store string, topic topicFlags) error {
	if err := topic.checkBrokers(); err != nil {
		return err
	}
	m, err := readManifest(path)
	if err != nil {
		return err
	}
	mark := m.Kind == handoff.KindMark
	switch {
	case mark && store != "":
		return usagef("%s is the mark of a topic, which no store knows: give --brokers instead of --store", path)
	case mark && topic.brokers == "":
		return usagef("--brokers is missing: %s is the mark of a topic", path)
	}
	var checks []handoff.Check
	if !mark {
		err := a.withStore(ctx, store, func(s control.ControlStore) error {
			j, err := handoff.Look(ctx, s, m.RunID)
			checks = handoff.AgainstJournal(m, j)
			return err
		})
		if err != nil {
			return err
		}
	}
	if topic.brokers != "" {
		if topic.topic == "" {
			topic.topic = m.Source
		}
		t, err := topic.bounds(ctx, a)
		if err != nil {
			return err
		}
		checks = append(checks, handoff.AgainstTopic(m, t)...)
	}
	return a.showChecks(m, checks)
}

func (a *app) showChecks(m handoff.Manifest, checks []handoff.Check) error {
	failed := handoff.Failed(checks)
	var err error
	if a.json {
		list := make([]any, len(checks))
		for i, c := range checks {
			list[i] = map[string]any{"name": c.Name, "ok": c.OK, "detail": c.Detail}
		}
		err = a.document(map[string]any{"kind": string(m.Kind), "manifest_hash": m.Hash, "ok": len(failed) == 0, "checks": list})
	} else {
		var b strings.Builder
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for _, c := range checks {
			fmt.Fprintf(w, "%s\t%s\t%s\n", map[bool]string{true: "ok", false: "FAILED"}[c.OK], c.Name, printable(c.Detail))
		}
		w.Flush()
		a.printf("%s%d checks, %d failed\n", b.String(), len(checks), len(failed))
	}
	if err == nil && len(failed) > 0 {
		return outcome(codes.ExitDifference)
	}
	return err
}
