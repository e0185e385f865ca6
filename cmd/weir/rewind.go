package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirstream/weir/actors"
	"github.com/weirstream/weir/actors/reshard"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/kinesis"
)

// rewindFlags say what is to be read again.
type rewindFlags struct {
	streamFlags
	shard       int32
	all, apply  bool
	to, as, why string
}

func (a *app) rewindCommand() *cobra.Command {
	var o rewindFlags
	cmd := &cobra.Command{
		Use: "rewind RUN", Short: "Make a new run of a stream that reads shards again",
		Long: "Shows what reading again from a place would mean, shard by shard; --apply does it. A journal never goes back, so a rewind makes a new run, which\n" +
			"begins there; the old one stays as it is, with its results, and may go on. With --all the new run has nothing of the old one. With --shard\n" +
			"that shard, and those that go on from it, begin there without results and without the state that was built since; all others are\n" +
			"taken over as they stand, with state and results. A shard that has not come to the place yet is never moved forward.\n" +
			"The decision is kept in the store, with who made it and why.",
		Example: "  weir rewind ticks-1 --store sqlite:weir.db --kinesis ticks --all --to 2026-11-30T10:00:00Z\n" +
			"  weir rewind ticks-1 --store sqlite:weir.db --kinesis ticks --shard 3 --to trim-horizon --as ticks-2 --reason \"prices were wrong\" --apply",
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	o.addStream(cmd, "the stream that the run reads (required)")
	f.Int32Var(&o.shard, "shard", -1, "read this shard again, and those that go on from it")
	f.BoolVar(&o.all, "all", false, "read all shards again")
	f.StringVar(&o.to, "to", "", "where to: trim-horizon, a time such as 2026-11-30T10:00:00Z, or with --shard a position (required)")
	f.StringVar(&o.as, "as", "", "run id of the new run; needed with --apply")
	f.StringVar(&o.why, "reason", "", "why, for the record; needed with --apply")
	f.BoolVar(&o.apply, "apply", false, "do it; without, it is only shown")
	return a.storeFlag(cmd, func(ctx context.Context, store control.ControlStore, args []string) error {
		if err := o.check(args[0]); err != nil {
			return err
		}
		stream, err := o.open(ctx, a.log, nil)
		if err != nil {
			return err
		}
		r := &rewinding{o: o, run: args[0], store: store, stream: stream}
		if err := r.plan(ctx); err != nil {
			return err
		}
		if o.apply {
			if err := r.apply(ctx); err != nil {
				return err
			}
		}
		return a.showRewind(r)
	})
}

func (o *rewindFlags) check(run string) error {
	_, posErr := record.ParsePosition(o.to)
	switch {
	case o.kinesis == "":
		return usagef("--kinesis is missing: name the stream that the run reads")
	case o.all == (o.shard >= 0):
		return usagef("say what to read again: --shard N or --all")
	case o.to == "":
		return usagef("--to is missing: trim-horizon, a time, or with --shard a position")
	case o.to == latest:
		return usagef("--to latest reads nothing again: a run begins there with `weir run --start latest` and a new --run-id")
	case posErr == nil && o.all:
		return usagef("--to %s is a position, which belongs to one shard: name it with --shard", o.to)
	case o.apply && (o.as == "" || o.why == ""):
		return usagef("--apply makes a run, for a reason: give --as NEWRUN and --reason")
	case o.as == run:
		return usagef("--as %s is the run itself; a journal never goes back, so name a new run", o.as)
	case posErr == nil:
		return nil
	}
	_, err := parseStart(o.to)
	return err
}

// rewinding is a rewind that is planned, and maybe made.
type rewinding struct {
	o      rewindFlags
	run    string
	store  control.ControlStore
	stream *kinesis.Stream

	begin *startDoc
	rows  map[int32]control.RunInfo
	moves []move
	at    record.Position // of --to, or zero
	since time.Time       // likewise
	made  *startDoc
}

// The fates of a shard.
const (
	fateBack  = "reads again" // it begins at the place
	fateKeep  = "taken over"  // as it stands
	fateAfter = "after its parents"
	fateDrop  = "left behind" // the stream holds it no longer
)

// move is what becomes of one shard.
type move struct {
	shard  int32
	fate   string
	stands record.Position
	place  kinesis.Place
	// from is the shard's place in the new run's start, "" for that of the run.
	from string
}

// plan finds out what becomes of every shard.
func (r *rewinding) plan(ctx context.Context) error {
	var err error
	if r.begin, err = readStart(ctx, r.store, r.run); err != nil {
		return err
	}
	if r.rows, err = reshard.Rows(ctx, r.store, r.run); err != nil {
		return err
	}
	if r.begin == nil || len(r.rows) == 0 {
		return codes.New(codes.RunUnknown, "the store holds no run %q of a stream that was read shard by shard (with --once-n or --until-n a run has all shards in one, and cannot be rewound)", r.run)
	}
	info, err := r.stream.Info(ctx)
	if err != nil {
		return err
	}
	if r.begin.Stream != r.o.kinesis {
		return codes.New(codes.RunMismatch, "run %q reads the stream %q, not %q", r.run, r.begin.Stream, r.o.kinesis)
	}
	if r.begin.Identity != info.ID {
		return codes.New(codes.TopicRecreated, "run %q read a stream %q that was created at %s; the one of that name now was created at %s. Start a new run", r.run, r.o.kinesis, r.begin.Identity, info.ID)
	}
	if err := r.place(ctx); err != nil {
		return err
	}
	listed, err := r.stream.Shards(ctx)
	if err != nil {
		return err
	}
	again, err := r.again(listed)
	if err != nil {
		return err
	}
	for _, s := range orderShards(listed, r.rows) {
		m, err := r.move(ctx, &s, again)
		if err != nil {
			return err
		}
		r.moves = append(r.moves, m)
	}
	return nil
}

// place reads --to, and refuses the future.
func (r *rewinding) place(ctx context.Context) (err error) {
	if r.at, err = record.ParsePosition(r.o.to); err == nil {
		return nil
	}
	if r.since, err = parseStart(r.o.to); err != nil || r.since.IsZero() {
		return err
	}
	now, err := r.stream.Now(ctx)
	if err == nil && inFuture(r.since, now) {
		err = codes.New(codes.ConfigInvalid, "--to %s is in the future: by the clock of Kinesis it is %s", r.o.to, now.UTC().Format(time.RFC3339))
	}
	return err
}

// again are the shards that are read again: what was named, and all that goes on from it, since its state is that of the one before.
func (r *rewinding) again(listed []kinesis.Shard) (map[int32]bool, error) {
	again := map[int32]bool{}
	for _, s := range listed {
		again[s.Number] = r.o.all || s.Number == r.o.shard
	}
	if !r.o.all && !again[r.o.shard] {
		return nil, codes.New(codes.OffsetLost, "stream %q holds no %s: it was closed longer ago than records are kept, or never was", r.o.kinesis, kinesis.ShardID(r.o.shard))
	}
	for grew := true; grew; {
		grew = false
		for _, s := range listed {
			if !again[s.Number] && slices.ContainsFunc(s.Parents, func(p int32) bool { return again[p] }) {
				again[s.Number], grew = true, true
			}
		}
	}
	return again, nil
}

// move says what becomes of a shard.
func (r *rewinding) move(ctx context.Context, s *shardShown, again map[int32]bool) (move, error) {
	m := move{shard: s.Number, fate: fateKeep}
	row, read := r.rows[s.Number]
	if read {
		if err := r.store.Snapshot(ctx, row.Header.RunID, func(v control.JournalView) error {
			m.stands = v.State().Cuts[s.Number].Next
			return nil
		}); err != nil {
			return m, err
		}
	}
	switch {
	case !s.held && r.o.all:
		m.fate = fateDrop
		return m, nil
	case !again[s.Number]:
		return m, nil
	}
	var err error
	if m.place, err = r.stream.Peek(ctx, s.Number, r.placeOf(s.Number), r.since); err != nil {
		return m, err
	}
	if s.Number == r.o.shard && r.at != (record.Position{}) && m.place.Position != r.at {
		return m, codes.New(codes.OffsetLost, "%s holds no record at the position %s", s.ID, r.at)
	}
	afterParents := !r.o.all && s.Number != r.o.shard
	unread := m.stands == record.Position{}
	if !unread && !afterParents && (!m.place.Found || m.place.Position.Cmp(m.stands) >= 0) {
		if !r.o.all {
			return m, codes.New(codes.ConfigInvalid, "there is nothing to read again: run %q has processed %s up to %s, and --to %s is not before that", r.run, s.ID, m.stands.Prev(), r.o.to)
		}
		return m, nil // it has not come there yet: moved on, it would leave records out
	}
	m.fate = fateBack
	if afterParents {
		m.fate = fateAfter
	}
	// One that was never read begins where the run was to begin, unless the place is before that.
	if began := r.begin.at(); !unread || !began.IsZero() && r.since.Before(began) {
		m.from = r.o.to
	}
	if afterParents && r.at != (record.Position{}) {
		m.from = trimHorizon
	}
	return m, nil
}

// placeOf is --to as a position, for the one shard that it belongs to.
func (r *rewinding) placeOf(shard int32) record.Position {
	if shard == r.o.shard {
		return r.at
	}
	return record.Position{}
}

// apply makes the new run. Its start is written last: a run that has shards and no start does not start, and the same rewind goes on with it.
func (r *rewinding) apply(ctx context.Context) error {
	if stands, err := readStart(ctx, r.store, r.o.as); err != nil || stands != nil {
		if err == nil {
			err = codes.New(codes.RunMismatch, "run %q is there already; a rewind makes a new one", r.o.as)
		}
		return err
	}
	doc := &startDoc{
		Format: startFormat, Run: r.o.as, Stream: r.begin.Stream, Identity: r.begin.Identity, Asked: r.begin.Asked, At: r.begin.At, Shards: map[string]string{},
		Rewound: &rewoundDoc{From: r.run, To: r.o.to, Who: operator(), Why: r.o.why, When: time.Now().UTC().Format(time.RFC3339Nano), Shards: r.what()},
	}
	for _, m := range r.moves {
		if m.fate == fateKeep {
			if _, err := reshard.Fork(ctx, r.store, r.run, r.o.as, m.shard, actors.DefaultTTL); err != nil && !codes.Has(err, codes.RunUnknown) {
				return err
			}
		}
		// One that is taken over has a place of its own, too: with nothing committed it begins where it was to begin.
		if text, own := r.begin.Shards[strconv.Itoa(int(m.shard))]; own && m.from == "" {
			m.from = text
		}
		if m.from != "" {
			doc.Shards[strconv.Itoa(int(m.shard))] = m.from
		}
	}
	stands, err := doc.publish(ctx, r.store)
	if err != nil {
		return err
	}
	if stands.Rewound == nil || *stands.Rewound != *doc.Rewound {
		return codes.New(codes.RunMismatch, "run %q was begun by another process meanwhile; name another one", r.o.as)
	}
	r.made = stands
	return nil
}

func (r *rewinding) what() string {
	if r.o.all {
		return "all"
	}
	return fmt.Sprint(r.o.shard)
}

func (a *app) showRewind(r *rewinding) error {
	if a.json {
		docs := make([]any, len(r.moves))
		for i, m := range r.moves {
			doc := map[string]any{"shard": m.shard, "fate": m.fate, "committed": nil, "first": nil, "arrived": nil}
			if m.stands != (record.Position{}) {
				doc["committed"] = m.stands.Prev().String()
			}
			if m.place.Found {
				doc["first"], doc["arrived"] = m.place.Position.String(), stamp(m.place.Arrival)
			}
			docs[i] = doc
		}
		return a.document(map[string]any{"run": r.run, "as": textOrNull(r.o.as), "to": r.o.to, "applied": r.made != nil, "shards": docs})
	}
	a.table("shard\tbecomes\tcommitted up to\tfirst record to read again", len(r.moves), func(w io.Writer, i int) {
		m, first := r.moves[i], "-"
		if m.fate != fateKeep && m.place.Found {
			first = m.place.Position.String() + " of " + stamp(m.place.Arrival)
		}
		stands := "-"
		if m.stands != (record.Position{}) {
			stands = m.stands.Prev().String()
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\n", m.shard, m.fate, stands, first)
	})
	if r.made == nil {
		a.printf("nothing was changed; with --apply --as NEWRUN --reason TEXT the new run is made\n")
		return nil
	}
	a.printf("run %s is made, and run %s stays as it is; start it with `weir run FLOW --kinesis %s --run-id %s`\n", printable(r.o.as), printable(r.run), printable(r.o.kinesis), printable(r.o.as))
	return nil
}
