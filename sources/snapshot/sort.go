package snapshot

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

const (
	// DefaultMemory is how many bytes of rows are sorted at once.
	DefaultMemory = 64 << 20
	// fanIn bounds the runs that are merged at once, and with them open files and buffers.
	fanIn    = 64
	runAhead = 64 << 10
)

// sorter puts rows in the order of (time, id); rows that are equal in both keep the order of the file. What does not fit memory goes
// to files without a name.
type sorter struct {
	memory int
	dir    string
	arena  []byte // encoded rows
	items  []item
	runs   []*os.File
}

// item is a row in the arena.
type item struct {
	time    record.EventTime
	id      []byte // aliases the arena
	at, end int
}

// itemBytes is what an item takes beside its row.
const itemBytes = 48

// add takes a row. The error carries codes.OutputUnwritable.
func (s *sorter) add(row *Row) error {
	if need := len(s.arena) + rowBytes(row) + itemBytes*(len(s.items)+1); need > s.memory && len(s.items) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
	}
	if s.arena == nil {
		s.arena = make([]byte, 0, min(s.memory, 1<<20))
	}
	at := len(s.arena)
	s.arena = appendRow(s.arena, row)
	s.items = append(s.items, item{time: row.Time, at: at, end: len(s.arena)})
	return nil
}

// order sorts what is in memory. The ids are found only now, when the arena does not move any more.
func (s *sorter) order() error {
	var row Row
	for i := range s.items {
		it := &s.items[i]
		if err := decodeRow(s.arena[it.at:it.end], &row); err != nil {
			return err
		}
		it.id = row.ID
	}
	slices.SortFunc(s.items, func(a, b item) int {
		if c := cmp.Compare(a.time, b.time); c != 0 {
			return c
		}
		if c := bytes.Compare(a.id, b.id); c != 0 {
			return c
		}
		return cmp.Compare(a.at, b.at)
	})
	return nil
}

// spill writes what is in memory as a run.
func (s *sorter) spill() error {
	if err := s.order(); err != nil {
		return err
	}
	err := s.run(func(w *bufio.Writer) error {
		for _, it := range s.items {
			if err := writeRow(w, s.arena[it.at:it.end]); err != nil {
				return err
			}
		}
		return nil
	})
	s.arena, s.items = s.arena[:0], s.items[:0]
	if err == nil && len(s.runs) == fanIn {
		err = s.shrink()
	}
	return err
}

// run adds a file that write fills.
func (s *sorter) run(write func(*bufio.Writer) error) error {
	f, err := unnamed(s.dir)
	if err != nil {
		return s.noRoom(err)
	}
	s.runs = append(s.runs, f)
	w := bufio.NewWriterSize(f, runAhead)
	if err = write(w); err == nil {
		err = w.Flush()
	}
	if err != nil && codes.Of(err) == nil {
		err = s.noRoom(err)
	}
	return err
}

// unnamed opens a file whose space comes back when it is closed, however the process ends.
func unnamed(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".weir-sort-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (s *sorter) noRoom(err error) error {
	return codes.New(codes.OutputUnwritable, "the snapshot is not in order, and there is no room to sort it in %s: %w", cmp.Or(s.dir, os.TempDir()), err)
}

// shrink merges all runs into one.
func (s *sorter) shrink() error {
	merged := mergeRuns(s.runs)
	s.runs = nil
	defer merged.close()
	return s.run(func(w *bufio.Writer) error {
		var buf []byte
		var row Row
		for {
			if err := merged.next(&row); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			buf = appendRow(buf[:0], &row)
			if err := writeRow(w, buf); err != nil {
				return err
			}
		}
	})
}

// finish ends the adding and gives the rows in order. The sorter's memory and files go to what is returned.
func (s *sorter) finish() (sortedRows, error) {
	if len(s.runs) == 0 {
		if err := s.order(); err != nil {
			return nil, err
		}
		return &memoryRows{arena: s.arena, items: s.items}, nil
	}
	if len(s.items) > 0 {
		if err := s.spill(); err != nil {
			return nil, err
		}
	}
	merged := mergeRuns(s.runs)
	s.arena, s.items, s.runs = nil, nil, nil
	return merged, nil
}

// close gives the files back.
func (s *sorter) close() {
	for _, f := range s.runs {
		f.Close()
	}
	s.runs = nil
}

// sortedRows are rows in order. close gives their files back.
type sortedRows interface {
	rowReader
	close()
}

// memoryRows are rows that fitted memory.
type memoryRows struct {
	arena []byte
	items []item
}

func (m *memoryRows) next(row *Row) error {
	if len(m.items) == 0 {
		return io.EOF
	}
	it := m.items[0]
	m.items = m.items[1:]
	return decodeRow(m.arena[it.at:it.end], row)
}

