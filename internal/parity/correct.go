package parity

import (
	"bufio"
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/weirstream/weir/internal/atomicfile"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/sources/snapshot"
)

// corrections are what a stream's exceptions change in the snapshot.
type corrections struct {
	drop    map[string]bool   // events that it never accepted
	replace map[string][]byte // events whose first accepted delivery was a revision: its value
}

func (e Exceptions) corrections() corrections {
	c := corrections{drop: map[string]bool{}, replace: map[string][]byte{}}
	for _, x := range e.explaining() {
		switch {
		case x.EventID == "":
		case x.Reason == partitions.ReasonRevised:
			c.replace[x.EventID] = x.Value
		default:
			c.drop[x.EventID] = true
		}
	}
	return c
}

// correct writes the snapshot as the stream's exceptions make it. A revision that was accepted counts, also when the event itself was
// lost; a snapshot is read in event order whatever order it is written in, so a revision may change the event time.
func (c Config) correct(ctx context.Context, streamed Exceptions) (*snapshot.Source, error) {
	path := filepath.Join(c.Dir, "corrected.jsonl")
	f, err := atomicfile.Create(path, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Discard()
	rows, err := c.snapshot().Rows(ctx)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := bufio.NewWriterSize(f, 1<<16)
	if err := copyCorrected(rows, streamed.corrections(), out); err != nil {
		return nil, err
	}
	if err := out.Flush(); err != nil {
		return nil, err
	}
	if err := f.Commit(); err != nil {
		return nil, err
	}
	return snapshot.New(snapshot.Config{Path: path, Fields: snapshot.FieldsOf(c.Plan), TempDir: c.Dir}), nil
}

func copyCorrected(rows *snapshot.Rows, c corrections, out *bufio.Writer) error {
	var row snapshot.Row
	for {
		err := rows.Next(&row)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		value := row.Value
		if revised, ok := c.replace[string(row.ID)]; ok {
			value = revised
		} else if c.drop[string(row.ID)] {
			continue
		}
		out.Write(value)
		// bufio keeps its first error; Flush would report it too.
		if err := out.WriteByte('\n'); err != nil {
			return err
		}
	}
}
