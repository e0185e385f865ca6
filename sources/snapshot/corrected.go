package snapshot

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// Corrections are what the recorded exceptions of a stream change in a snapshot.
type Corrections struct {
	// Drop holds the ids of events that the stream never accepted: late, lost, in the future.
	Drop map[string]bool
	// Replace holds, by event id, the value of the revision that the stream accepted in the place of the event. An event is kept
	// when it is here, also if it is in Drop. Ids that are not in the snapshot have no effect.
	Replace map[string][]byte
}

// Corrected is a snapshot with corrections, as a source like Source. A revision may have another key and event time than its event;
// rows are in the order of (event time, event id) all the same. Memory holds the corrections. The maps must not change afterwards.
// Errors are those of Source, and codes.SnapshotInvalid for a revision that is no row.
func Corrected(src *Source, c Corrections) sources.Source { return &corrected{src: src, by: c} }

type corrected struct {
	src *Source
	by  Corrections
}

// Info has an id that depends on the snapshot and on every correction.
func (c *corrected) Info(ctx context.Context) (sources.Info, error) {
	info, err := c.src.Info(ctx)
	if err != nil {
		return info, err
	}
	hash := sha256.New()
	fmt.Fprintln(hash, info.ID)
	for _, id := range slices.Sorted(maps.Keys(c.by.Drop)) {
		if c.by.Drop[id] {
			fmt.Fprintf(hash, "drop %q\n", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.by.Replace)) {
		fmt.Fprintf(hash, "replace %q %q\n", id, c.by.Replace[id])
	}
	info.Name += " (corrected)"
	info.ID = record.HashPrefix + hex.EncodeToString(hash.Sum(nil))
	return info, nil
}

// Open starts a reader of partition 0.
func (c *corrected) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	return NewReader(c.src.Path()+" (corrected)", from, func() (RowReader, error) {
		rows, err := c.src.Rows(ctx)
		if err != nil {
			return nil, err
		}
		revised, err := c.revisions(ctx)
		if err != nil {
			rows.Close()
			return nil, err
		}
		rows.ctx = context.WithoutCancel(ctx) // each Poll looks at its own
		return &correctedRows{rows: rows, by: c.by, revised: revised}, nil
	})
}

// revisions are the rows of Replace whose event is in the snapshot, in order. Which those are takes a pass of its own: a revision that
// moves its event back in time comes before the row that it replaces.
func (c *corrected) revisions(ctx context.Context) ([]Row, error) {
	if len(c.by.Replace) == 0 {
		return nil, nil
	}
	f, err := c.src.open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := c.src.reader(f)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	var revised []Row
	var row Row
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := rows.next(&row); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		value, ok := c.by.Replace[string(row.ID)]
		if !ok || found[string(row.ID)] {
			continue
		}
		found[string(row.ID)] = true
		r, err := c.revision(string(row.ID), value, row.Line)
		if err != nil {
			return nil, err
		}
		revised = append(revised, r)
	}
	slices.SortFunc(revised, inOrder)
	return revised, nil
}

func inOrder(a, b Row) int {
	return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(string(a.ID), string(b.ID)))
}

// revision reads the value of a revision as a row.
func (c *corrected) revision(id string, value []byte, line int64) (Row, error) {
	in := &input{name: fmt.Sprintf("%s: the revision of event %.80q", c.src.Path(), id), line: line}
	var r Row
	if err := newJSONRows(in, c.src.Fields()).row(&r, value); err != nil {
		return Row{}, err
	}
	if string(r.ID) != id {
		return Row{}, codes.New(codes.SnapshotInvalid, "%s: the revision of event %.80q is one of event %.80q", c.src.Path(), id, r.ID)
	}
	r.ID, r.Key = []byte(id), slices.Clone(r.Key)
	return r, nil
}

// correctedRows leaves rows out and merges the revisions in.
type correctedRows struct {
	rows    *Rows
	by      Corrections
	revised []Row
	// ahead is a row that was read and has to wait for revisions before it.
	ahead   Row
	waiting bool
	err     error // of rows, io.EOF too
}

// Next reads the next row that stands.
func (c *correctedRows) Next(row *Row) error {
	for !c.waiting && c.err == nil {
		if c.err = c.rows.Next(&c.ahead); c.err == nil {
			_, replaced := c.by.Replace[string(c.ahead.ID)]
			c.waiting = !replaced && !c.by.Drop[string(c.ahead.ID)]
		}
	}
	switch {
	case c.err != nil && c.err != io.EOF:
		return c.err
	case len(c.revised) > 0 && (!c.waiting || c.revised[0].before(c.ahead.Time, c.ahead.ID)):
		*row, c.revised = c.revised[0], c.revised[1:]
	case c.waiting:
		*row, c.waiting = c.ahead, false
	default:
		return io.EOF
	}
	return nil
}

func (c *correctedRows) Close() { c.rows.Close() }
