package logfile

import (
	"bytes"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
)

// verifier follows a log from its first byte to its last and checks what no single line shows: the order of lines, the numbering,
// the counts and the hash.
type verifier struct {
	name   string
	hash   hash.Hash
	line   int64 // lines seen
	seen   End
	audit  KindSet // faults that stand before the next arrival
	last   record.EventTime
	header Header
	end    *End
}

// lineFeed is here so that it is not allocated for every line.
var lineFeed = []byte{'\n'}

// lineKind says what a line holds.
type lineKind uint8

const (
	headerLine lineKind = iota
	faultLine
	arrivalLine
	endLine
)

func newVerifier(name string) *verifier {
	return &verifier{name: name, hash: sha256.New(), last: record.NoTime}
}

// check takes the next line. An arrival is put into a, a fault into f.
func (v *verifier) check(line []byte, a *Arrival, f *Fault) (lineKind, error) {
	v.line++
	if v.end != nil {
		return endLine, v.refuse(errors.New("something follows the end line"))
	}
	kind, err := v.read(line, a, f)
	if err != nil {
		return kind, v.refuse(err)
	}
	if kind == endLine {
		return kind, v.finish()
	}
	v.hash.Write(line)
	v.hash.Write(lineFeed)
	return kind, nil
}

func (v *verifier) read(line []byte, a *Arrival, f *Fault) (lineKind, error) {
	if bytes.HasPrefix(line, []byte(arrivalStart)) && v.line > 1 {
		return arrivalLine, v.arrival(line, a)
	}
	doc, err := parseOther(line)
	if err != nil {
		return headerLine, err
	}
	switch doc := doc.(type) {
	case Header:
		if v.line != 1 {
			return headerLine, errors.New("a second header")
		}
		v.header = doc
		return headerLine, nil
	case Fault:
		if *f = doc; f.N != v.seen.Arrivals {
			return faultLine, fmt.Errorf("a fault of arrival %d stands before arrival %d", f.N, v.seen.Arrivals)
		}
		v.audit |= SetOf(f.Kind)
		v.seen.FaultsApplied++
		return faultLine, v.afterHeader()
	case End:
		if v.end = &doc; v.audit != 0 {
			return endLine, errors.New("a fault stands before no arrival")
		}
		return endLine, v.afterHeader()
	}
	return headerLine, errors.New("not a line of an arrival log")
}

func (v *verifier) afterHeader() error {
	if v.line == 1 {
		return errors.New("the first line is not the header")
	}
	return nil
}

func (v *verifier) arrival(line []byte, a *Arrival) error {
	if err := parseArrival(line, a); err != nil {
		return err
	}
	if a.N != v.seen.Arrivals {
		return fmt.Errorf("arrival %d stands where arrival %d belongs", a.N, v.seen.Arrivals)
	}
	if a.Time < v.last {
		return fmt.Errorf("arrival %d at %v comes after one at %v", a.N, a.Time, v.last)
	}
	if v.audit&^a.Faults != 0 {
		return fmt.Errorf("arrival %d is not marked with a fault that stands before it", a.N)
	}
	v.last, v.audit = a.Time, 0
	v.seen.Arrivals++
	return nil
}

// errChanged says that a log is not what its end line says, though every line has its form.
var errChanged = errors.New("it was changed after it was built")

// finish compares the end line with what was seen.
func (v *verifier) finish() error {
	v.seen.LogHash = record.HashPrefix + hex.EncodeToString(v.hash.Sum(nil))
	switch {
	case v.end.Arrivals != v.seen.Arrivals:
		return v.refuse(fmt.Errorf("the end counts %d arrivals, the log holds %d", v.end.Arrivals, v.seen.Arrivals))
	case v.end.FaultsApplied != v.seen.FaultsApplied:
		return v.refuse(fmt.Errorf("the end counts %d faults, the log holds %d", v.end.FaultsApplied, v.seen.FaultsApplied))
	case v.end.LogHash != v.seen.LogHash:
		return v.refuse(fmt.Errorf("log_hash is %s, but the bytes of the log give %s: %w", v.end.LogHash, v.seen.LogHash, errChanged))
	}
	return nil
}

// cut is the error of a log that ends without an end line.
func (v *verifier) cut(err error) error {
	if err == io.EOF {
		err = errors.New("the end line is missing: the log was cut short")
	}
	v.line++
	return v.refuse(err)
}

func (v *verifier) refuse(err error) error {
	return codes.New(codes.LogInvalid, "%s:%d: %w", v.name, v.line, err)
}

// clone is a verifier that goes on from the same place.
func (v *verifier) clone() *verifier {
	c := *v
	c.hash = sha256.New()
	state, err := v.hash.(encoding.BinaryMarshaler).MarshalBinary()
	if err == nil {
		err = c.hash.(encoding.BinaryUnmarshaler).UnmarshalBinary(state)
	}
	if err != nil {
		panic("logfile: crypto/sha256 lost its state: " + err.Error()) // the standard library documents that it keeps it
	}
	return &c
}

