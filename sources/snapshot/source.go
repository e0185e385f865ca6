package snapshot

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// Format is the format of a snapshot.
type Format uint8

// The formats.
const (
	// Auto tells the format by the extension, then by the first character.
	Auto Format = iota
	JSONLines
	CSV
)

// Config says what to read.
type Config struct {
	Path string
	// Open opens the file, several times. Path is then only its name, for messages and for the format. Defaults to os.Open of Path.
	Open   func() (*os.File, error)
	Format Format
	// Fields defaults to DefaultFields.
	Fields Fields
	// Memory bounds the rows that are held for sorting, in bytes. Defaults to DefaultMemory.
	Memory int
	// TempDir is where rows that are sorted go beyond that. Defaults to the system's temporary folder.
	TempDir string
}

// Source is a snapshot as a bounded source of one partition, 0. Positions count the rows in their order from 0, records have no
// arrival time, and the header event_id holds the event id.
type Source struct {
	cfg Config

	mu      sync.Mutex
	checked *checked
}

// checked is what the first pass found.
type checked struct {
	size    int64
	mod     time.Time
	hash    string
	rows    int64
	ordered bool
}

// New makes a source. The file is not looked at yet.
func New(cfg Config) *Source {
	if cfg.Fields.ID == "" && cfg.Fields.Key == "" && cfg.Fields.Time == "" {
		cfg.Fields = DefaultFields()
	}
	if cfg.Memory <= 0 {
		cfg.Memory = DefaultMemory
	}
	if cfg.Open == nil {
		cfg.Open = func() (*os.File, error) { return os.Open(cfg.Path) }
	}
	return &Source{cfg: cfg}
}

// Path is the file's.
func (s *Source) Path() string { return s.cfg.Path }

// Fields of the rows.
func (s *Source) Fields() Fields { return s.cfg.Fields }

// Hash is "sha256:" and the hex SHA-256 of the file's bytes. Like Count it makes the first pass if that has not been made.
func (s *Source) Hash(ctx context.Context) (string, error) {
	c, err := s.check(ctx)
	if err != nil {
		return "", err
	}
	return c.hash, nil
}

// Count is the number of rows.
func (s *Source) Count(ctx context.Context) (int64, error) {
	c, err := s.check(ctx)
	if err != nil {
		return 0, err
	}
	return c.rows, nil
}

// Info checks the whole file: the name is the path and the id the file's hash. The error carries codes.FileMissing or
// codes.SnapshotInvalid.
func (s *Source) Info(ctx context.Context) (sources.Info, error) {
	c, err := s.check(ctx)
	if err != nil {
		return sources.Info{}, err
	}
	return sources.Info{Name: s.cfg.Path, ID: c.hash, Partitions: []int32{0}, Bounded: true, Hashed: true}, nil
}

// check makes the first pass, once for a file that does not change.
func (s *Source) check(ctx context.Context) (*checked, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := s.open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, codes.New(codes.FileMissing, "the snapshot cannot be read: %w", err)
	}
	if c := s.checked; c != nil && c.size == info.Size() && c.mod.Equal(info.ModTime()) {
		return c, nil
	}
	s.checked = nil
	c := &checked{size: info.Size(), mod: info.ModTime(), ordered: true}
	if err := s.pass(ctx, f, c); err != nil {
		return nil, err
	}
	s.checked = c
	return c, nil
}

// pass reads every row, hashes every byte and sees whether the rows are in order.
func (s *Source) pass(ctx context.Context, f *os.File, c *checked) error {
	hash := sha256.New()
	rows, err := s.reader(io.TeeReader(f, hash))
	if err != nil {
		return err
	}
	var row Row
	last, lastID := record.NoTime, []byte(nil)
	for ; ; c.rows++ {
		if c.rows%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := rows.next(&row); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		if row.before(last, lastID) {
			c.ordered = false
		}
		last, lastID = row.Time, append(lastID[:0], row.ID...)
	}
	c.hash = record.HashPrefix + hex.EncodeToString(hash.Sum(nil))
	return nil
}

