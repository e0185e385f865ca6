package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/actors/group"
	"github.com/weirstream/weir/actors/reshard"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kinesis"
	"github.com/weirstream/weir/status"
)

// The states of a shard, as a run sees it.
const (
	shardUnread   = "UNREAD"   // nothing is committed of it
	shardReading  = "READING"  // the run has begun
	shardFinished = "FINISHED" // closed, and processed to the end
	shardGone     = "GONE"     // the stream holds it no longer, and the run was not done with it
)

func (a *app) shardsCommand() *cobra.Command {
	var o streamFlags
	var live liveFlags
	cmd := &cobra.Command{
		Use: "shards RUN", Short: "Show the shards of a stream and how far a run has come with each",
		Long: "Shows the tree of shards: what each was split from or merged of, its state for the run (UNREAD, READING, FINISHED, GONE), who has it, up to which\n" +
			"record it is committed, how far that is behind the end of the shard, and the oldest record that is not done, with when it arrived.\n" +
			"The stream is asked for one record of each shard that is open for the run, which counts against its limits; --quick leaves that out.\n" +
			"What a process has handed out and not committed, and since when, only the process knows: name it with --url, each one if there are several.",
		Example: "  weir shards ticks-1 --store sqlite:weir.db --kinesis ticks --region eu-west-1\n" +
			"  weir shards ticks-1 --store sqlite:weir.db --kinesis ticks --region eu-west-1 --url http://127.0.0.1:8787", Args: cobra.ExactArgs(1),
	}
	o.addStream(cmd, "the stream that the run reads (required)")
	live.add(cmd)
	quick := cmd.Flags().Bool("quick", false, "do not ask the stream for records")
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		if o.kinesis == "" {
			return usagef("--kinesis is missing: name the stream that the run reads")
		}
		stream, err := o.open(ctx, a.log, nil)
		if err != nil {
			return err
		}
		shown, err := readShards(ctx, store, stream, args[0], !*quick)
		if err != nil {
			return err
		}
		if err := a.askFlights(ctx, &live, args[0], shown); err != nil {
			return err
		}
		return a.showShards(args[0], o.kinesis, shown)
	})
}

// shardShown is one shard as the command shows it.
type shardShown struct {
	kinesis.Shard
	state string
	held  bool
	// depth in the tree of shards: how many generations are shown above it.
	depth int
	// claim is the process that should work on it, owner the one that may write its results; "" is nobody.
	claim, owner string
	token        control.FenceToken
	cut          partitions.Cut
	committed    time.Time
	// next is the oldest record that is not done, and place how far it is behind; asked says that the stream was asked.
	next  kinesis.Place
	asked bool
	// trouble is why the place cannot be told.
	trouble error
	// flight is what its process has handed out and not committed; nil when no process has told.
	flight *status.Undone
}

// readShards reads listing, journal and leases. The journal comes before the listing, so that no child looks ready too early.
func readShards(ctx context.Context, store control.ControlStore, stream *kinesis.Stream, run string, ask bool) ([]shardShown, error) {
	rows, err := reshard.Rows(ctx, store, run)
	if err != nil {
		return nil, err
	}
	begin, err := readStart(ctx, store, run)
	if err != nil {
		return nil, err
	}
	if begin == nil {
		return nil, codes.New(codes.RunUnknown, "the store holds no run %q of a stream", run)
	}
	whole, err := readWhole(ctx, store, run)
	if err != nil {
		return nil, err
	}
	leases, err := store.ListLeases(ctx)
	if err != nil {
		return nil, err
	}
	listed, err := stream.Shards(ctx)
	if err != nil {
		return nil, err
	}
	shown := orderShards(listed, rows)
	progress := reshard.Progress(rows)
	for i := range shown {
		s := &shown[i]
		s.state = map[sources.Progress]string{sources.Unread: shardUnread, sources.Reading: shardReading, sources.Finished: shardFinished}[progress[s.Number]]
		if !s.held && s.state != shardFinished {
			s.state = shardGone
		}
		s.lookup(run, leases)
		if whole != nil {
			s.within(whole)
		} else if err := s.read(ctx, store, rows); err != nil {
			return nil, err
		}
		if ask && s.held && s.state != shardFinished {
			s.asked = true
			if s.next, s.trouble = s.undone(ctx, stream, begin); s.trouble != nil && ctx.Err() != nil {
				return nil, s.trouble
			}
		}
	}
	return shown, nil
}

// read takes where the shard stands from its row, if it has one.
func (s *shardShown) read(ctx context.Context, store control.ControlStore, rows map[int32]control.RunInfo) error {
	row, ok := rows[s.Number]
	if !ok {
		return nil
	}
	s.committed = row.Committed
	return store.Snapshot(ctx, row.Header.RunID, func(v control.JournalView) error {
		s.cut = v.State().Cuts[s.Number]
		return nil
	})
}

// readWhole is the run as one, with all shards in it; nil when it is not one.
func readWhole(ctx context.Context, store control.ControlStore, run string) (*control.RunState, error) {
	var whole control.RunState
	err := store.Snapshot(ctx, run, func(v control.JournalView) error {
		whole = v.State()
		return nil
	})
	if codes.Has(err, codes.RunUnknown) {
		return nil, nil
	}
	return &whole, err
}

