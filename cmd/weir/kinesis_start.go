package main

import (
	"context"
	"encoding/json"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/weirstream/weir/actors/reshard"
	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/kinesis"
)

const (
	trimHorizon = "trim-horizon"
	latest      = "latest"
	startFormat = "weir-kinesis-start/1"
	// latestMargin is subtracted from the present: Kinesis tells its clock to the second, and refuses a time in the future.
	latestMargin = 2 * time.Second
	// startTTL is how long the start of a run may take to be written.
	startTTL = 10 * time.Second
)

// startKey is the key under which the start of a run stands in the store.
func startKey(run string) string { return "kinesis-start/" + run }

// startDoc is where a run of a stream begins. It is written once, before anything is read, and never changed: a run that was begun at the latest
// record and starts again an hour later reads what came in between.
type startDoc struct {
	Format string `json:"format"`
	Run    string `json:"run"`
	Stream string `json:"stream"`
	// Identity is that of the stream, which another one of the same name does not share.
	Identity string `json:"identity"`
	// Asked is trim-horizon, latest, or a time; At is the time that it means, "" for the oldest record.
	Asked string `json:"asked"`
	At    string `json:"at"`
	// Shards begin elsewhere, after a rewind: at a position, a time, or trim-horizon.
	Shards map[string]string `json:"shards,omitempty"`
	// Rewound says which run was rewound, by whom and why; nil for a run that was begun by itself.
	Rewound *rewoundDoc `json:"rewound,omitempty"`
}

type rewoundDoc struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Who    string `json:"who"`
	Why    string `json:"why"`
	When   string `json:"when"`
	Shards string `json:"shards"`
}

// parseStart reads where to begin: the zero time for anything but a time.
func parseStart(text string) (time.Time, error) {
	switch text {
	case "", trimHorizon, latest:
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, usagef("%q is neither trim-horizon, latest nor a time such as 2026-11-30T12:00:00Z", text)
	}
	return at.UTC(), nil
}

// at is where a shard begins that has no place of its own; the zero time is its oldest record.
func (d *startDoc) at() time.Time { return timeOf(d.At) }

// timeOf is the zero time for anything but a time.
func timeOf(text string) time.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// place is where a shard begins that nothing was read of: a record, or a time; the zero time is the oldest record.
func (d *startDoc) place(shard int32) (record.Position, time.Time) {
	text, own := d.Shards[strconv.Itoa(int(shard))]
	if !own {
		return record.Position{}, d.at()
	}
	if pos, err := record.ParsePosition(text); err == nil {
		return pos, time.Time{}
	}
	return record.Position{}, timeOf(text)
}

// source is the view of one shard that begins where the run does.
func (d *startDoc) source(stream *kinesis.Stream, shard int32, fresh bool) sources.Source {
	pos, since := d.place(shard)
	switch {
	case pos != record.Position{}:
		return stream.BeginAt(shard, pos)
	case !fresh:
		return stream.Begin(shard, time.Time{}) // it goes on from shards that were read: nothing of it is passed over
	}
	return stream.Begin(shard, since)
}

// pinStart is the start of the run: as it stands in the store, or as it is asked for, which is written then.
func (a *app) pinStart(ctx context.Context, store control.ControlStore, stream *kinesis.Stream, info sources.Info, o runOptions) (*startDoc, error) {
	stands, err := readStart(ctx, store, o.runID)
	if err != nil {
		return nil, err
	}
	if stands == nil {
		if stands, err = a.newStart(ctx, store, stream, info, o); err != nil {
			return nil, err
		}
	}
	asked, err := parseStart(o.start)
	if err != nil {
		return nil, err
	}
	switch {
	case stands.Stream != o.kinesis:
		return nil, codes.New(codes.RunMismatch, "run %q reads the stream %q, and is started with %q. Use a new --run-id", o.runID, stands.Stream, o.kinesis)
	case stands.Identity != info.ID:
		return nil, codes.New(codes.TopicRecreated, "run %q read a stream %q that was created at %s; the one of that name now was created at %s, so the run's positions mean nothing there. Start a new --run-id",
			o.runID, o.kinesis, stands.Identity, info.ID)
	case o.start != "" && o.start != stands.Asked && (asked.IsZero() || !asked.Equal(stands.at())):
		return nil, codes.New(codes.RunMismatch, "run %q was begun at %s, and that stays; it is started with --start %s. Leave it out, or use a new --run-id (`weir rewind` makes one that begins elsewhere)", o.runID, stands.Asked, o.start)
	}
	return stands, nil
}

