package emit

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/internal/atomicfile"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

// DefaultKeep is how many rows a writer keeps in memory for Doc.Values.
const DefaultKeep = 100_000

// Writer takes rows in (event time, event id) order and writes one document.
type Writer struct {
	// Keep bounds how many rows are kept in memory for Doc.Values and Doc.Events. Defaults to DefaultKeep; set it before the first row.
	Keep int

	names  []string // of the outputs, in the order of the flow
	sorted []int    // indices of names in the order of the document
	target *atomicfile.File
	values *spool
	events *spool
	hash   hash.Hash // of values
	idHash hash.Hash // of events
	rows   int64
	nulls  []int64
	buf    []byte
	kept   []any
	ids    []string
}

// NewWriter starts a document at path; an empty path makes none, but still hashes and keeps. Spool files stand beside the target.
// The error carries codes.OutputUnwritable.
func NewWriter(plan *flow.Plan, path string) (*Writer, error) {
	w := &Writer{Keep: DefaultKeep, hash: sha256.New(), idHash: sha256.New()}
	for i, o := range plan.Outputs {
		w.names = append(w.names, o.Name)
		w.sorted = append(w.sorted, i)
	}
	slices.SortFunc(w.sorted, func(a, b int) int { return strings.Compare(w.names[a], w.names[b]) })
	w.nulls = make([]int64, len(w.names))
	w.hash.Write([]byte{'['})
	w.idHash.Write([]byte{'['})
	if path == "" {
		return w, nil
	}
	var err error
	if w.target, err = atomicfile.Create(path, 0o600); err != nil {
		return nil, err
	}
	if w.values, err = newSpool(path); err == nil {
		w.events, err = newSpool(path)
	}
	if err != nil {
		w.Discard()
		return nil, err
	}
	return w, nil
}

// Row adds a row.
func (w *Writer) Row(r *partitions.Row) error {
	w.buf = w.buf[:0]
	if w.rows > 0 {
		w.buf = append(w.buf, ',')
	}
	w.buf = w.appendValue(w.buf, r)
	w.hash.Write(w.buf)
	w.rows++
	for i := range w.nulls {
		if !r.Values[i].OK {
			w.nulls[i]++
		}
	}
	if w.rows <= int64(w.Keep) {
		w.keep(r)
	} else {
		w.kept, w.ids = nil, nil
	}
	if w.target != nil {
		if err := w.values.write(w.buf); err != nil {
			return err
		}
	}
	w.buf = w.buf[:0]
	if w.rows > 1 {
		w.buf = append(w.buf, ',')
	}
	w.buf = record.AppendString(w.buf, r.ID)
	w.idHash.Write(w.buf)
	if w.target == nil {
		return nil
	}
	return w.events.write(w.buf)
}

func (w *Writer) appendValue(dst []byte, r *partitions.Row) []byte {
	if len(w.names) == 1 {
		return appendNumber(dst, r, 0)
	}
	for i, n := range w.sorted {
		if i == 0 {
			dst = append(dst, '{')
		} else {
			dst = append(dst, ',')
		}
		dst = append(record.AppendString(dst, w.names[n]), ':')
		dst = appendNumber(dst, r, n)
	}
	return append(dst, '}')
}

func appendNumber(dst []byte, r *partitions.Row, i int) []byte {
	if v := r.Values[i]; v.OK {
		return record.AppendFloat(dst, v.F)
	}
	return append(dst, "null"...)
}

func (w *Writer) keep(r *partitions.Row) {
	w.ids = append(w.ids, string(r.ID))
	if len(w.names) == 1 {
		w.kept = append(w.kept, number(r, 0))
		return
	}
	m := make(map[string]any, len(w.names))
	for i, name := range w.names {
		m[name] = number(r, i)
	}
	w.kept = append(w.kept, m)
}

func number(r *partitions.Row, i int) any {
	if v := r.Values[i]; v.OK {
		return v.F
	}
	return nil
}

// Finish completes the document with everything but the rows, puts it in its place, and returns it.
func (w *Writer) Finish(d Doc) (Doc, error) {
	d.ValuesHash, d.EventsHash = digest(w.hash), digest(w.idHash)
	d.Rows, d.Nulls = w.rows, w.nulls
	if d.Complete = w.rows <= int64(w.Keep); d.Complete {
		d.Values, d.Events = w.kept, w.ids
	}
	if w.target == nil {
		return d, nil
	}
	err := w.writeTo(w.target, d)
	if err == nil && d.Allow != nil {
		err = d.Allow()
	}
	if err != nil {
		w.Discard()
		return d, err
	}
	w.values.remove()
	w.events.remove()
	return d, w.target.Commit()
}

// digest closes the array that was hashed.
func digest(h hash.Hash) string {
	h.Write([]byte{']'})
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// Discard gives the document up and leaves nothing behind.
func (w *Writer) Discard() {
	w.values.remove()
	w.events.remove()
	if w.target != nil {
		w.target.Discard()
	}
}

func (w *Writer) writeTo(f io.Writer, d Doc) error {
	out := bufio.NewWriterSize(f, 1<<16)
	head := d.head()
	keys := append(slices.Collect(maps.Keys(head)), "events", "values")
	slices.Sort(keys)
	var buf []byte
	for i, key := range keys {
		buf = append(buf[:0], "{,"[min(i, 1)])
		buf = append(record.AppendString(buf, key), ':')
		var err error
		switch key {
		case "events":
			out.Write(buf)
			err = w.events.copyTo(out)
		case "values":
			out.Write(buf)
			err = w.values.copyTo(out)
		default:
			if buf, err = record.AppendJSON(buf, head[key]); err == nil {
				out.Write(buf)
			}
		}
		if err != nil {
			return err
		}
	}
	// bufio keeps its first error: the last write reports for all of them.
	if _, err := out.WriteString("}\n"); err != nil {
		return err
	}
	return out.Flush()
}

// spool is the inside of a JSON array in a file that has no name any more.
type spool struct {
	f   *os.File
	buf *bufio.Writer
}

func newSpool(beside string) (*spool, error) {
	f, err := scratch(beside)
	if err != nil {
		return nil, err
	}
	return &spool{f: f, buf: bufio.NewWriterSize(f, 1<<16)}, nil
}

func (s *spool) write(b []byte) error {
	_, err := s.buf.Write(b)
	return spoolError(err)
}

func spoolError(err error) error {
	return atomicfile.Unwritable("a temporary file for the emit document", err)
}

func (s *spool) copyTo(out *bufio.Writer) error {
	if err := s.buf.Flush(); err != nil {
		return spoolError(err)
	}
	if _, err := s.f.Seek(0, io.SeekStart); err != nil {
		return spoolError(err)
	}
	out.WriteByte('[')
	if _, err := io.Copy(out, s.f); err != nil {
		return spoolError(err) // an error of out has a code and keeps it
	}
	return out.WriteByte(']')
}

func (s *spool) remove() {
	if s == nil {
		return
	}
	s.f.Close()
}
