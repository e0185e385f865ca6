package parity

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/weirstream/weir/batch"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/logfile"
	"github.com/weirstream/weir/sources/snapshot"
)

// fates finds out what became of every event that has an exception. Its first delivery that could be taken part in decides: late, an
// accepted revision, or accepted as it is. Later deliveries change nothing; they are duplicates, or late too once the id is
// forgotten, so that a late delivery alone does not say that the event was lost. An event without such a delivery was lost.
func (e Exceptions) fates(ctx context.Context, log sources.Source) (snapshot.Corrections, error) {
	c := snapshot.Corrections{Drop: map[string]bool{}, Replace: map[string][]byte{}}
	type place struct {
		partition int32
		position  record.Position
	}
	at := map[place]Exception{}
	for _, x := range e.explaining() {
		if x.EventID != "" {
			at[place{x.Partition, x.Position}] = x
			c.Drop[x.EventID] = true
		}
	}
	decided := map[string]bool{}
	return c, eachDelivery(ctx, log, func(partition int32, r *record.Record) {
		id := eventID(r)
		if !c.Drop[id] || decided[id] {
			return
		}
		x, excepted := at[place{partition, r.Position}]
		switch {
		case !excepted:
			delete(c.Drop, id)
		case x.Reason == partitions.ReasonRevised:
			delete(c.Drop, id)
			c.Replace[id] = x.Value
		case x.Reason != partitions.ReasonLate:
			return // no delivery that could be taken part in
		}
		decided[id] = true
	})
}

func eventID(r *record.Record) string {
	for _, h := range r.Headers {
		if h.Key == record.HeaderEventID {
			return string(h.Value)
		}
	}
	return ""
}

// eachDelivery reads a bounded log to its end.
func eachDelivery(ctx context.Context, log sources.Source, fn func(int32, *record.Record)) error {
	info, err := log.Info(ctx)
	if err != nil {
		return err
	}
	from := map[int32]record.Position{}
	for _, p := range info.Partitions {
		from[p] = record.Position{}
	}
	reader, err := log.Open(ctx, from)
	if err != nil {
		return err
	}
	defer reader.Close()
	for {
		batches, err := reader.Poll(ctx, batch.DefaultFetch)
		for i := range batches {
			for j := range batches[i].Records {
				fn(batches[i].Partition, &batches[i].Records[j])
			}
			batches[i].Done()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// correct is the snapshot as the stream's exceptions make it.
func (c Config) correct(ctx context.Context, streamed Exceptions) (sources.Source, error) {
	log := logfile.NewSource(filepath.Join(c.Dir, logName), logfile.SourceConfig{Partitions: c.Partitions})
	changes, err := streamed.fates(ctx, log)
	return snapshot.Corrected(c.snapshot(), changes), err
}
