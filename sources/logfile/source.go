package logfile

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources"
)

// SourceConfig says how a log is presented.
type SourceConfig struct {
	// Partitions is the number of partitions, at least 1. Defaults to 1.
	Partitions int32
	// Faults makes each SOURCE_FAILURE of the log an error of Poll with codes.SourceFailure, once in the life of the Source: a reader
	// that is opened afterwards goes on where it was.
	Faults bool
	// Wait is called with the wall time of each PAUSE of the log, once in the life of the Source, after everything before the arrival
	// was delivered. It returns when the time is over or ctx ends. Nil ignores the pauses.
	Wait func(ctx context.Context, d time.Duration) error
}

// Source is a bounded log file as a source. Several readers may be open at once.
type Source struct {
	path string
	cfg  SourceConfig

	mu     sync.Mutex
	failed map[int64]bool // arrivals whose failure was delivered
	waited map[int64]bool // arrivals whose pause was waited for
	marks  []mark         // places from which a reader can start
	stamp  stamp          // of the file that the marks are of
}

// mark is a place in the file with everything that was known there, so that a reader that goes on far into a log need not read all
// that stands before it.
type mark struct {
	verify *verifier
	at     int64
	counts []int64 // arrivals of each partition before at
}

// markEvery is the distance of marks in arrivals. A mark takes about 300 bytes and 8 for each partition.
const markEvery = 1 << 15

// stamp notices that a file was written anew.
type stamp struct {
	size int64
	mod  time.Time
}

// NewSource presents the log at path as a source. The file is not looked at before Info or Open.
func NewSource(path string, cfg SourceConfig) *Source {
	cfg.Partitions = max(cfg.Partitions, 1)
	return &Source{path: path, cfg: cfg, failed: map[int64]bool{}, waited: map[int64]bool{}}
}

// Info reads the log's end line: the id is the log hash, which is checked when the log is read, and the name is the path, followed by
// the number of partitions unless there is one. A log that is dealt to another number of partitions has other positions, so it goes by
// another name: a run that would resume there is refused. The error carries codes.FileMissing or codes.LogInvalid.
func (s *Source) Info(ctx context.Context) (sources.Info, error) {
	if err := ctx.Err(); err != nil {
		return sources.Info{}, err
	}
	f, err := open(s.path)
	if err != nil {
		return sources.Info{}, err
	}
	defer f.Close()
	end, err := readEnd(f)
	if err != nil {
		return sources.Info{}, err
	}
	info := sources.Info{Name: s.path, ID: end.LogHash, Bounded: true, Hashed: true}
	if s.cfg.Partitions > 1 {
		info.Name = fmt.Sprintf("%s (%d partitions)", s.path, s.cfg.Partitions)
	}
	for p := range s.cfg.Partitions {
		info.Partitions = append(info.Partitions, p)
	}
	return info, nil
}

// Open starts a reader. What stands before the positions is read and checked too, but not delivered. Errors carry
// codes.FileMissing, codes.TopicMissing for a partition that does not exist, or codes.LogInvalid.
func (s *Source) Open(ctx context.Context, from map[int32]record.Position) (sources.Reader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := &sourceReader{src: s, parts: make([]partition, s.cfg.Partitions), closed: make(chan struct{}), changed: make(chan struct{}, 1)}
	for _, p := range slices.Sorted(maps.Keys(from)) {
		if p < 0 || p >= s.cfg.Partitions {
			return nil, codes.New(codes.TopicMissing, "%s is read as %d partitions and has no partition %d", s.path, s.cfg.Partitions, p)
		}
		n, ok := from[p].Int64()
		if !ok {
			return nil, codes.New(codes.LogInvalid, "%s has no position %s in partition %d", s.path, from[p], p)
		}
		r.parts[p].wanted, r.parts[p].from = true, n
	}
	f, err := open(s.path)
	if err != nil {
		return nil, err
	}
	r.file, r.lines = f, linesAt(f)
	if err := s.start(r, f); err != nil {
		f.Close()
		return nil, err
	}
	return r, nil
}

// start puts a reader at the last mark that stands before all of its positions, or at the beginning of the file.
func (s *Source) start(r *sourceReader, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return codes.New(codes.FileMissing, "the arrival log cannot be read: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := (stamp{info.Size(), info.ModTime()}); now != s.stamp {
		s.stamp, s.marks = now, nil
	}
	r.stamp = s.stamp
	r.front, r.frontCounts, r.nextMark = newVerifier(s.path), make([]int64, len(r.parts)), markEvery
	for i := len(s.marks) - 1; i >= 0; i-- {
		if m := s.marks[i]; r.after(m.counts) {
			r.front, r.frontAt, r.frontCounts = m.verify.clone(), m.at, slices.Clone(m.counts)
			r.nextMark = r.front.seen.Arrivals + markEvery
			for p := range r.parts {
				r.parts[p].at, r.parts[p].count = m.at, m.counts[p]
			}
			break
		}
	}
	return nil
}

// keep remembers a place that a reader has come to.
func (s *Source) keep(of stamp, m mark) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of != s.stamp {
		return
	}
	if n := len(s.marks); n == 0 || s.marks[n-1].at < m.at {
		m.verify, m.counts = m.verify.clone(), slices.Clone(m.counts)
		s.marks = append(s.marks, m)
	}
}

// happened says whether something of an arrival has happened.
func (s *Source) happened(of map[int64]bool, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return of[n]
}

// first says whether something of an arrival happens for the first time, and remembers it.
func (s *Source) first(of map[int64]bool, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of[n] {
		return false
	}
	of[n] = true
	return true
}