// within takes where a shard stands from a run that has all of them.
func (s *shardShown) within(whole *control.RunState) {
	cut, ok := whole.Cuts[s.Number]
	switch {
	case !ok:
	case whole.Status == control.RunFinished:
		s.cut, s.state = cut, shardFinished
	default:
		s.cut, s.state = cut, shardReading
	}
}

// undone is the oldest record that is not done.
func (s *shardShown) undone(ctx context.Context, stream *kinesis.Stream, begin *startDoc) (kinesis.Place, error) {
	if s.cut.Next == (record.Position{}) {
		at, since := begin.place(s.Number)
		return stream.Peek(ctx, s.Number, at, since)
	}
	return stream.After(ctx, s.Number, s.cut.Next)
}

func (s *shardShown) lookup(run string, leases []control.LeaseInfo) {
	for _, l := range leases {
		switch {
		case !l.Valid:
		case l.Name == fmt.Sprintf("claims/%s/%d", run, s.Number):
			s.claim = l.Owner
		case l.Name == control.StreamLease(group.RunID(run, s.Number)), l.Name == control.StreamLease(run): // the whole run, if it is one
			s.owner, s.token = l.Owner, l.Token
		}
	}
}

// orderShards puts every shard under its first parent, roots first, by number; shards that only the journal knows are roots.
func orderShards(listed []kinesis.Shard, rows map[int32]control.RunInfo) []shardShown {
	known, children, roots := map[int32]shardShown{}, map[int32][]int32{}, []int32(nil)
	for _, sh := range listed {
		known[sh.Number] = shardShown{Shard: sh, held: true}
	}
	for p := range rows {
		if _, ok := known[p]; !ok {
			known[p] = shardShown{Shard: kinesis.Shard{Number: p, ID: kinesis.ShardID(p), Closed: true}}
		}
	}
	for _, n := range sortedKeys(known) {
		parent := int32(-1)
		for _, p := range known[n].Parents {
			if _, ok := known[p]; ok && parent < 0 {
				parent = p
			}
		}
		if parent < 0 {
			roots = append(roots, n)
			continue
		}
		children[parent] = append(children[parent], n)
	}
	var out []shardShown
	var walk func(n int32, depth int)
	walk = func(n int32, depth int) {
		s := known[n]
		s.depth = depth
		out = append(out, s)
		for _, c := range children[n] {
			walk(c, depth+1)
		}
	}
	for _, n := range roots {
		walk(n, 0)
	}
	return out
}

func (a *app) showShards(run, stream string, shown []shardShown) error {
	if a.json {
		docs := make([]any, len(shown))
		for i := range shown {
			docs[i] = shown[i].document()
		}
		return a.document(map[string]any{"run": run, "stream": stream, "shards": docs})
	}
	a.table("shard\tstate\tparents\towner\tcommitted up to\trecords\tbehind\toldest undone\tin flight", len(shown), func(w io.Writer, i int) {
		s := &shown[i]
		name := strings.Repeat("  ", s.depth) + fmt.Sprint(s.Number)
		if s.Closed {
			name += " closed"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", name, s.state, orDash(numberList(s.Parents)), cell(orDash(s.ownerText())), s.upTo(), s.cut.Counts.Records, s.behind(), s.undoneText(), flightText(s.flight))
	})
	return nil
}

func (s *shardShown) document() map[string]any {
	doc := map[string]any{
		"shard": s.Number, "id": s.ID, "state": s.state, "closed": s.Closed, "held": s.held, "parents": numbersOrEmpty(s.Parents),
		"claim": textOrNull(s.claim), "owner": textOrNull(s.owner), "fence_token": uint64(s.token), "next": nil, "records": s.cut.Counts.Records,
		"watermark": nil, "committed": stampOrNull(s.committed), "behind_ms": nil, "oldest_undone": nil, "in_flight": flightDocument(s.flight), "error": errorDocument(s.trouble),
	}
	if s.cut.Next != (record.Position{}) {
		doc["next"], doc["watermark"] = s.cut.Next.String(), s.cut.Watermark.String()
	}
	if s.asked && s.trouble == nil {
		doc["behind_ms"] = s.lag().Milliseconds()
		if s.next.Found {
			doc["oldest_undone"] = map[string]any{"position": s.next.Position.String(), "arrived": stamp(s.next.Arrival)}
		}
	}
	return doc
}

// lag is how long ago the oldest record that is not done has arrived, or how far the place is behind by Kinesis' own word, if that is more.
func (s *shardShown) lag() time.Duration {
	if !s.next.Found {
		return s.next.Behind
	}
	return max(s.next.Behind, time.Since(s.next.Arrival))
}

func (s *shardShown) ownerText() string {
	switch {
	case s.owner != "":
		return s.owner
	case s.claim != "":
		return s.claim + " (claim)"
	}
	return ""
}

func (s *shardShown) upTo() string {
	if s.cut.Next == (record.Position{}) {
		return "-"
	}
	return s.cut.Next.Prev().String()
}

func (s *shardShown) behind() string {
	switch {
	case s.trouble != nil:
		return "unknown"
	case !s.asked:
		return "-"
	}
	return s.lag().Round(time.Second).String()
}

func (s *shardShown) undoneText() string {
	switch code := codes.Of(s.trouble); {
	case code != nil:
		return code.Name
	case s.trouble != nil:
		return "unknown"
	case !s.next.Found:
		return "-"
	}
	return s.next.Position.String() + " since " + stamp(s.next.Arrival)
}