// Reader reads a log from its first line to its last, once.
type Reader struct {
	lines  *lines
	verify *verifier
	fault  Fault
	faults []Fault
	err    error
	close  func() error
}

// NewReader reads the header of a log; name stands for it in errors. Errors carry codes.LogInvalid, or codes.FileMissing when r fails.
func NewReader(r io.Reader, name string) (*Reader, error) {
	lr := &Reader{lines: linesOf(r), verify: newVerifier(name), close: func() error { return nil }}
	if kind, err := lr.line(&Arrival{}); err != nil {
		return nil, err
	} else if kind != headerLine {
		return nil, lr.verify.refuse(errors.New("the first line is not the header"))
	}
	return lr, nil
}

// Open opens the log at path. The error carries codes.FileMissing or codes.LogInvalid.
func Open(path string) (*Reader, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	r, err := NewReader(f, path)
	if err != nil {
		f.Close()
		return nil, err
	}
	r.close = f.Close
	return r, nil
}

// Header is the log's header.
func (r *Reader) Header() Header { return r.verify.header }

// Next reads the next arrival; its slices are valid until the next call. It returns io.EOF after the last one, and only if the whole
// log is sound.
func (r *Reader) Next(a *Arrival) error {
	if r.err != nil {
		return r.err
	}
	r.faults = r.faults[:0]
	for {
		kind, err := r.line(a)
		if err == nil && kind == endLine {
			if err = r.nothingFollows(); err == nil {
				err = io.EOF
			}
		}
		if err != nil {
			r.err = err
			return err
		}
		if kind == arrivalLine {
			return nil
		}
	}
}

func (r *Reader) line(a *Arrival) (lineKind, error) {
	line, err := r.lines.next()
	if err != nil {
		return 0, r.failed(err)
	}
	kind, err := r.verify.check(line, a, &r.fault)
	if kind == faultLine {
		r.faults = append(r.faults, r.fault)
	}
	return kind, err
}

func (r *Reader) failed(err error) error {
	if err == io.EOF || err == errUnterminated || err == errLongLine {
		return r.verify.cut(err)
	}
	return codes.New(codes.FileMissing, "%s cannot be read: %w", r.verify.name, err)
}

func (r *Reader) nothingFollows() error {
	_, err := r.lines.next()
	if err == io.EOF {
		return nil
	}
	r.verify.line++
	return r.verify.refuse(errors.New("something follows the end line"))
}

// Faults are the audit lines that stand between the arrival read last and the one before it; after io.EOF, those after the last
// arrival. Valid until the next call of Next.
func (r *Reader) Faults() []Fault { return r.faults }

// End is what the end line says; it is zero before Next returned io.EOF.
func (r *Reader) End() End {
	if r.err != io.EOF {
		return End{}
	}
	return *r.verify.end
}

// Close closes what Open opened.
func (r *Reader) Close() error { return r.close() }

// Verify reads a whole log and returns its header and end. When the hash does not match, it looks for the first line that no Writer
// can have written, and names it in the error if there is one.
func Verify(path string) (Header, End, error) {
	r, err := Open(path)
	if err != nil {
		return Header{}, End{}, err
	}
	defer r.Close()
	var a Arrival
	for err == nil {
		err = r.Next(&a)
	}
	if errors.Is(err, errChanged) {
		if found := firstForeign(path); found != nil {
			err = found
		}
	}
	if err != io.EOF {
		return r.Header(), End{}, err
	}
	return r.Header(), r.End(), nil
}

// firstForeign finds the first line that is not canonical JSON. It decodes every line, which is why it is not done on each reading.
func firstForeign(path string) error {
	f, err := open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := linesOf(f)
	for n := 1; ; n++ {
		line, err := lines.next()
		if err != nil {
			return nil
		}
		if canonical, err := record.Canonical(line); err != nil {
			return codes.New(codes.LogInvalid, "%s:%d: it was changed after it was built: %w", path, n, err)
		} else if !bytes.Equal(canonical, line) {
			return codes.New(codes.LogInvalid, "%s:%d: it was changed after it was built: the line is not in canonical form", path, n)
		}
	}
}

// readEnd reads the end line of a log without reading the log.
func readEnd(f *os.File) (End, error) {
	info, err := f.Stat()
	if err != nil {
		return End{}, err
	}
	tail := make([]byte, min(info.Size(), 1024))
	if _, err := f.ReadAt(tail, info.Size()-int64(len(tail))); err != nil && err != io.EOF {
		return End{}, err
	}
	text, terminated := bytes.CutSuffix(tail, []byte{'\n'})
	if i := bytes.LastIndexByte(text, '\n'); i >= 0 && terminated {
		if end, err := parseOther(text[i+1:]); err == nil {
			if end, ok := end.(End); ok {
				return end, nil
			}
		}
	}
	return End{}, codes.New(codes.LogInvalid, "%s has no end line: it is no arrival log, or was cut short", f.Name())
}