// inFuture says whether a time is later than the present, as Kinesis tells it: rounded down to the second.
func inFuture(at, now time.Time) bool { return at.After(now.Add(time.Second)) }

// newStart writes the start of a run that has none.
func (a *app) newStart(ctx context.Context, store control.ControlStore, stream *kinesis.Stream, info sources.Info, o runOptions) (*startDoc, error) {
	rows, err := reshard.Rows(ctx, store, o.runID)
	if err != nil {
		return nil, err
	}
	if len(rows) > 0 {
		return nil, codes.New(codes.HandoverUnfinished, "run %q has shards and no start: a rewind that makes it was not finished. Run the same `weir rewind … --as %s --apply` again", o.runID, o.runID)
	}
	doc := &startDoc{Format: startFormat, Run: o.runID, Stream: o.kinesis, Identity: info.ID, Asked: o.start}
	now, err := stream.Now(ctx)
	if err != nil {
		return nil, err
	}
	at, err := parseStart(o.start)
	switch {
	case err != nil:
		return nil, err
	case o.start == "":
		doc.Asked = trimHorizon
	case o.start == latest:
		doc.At = now.Add(-latestMargin).UTC().Format(time.RFC3339Nano)
	case inFuture(at, now):
		return nil, codes.New(codes.ConfigInvalid, "--start %s is in the future: by the clock of Kinesis it is %s", o.start, now.UTC().Format(time.RFC3339))
	case !at.IsZero():
		doc.At = at.Format(time.RFC3339Nano)
	}
	return doc.publish(ctx, store)
}

// publish writes the document unless there is one, and returns the one that stands: of several processes that begin a run at once, one decides.
func (d *startDoc) publish(ctx context.Context, store control.ControlStore) (*startDoc, error) {
	err := publishOnce(ctx, store, "start/"+d.Run, control.Publication{Key: startKey(d.Run), RunID: d.Run}, d)
	if err != nil && !codes.Has(err, codes.LeaseHeld) && !codes.Has(err, codes.PublicationConflict) {
		return nil, err
	}
	within, cancel := context.WithTimeout(ctx, startTTL)
	defer cancel()
	for {
		stands, readErr := readStart(ctx, store, d.Run)
		if readErr != nil || stands != nil {
			return stands, readErr
		}
		timer := time.NewTimer(100 * time.Millisecond)
		select {
		case <-timer.C:
		case <-within.Done():
			timer.Stop()
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, codes.New(codes.StoreUnavailable, "another process began to write the start of run %q and has not ended: %w; start again", d.Run, err)
		}
	}
}

// publishOnce publishes a document under a lease of its own.
func publishOnce(ctx context.Context, store control.ControlStore, lease string, p control.Publication, doc any) error {
	text, err := json.Marshal(doc)
	if err != nil {
		return codes.New(codes.Internal, "a document for the store: %w", err)
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return codes.New(codes.Internal, "a document for the store: %w", err)
	}
	if p.Value, err = record.AppendJSON(nil, plain); err != nil {
		return codes.New(codes.Internal, "a document for the store: %w", err)
	}
	l, err := store.Acquire(ctx, lease, control.NewOwner(), startTTL)
	if err != nil {
		return err
	}
	err = store.Fenced(ctx, l, control.Publish{Publications: []control.Publication{p}})
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	_ = store.Release(within, l) // it runs out otherwise
	return err
}

// readStart reads the start of a run; nil when it has none.
func readStart(ctx context.Context, store control.ControlStore, run string) (*startDoc, error) {
	var found *startDoc
	err := store.Publications(ctx, startKey(run), func(p control.Publication, _ string) error {
		if p.Key != startKey(run) {
			return nil
		}
		found = &startDoc{}
		if err := json.Unmarshal(p.Value, found); err != nil || found.Format != startFormat {
			return codes.New(codes.JournalCorrupt, "the start of run %q in the store is not one that this weir reads (%q)", run, found.Format)
		}
		return nil
	})
	return found, err
}

// operator is who gives a command, for the record.
func operator() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return strings.ToValidUTF8(u.Username, "?")
	}
	return "unknown"
}