func (s *Source) open() (*os.File, error) {
	f, err := s.cfg.Open()
	if err != nil {
		return nil, codes.New(codes.FileMissing, "the snapshot cannot be opened: %w", err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, codes.New(codes.FileMissing, "the snapshot %s is no regular file; it is read twice", s.cfg.Path)
	}
	return f, nil
}

// reader reads rows in the order of the file.
func (s *Source) reader(r io.Reader) (rowReader, error) {
	in, err := newInput(s.cfg.Path, r)
	if err != nil {
		return nil, err
	}
	format := s.cfg.Format
	if format == Auto {
		if format, err = tell(s.cfg.Path, in.r); err != nil {
			return nil, err
		}
	}
	if format == CSV {
		return newCSVRows(in, s.cfg.Fields)
	}
	return newJSONRows(in, s.cfg.Fields), nil
}

// tell tells the format by the name, then by the first character.
func tell(path string, r *bufio.Reader) (Format, error) {
	head, err := r.Peek(512)
	if err != nil && err != io.EOF {
		return Auto, codes.New(codes.FileMissing, "%s cannot be read: %w", path, err)
	}
	if bytes.HasPrefix(head, []byte{0x1f, 0x8b}) {
		return Auto, codes.New(codes.SnapshotInvalid, "%s is compressed; unpack it first", path)
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".jsonl", ".ndjson", ".json":
		return JSONLines, nil
	case ".csv":
		return CSV, nil
	}
	if head = trimJSON(head); len(head) == 0 || head[0] == '{' {
		return JSONLines, nil
	}
	return CSV, nil
}

// Rows are the rows of a snapshot in the order of (event time, event id).
type Rows struct {
	ctx     context.Context
	rows    rowReader
	release func()
	name    string
	left    int64 // rows that are still to come
	read    int64
	last    record.EventTime
	lastID  []byte
	err     error
}

// Rows checks the file if that has not been done, sorts it if it is not in order, and reads it. ctx ends the reading too. Errors
// carry codes.FileMissing, codes.SnapshotInvalid or, when there is no room to sort, codes.OutputUnwritable.
func (s *Source) Rows(ctx context.Context) (*Rows, error) {
	c, err := s.check(ctx)
	if err != nil {
		return nil, err
	}
	f, err := s.open()
	if err != nil {
		return nil, err
	}
	rows, err := s.reader(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	r := &Rows{ctx: ctx, rows: rows, release: func() { f.Close() }, name: s.cfg.Path, left: c.rows, last: record.NoTime}
	if c.ordered {
		return r, nil
	}
	defer f.Close()
	sorted, err := s.sort(ctx, rows)
	if err != nil {
		return nil, err
	}
	r.rows, r.release = sorted, sorted.close
	return r, nil
}

// Locate names the line of the row at a position of partition 0 as PATH:LINE. It reads the snapshot again up to there. Errors are those
// of Rows, and codes.SnapshotInvalid for a position that no row has.
func (s *Source) Locate(ctx context.Context, partition int32, at record.Position) (string, error) {
	n, ok := at.Int64()
	if !ok || partition != 0 {
		return "", codes.New(codes.SnapshotInvalid, "%s has no position %s in partition %d", s.cfg.Path, at, partition)
	}
	rows, err := s.Rows(ctx)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var row Row
	for range n + 1 {
		if err := rows.Next(&row); err == io.EOF {
			return "", codes.New(codes.SnapshotInvalid, "%s has no row %d", s.cfg.Path, n)
		} else if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s:%d", s.cfg.Path, row.Line), nil
}

func (s *Source) sort(ctx context.Context, rows rowReader) (sortedRows, error) {
	sorter := &sorter{memory: s.cfg.Memory, dir: s.cfg.TempDir}
	defer sorter.close()
	var row Row
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := rows.next(&row); err == io.EOF {
			return sorter.finish()
		} else if err != nil {
			return nil, err
		}
		if err := sorter.add(&row); err != nil {
			return nil, err
		}
	}
}

// errChanged is reported when the second pass does not find what the first one found.
var errChanged = errors.New("the file was changed while it was read")

// Next reads the next row; its slices are valid until the next call. It returns io.EOF after the last.
func (r *Rows) Next(row *Row) error {
	if r.err == nil && r.read%1024 == 0 {
		r.err = r.ctx.Err()
	}
	if r.err != nil {
		return r.err
	}
	switch err := r.rows.next(row); {
	case err == io.EOF && r.left > 0, err == nil && (r.left == 0 || row.before(r.last, r.lastID)):
		r.err = codes.New(codes.SnapshotInvalid, "%s: %w", r.name, errChanged)
		return r.err
	case err != nil:
		r.err = err
		return err
	}
	r.left--
	r.read++
	r.last, r.lastID = row.Time, append(r.lastID[:0], row.ID...)
	return nil
}

// Close gives files and memory back. It may be called more than once.
func (r *Rows) Close() {
	if r.release != nil {
		r.release()
		r.release = nil
	}
	r.err = cmp.Or(r.err, io.EOF)
}
