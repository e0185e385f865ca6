package logfile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/atomicfile"
	"github.com/weirstream/weir/record"
)

// flushAt is how much a Writer collects before it writes.
const flushAt = 256 << 10

// Writer writes a log, line by line. It holds no more than a buffer.
type Writer struct {
	w    io.Writer
	buf  []byte
	hash hash.Hash
	end  End
	// audit holds the faults that were written for the next arrival.
	audit KindSet
	last  record.EventTime
	err   error
}

// NewWriter starts a log with its header. The log is complete only after Finish.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	lw := &Writer{w: w, hash: sha256.New(), last: record.NoTime}
	var err error
	if lw.buf, err = appendHeader(make([]byte, 0, flushAt+flushAt/4), h); err != nil {
		return nil, codes.New(codes.LogInvalid, "the header of an arrival log: %w", err)
	}
	return lw, lw.endLine()
}

// Fault writes the audit of a fault that touches the next arrival.
func (w *Writer) Fault(f *Fault) error {
	if w.err != nil {
		return w.err
	}
	line := *f
	line.N = w.end.Arrivals
	buf, err := appendFault(w.buf, &line)
	if err != nil {
		return w.fail("the fault %s of event %.80q: %w", f.Kind, f.EventID, err)
	}
	w.buf = buf
	w.audit |= SetOf(f.Kind)
	w.end.FaultsApplied++
	return w.endLine()
}

// Arrival writes the next arrival and sets its number. Its value must be in canonical form. Arrivals come in the order of their time.
func (w *Writer) Arrival(a *Arrival) error {
	if w.err != nil {
		return w.err
	}
	a.N = w.end.Arrivals
	if err := checkArrival(a); err != nil {
		return w.fail("%w", err)
	}
	if w.audit&^a.Faults != 0 {
		return w.fail("arrival %d is not marked with a fault that was written for it", a.N)
	}
	if a.Time < w.last {
		return w.fail("arrival %d at %v comes after one at %v", a.N, a.Time, w.last)
	}
	at := len(w.buf)
	if w.buf = appendArrival(w.buf, a); len(w.buf)-at > MaxLine {
		return w.fail("arrival %d, event %.80q: its line is longer than %d bytes", a.N, a.EventID, MaxLine)
	}
	w.last, w.audit = a.Time, 0
	w.end.Arrivals++
	return w.endLine()
}

// Finish writes the end line and returns what it says. The writer is done then.
func (w *Writer) Finish() (End, error) {
	if w.err == nil && w.audit != 0 {
		w.fail("a fault was written for an arrival that did not come")
	}
	if w.err == nil {
		w.flush()
	}
	if w.err != nil {
		return End{}, w.err
	}
	w.end.LogHash = record.HashPrefix + hex.EncodeToString(w.hash.Sum(nil))
	w.buf, _ = appendEnd(w.buf, w.end) // integers and a hash: always encodable
	w.buf = append(w.buf, '\n')
	if w.flush(); w.err != nil {
		return End{}, w.err
	}
	w.err = fmt.Errorf("logfile: the log is finished")
	return w.end, nil
}

func (w *Writer) endLine() error {
	if w.buf = append(w.buf, '\n'); len(w.buf) >= flushAt {
		w.flush()
	}
	return w.err
}

func (w *Writer) flush() {
	w.hash.Write(w.buf)
	_, w.err = w.w.Write(w.buf)
	if w.buf = w.buf[:0]; cap(w.buf) > 4*flushAt {
		w.buf = make([]byte, 0, flushAt+flushAt/4) // one giant value must not stay
	}
}

func (w *Writer) fail(format string, args ...any) error {
	w.err = codes.New(codes.LogInvalid, format, args...)
	return w.err
}

// File is a log that is written to a file, which stands at its path once it is complete, and not before.
type File struct {
	*Writer
	f *atomicfile.File
}

// Create starts a log that is to stand at path.
func Create(path string, h Header) (*File, error) {
	f, err := atomicfile.Create(path, 0o644)
	if err != nil {
		return nil, err
	}
	w, err := NewWriter(f, h)
	if err != nil {
		f.Discard()
		return nil, err
	}
	return &File{Writer: w, f: f}, nil
}

// Commit finishes the log and puts it in its place.
func (f *File) Commit() (End, error) {
	end, err := f.Finish()
	if err != nil {
		f.f.Discard()
		return End{}, err
	}
	return end, f.f.Commit()
}

// Discard leaves nothing behind. After Commit it does nothing.
func (f *File) Discard() { f.f.Discard() }

// open opens a log for reading. The error carries codes.FileMissing.
func open(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, codes.New(codes.FileMissing, "the arrival log cannot be opened: %w", err)
	}
	if info, err := f.Stat(); err != nil || info.IsDir() {
		f.Close()
		return nil, codes.New(codes.FileMissing, "%s is not an arrival log but a folder", path)
	}
	return f, nil
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

func appendMillis(dst []byte, d time.Duration) []byte { return appendInt(dst, d.Milliseconds()) }
