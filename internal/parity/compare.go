package parity

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks/emit"
)

// Exception is a record that the stream set aside, or accepted as a revision or behind the watermark.
type Exception struct {
	Partition int32
	// number is that of the entry in the quarantine of the partition, came says that it came in by a replay of the entry.
	number   int64
	came     bool
	Position record.Position
	Reason   string
	Detail   string
	EventID  string
}

// Exceptions of one mode.
type Exceptions struct{ list []Exception }

func (e *Exceptions) add(q partitions.Quarantined) {
	e.list = append(e.list, Exception{Partition: q.Partition, Position: q.Position, Reason: q.Reason, Detail: q.Detail, EventID: q.EventID, number: q.Number})
}

func (e *Exceptions) sort() {
	slices.SortStableFunc(e.list, func(a, b Exception) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), a.Position.Cmp(b.Position))
	})
}

// difference says where the verdicts of two modes differ first, or "".
func (e Exceptions) difference(o Exceptions) string {
	e.sort()
	o.sort()
	for i := range max(len(e.list), len(o.list)) {
		switch {
		case i >= len(e.list):
			return fmt.Sprintf("stream alone recorded %s", o.list[i])
		case i >= len(o.list):
			return fmt.Sprintf("replay alone recorded %s", e.list[i])
		}
		a, b := e.list[i], o.list[i]
		if a.Partition != b.Partition || a.Position != b.Position || a.Reason != b.Reason || a.EventID != b.EventID {
			return fmt.Sprintf("replay recorded %s where stream recorded %s", a, b)
		}
	}
	return ""
}

func (x Exception) String() string {
	return fmt.Sprintf("%s for event %q at partition %d, position %s", x.Reason, x.EventID, x.Partition, x.Position)
}

// explains says whether an exception makes a stream differ from batch: what was late, lost, from the future or revised does. A revision that was
// not taken in changes nothing.
func (x Exception) explains() bool {
	return x.Reason != partitions.ReasonRevisionLate && x.Reason != partitions.ReasonRevisionMoved
}

// explaining are the exceptions that make a stream differ from batch, but for those that an operator has replayed: what came in then is in both.
func (e Exceptions) explaining() []Exception {
	var list []Exception
	for _, x := range e.list {
		if x.explains() && !x.came {
			list = append(list, x)
		}
	}
	return list
}

// compare says in words what differs between two modes that must be equal.
func compare(nameA string, a emit.Doc, nameB string, b emit.Doc) []string {
	var reasons []string
	check := func(what string, x, y any) {
		if x != y {
			reasons = append(reasons, fmt.Sprintf("%s: %s has %v, %s has %v", what, nameA, x, nameB, y))
		}
	}
	check("values_hash", a.ValuesHash, b.ValuesHash)
	check("events", a.EventsHash, b.EventsHash)
	check("rows", a.Rows, b.Rows)
	check("consumed", a.Counts.Consumed, b.Counts.Consumed)
	check("filtered", a.Counts.Filtered, b.Counts.Filtered)
	check("omitted", a.Counts.Omitted, b.Counts.Omitted)
	check("duplicates_skipped", a.Counts.Duplicates, b.Counts.Duplicates)
	check("late", a.Counts.Late, b.Counts.Late)
	check("future", a.Counts.Future, b.Counts.Future)
	return reasons
}

func sameRows(a, b emit.Doc) bool {
	return a.ValuesHash == b.ValuesHash && a.EventsHash == b.EventsHash
}

// Divergence is the first row in which two documents differ. An absent side has no event.
type Divergence struct {
	Index        int64
	Left, Right  string // names of the sides
	LeftEvent    string
	LeftValue    string
	RightEvent   string
	RightValue   string
	Cause        string
	CauseIsKnown bool
}

func (c Config) diverge(r *Report, streamed Exceptions, name string, doc emit.Doc, file string) error {
	if sameRows(doc, r.Stream) {
		return nil // the counts or verdicts differ, not the rows
	}
	d, err := firstDifference(filepath.Join(c.Dir, file), filepath.Join(c.Dir, "stream.json"))
	if err != nil || d == nil {
		return err
	}
	d.Left, d.Right = name, "stream"
	for _, x := range streamed.list {
		if x.EventID != "" && (x.EventID == d.LeftEvent || x.EventID == d.RightEvent) {
			d.Cause, d.CauseIsKnown = x.String(), true
			if x.Detail != "" {
				d.Cause += ": " + x.Detail
			}
			break
		}
	}
	r.Divergence = d
	return nil
}

// firstDifference reads two emit documents side by side. They are canonical, so that events come before values.
func firstDifference(left, right string) (*Divergence, error) {
	a, err := openRows(left)
	if err != nil {
		return nil, err
	}
	defer a.close()
	b, err := openRows(right)
	if err != nil {
		return nil, err
	}
	defer b.close()
	for i := int64(0); ; i++ {
		okA, err := a.next()
		if err != nil {
			return nil, err
		}
		okB, err := b.next()
		if err != nil {
			return nil, err
		}
		if !okA && !okB {
			return nil, nil
		}
		if a.event != b.event || a.value != b.value {
			return &Divergence{Index: i, LeftEvent: a.event, LeftValue: a.value, RightEvent: b.event, RightValue: b.value}, nil
		}
	}
}

// rowReader reads the events and the values of a document in step, by two decoders over one file each.
type rowReader struct {
	files          []*os.File
	events, values *json.Decoder
	event, value   string
}

func openRows(path string) (*rowReader, error) {
	r := &rowReader{}
	for _, key := range []string{"events", "values"} {
		f, err := os.Open(path)
		if err != nil {
			r.close()
			return nil, codes.New(codes.FileMissing, "%w", err)
		}
		r.files = append(r.files, f)
		dec, err := seekArray(f, key)
		if err != nil {
			r.close()
			return nil, codes.New(codes.DocumentInvalid, "%s: %w", path, err)
		}
		if key == "events" {
			r.events = dec
		} else {
			r.values = dec
		}
	}
	return r, nil
}

func seekArray(f io.Reader, key string) (*json.Decoder, error) {
	dec := json.NewDecoder(f)
	dec.UseNumber()
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		if name == key {
			_, err := dec.Token()
			return dec, err
		}
		if err := skipValue(dec); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("there is no %q", key)
}

// skipValue passes over one value token by token, so that a large array is not held in memory.
func skipValue(dec *json.Decoder) error {
	for depth := 0; ; {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('['), json.Delim('{'):
			depth++
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

func (r *rowReader) next() (bool, error) {
	r.event, r.value = "", ""
	if !r.events.More() || !r.values.More() {
		return false, nil
	}
	var raw json.RawMessage
	err := errors.Join(r.events.Decode(&r.event), r.values.Decode(&raw))
	r.value = string(raw)
	return err == nil, err
}

func (r *rowReader) close() {
	for _, f := range r.files {
		f.Close()
	}
}