func (m *memoryRows) close() { *m = memoryRows{} }

// mergedRows merges runs, earlier runs first among equals.
type mergedRows struct {
	heap []*runReader
	last *runReader // whose row was handed out, and which has to go on before the next
	err  error      // of the first rows
}

// runReader reads one run.
type runReader struct {
	f     *os.File
	r     *bufio.Reader
	index int
	buf   []byte
	row   Row
}

func mergeRuns(runs []*os.File) *mergedRows {
	m := &mergedRows{}
	for i, f := range runs {
		run := &runReader{f: f, r: bufio.NewReaderSize(io.NewSectionReader(f, 0, 1<<62), runAhead), index: i}
		m.heap = append(m.heap, run)
	}
	for i, run := range m.heap {
		if err := run.next(); err != nil { // a run is never empty
			m.err = err
			return m
		}
		m.up(i)
	}
	return m
}

func (m *mergedRows) next(row *Row) error {
	if m.err != nil {
		return m.err
	}
	if m.last != nil {
		if err := m.advance(); err != nil {
			m.err = err
			return err
		}
	}
	if len(m.heap) == 0 {
		m.err = io.EOF
		return io.EOF
	}
	m.last = m.heap[0]
	*row = m.last.row
	return nil
}

// advance reads the next row of the run at the top of the heap.
func (m *mergedRows) advance() error {
	switch err := m.last.next(); err {
	case nil:
	case io.EOF:
		m.last.f.Close()
		n := len(m.heap) - 1
		m.heap[0] = m.heap[n]
		m.heap = m.heap[:n]
	default:
		return err
	}
	m.last = nil
	m.down()
	return nil
}

func (m *mergedRows) close() {
	for _, run := range m.heap {
		run.f.Close()
	}
	m.heap, m.last = nil, nil
	if m.err == nil {
		m.err = io.EOF
	}
}

func (m *mergedRows) less(i, j int) bool {
	a, b := m.heap[i], m.heap[j]
	if a.row.Time != b.row.Time {
		return a.row.Time < b.row.Time
	}
	if c := bytes.Compare(a.row.ID, b.row.ID); c != 0 {
		return c < 0
	}
	return a.index < b.index
}

func (m *mergedRows) up(i int) {
	for i > 0 && m.less(i, (i-1)/2) {
		m.heap[i], m.heap[(i-1)/2] = m.heap[(i-1)/2], m.heap[i]
		i = (i - 1) / 2
	}
}

func (m *mergedRows) down() {
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(m.heap); child++ {
			if m.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		m.heap[i], m.heap[least] = m.heap[least], m.heap[i]
		i = least
	}
}

func (r *runReader) next() error {
	n, err := binary.ReadUvarint(r.r)
	if err == io.EOF {
		return io.EOF
	}
	if err == nil {
		r.buf = slices.Grow(r.buf[:0], int(n))[:n]
		_, err = io.ReadFull(r.r, r.buf)
	}
	if err != nil {
		return codes.New(codes.Internal, "a file for sorting cannot be read back: %w", err)
	}
	return decodeRow(r.buf, &r.row)
}

// A row is encoded as its time and line in 8 bytes each, its id, key and value, each but the last with a uvarint length.

func rowBytes(row *Row) int {
	return 16 + 2*binary.MaxVarintLen32 + len(row.ID) + len(row.Key) + len(row.Value)
}

func appendRow(dst []byte, row *Row) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(row.Time))
	dst = binary.BigEndian.AppendUint64(dst, uint64(row.Line))
	for _, b := range [][]byte{row.ID, row.Key} {
		dst = append(binary.AppendUvarint(dst, uint64(len(b))), b...)
	}
	return append(dst, row.Value...)
}

var errRow = errors.New("a row that was kept for sorting is damaged")

func decodeRow(b []byte, row *Row) error {
	if len(b) < 16 {
		return errRow
	}
	row.Time = record.EventTime(binary.BigEndian.Uint64(b))
	row.Line = int64(binary.BigEndian.Uint64(b[8:]))
	b = b[16:]
	for _, field := range []*[]byte{&row.ID, &row.Key} {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) {
			return errRow
		}
		*field, b = b[w:w+int(n):w+int(n)], b[w+int(n):]
	}
	row.Value = b
	return nil
}

func writeRow(w *bufio.Writer, encoded []byte) error {
	var size [binary.MaxVarintLen64]byte
	if _, err := w.Write(size[:binary.PutUvarint(size[:], uint64(len(encoded)))]); err != nil {
		return err
	}
	_, err := w.Write(encoded)
	return err
}
