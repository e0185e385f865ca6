package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sinks"
)

const day = 24 * time.Hour

// CheckEvery says whether folders can be made for each such stretch of event time: a day has to consist of them, and they of seconds. 0 is no folders.
// Errors: CONFIG_INVALID.
func CheckEvery(every time.Duration) error {
	if every != 0 && (every < time.Second || every%time.Second != 0 || day%every != 0) {
		return codes.New(codes.ConfigInvalid, "a sink of files cannot have a folder for every %v of event time: choose what a day consists of, such as 1h, 15m or 24h", every)
	}
	return nil
}

// levels are the folders of an event time, from the first to the one that tells stretches apart.
func levels(every time.Duration) (formats, columns []string) {
	formats, columns = []string{"date=2006-01-02", "hour=15", "minute=04", "second=05"}, []string{"date", "hour", "minute", "second"}
	n := 4
	switch {
	case every == 0:
		n = 0
	case every%day == 0:
		n = 1
	case every%time.Hour == 0:
		n = 2
	case every%time.Minute == 0:
		n = 3
	}
	return formats[:n], columns[:n]
}

// stretch is the number of the stretch of event time that a row is in.
func stretch(t record.EventTime, every time.Duration) int64 {
	n := int64(t) / int64(every)
	if int64(t)%int64(every) < 0 {
		n--
	}
	return n
}

// stretchFolder is where rows of a stretch are, from the run's folder on.
func stretchFolder(n int64, every time.Duration) string {
	formats, _ := levels(every)
	// The first stretch may begin before the first moment that is a number of nanoseconds.
	at := time.Unix(n*int64(every/time.Second), 0).UTC()
	names := make([]string, len(formats))
	for i, f := range formats {
		names[i] = at.Format(f)
	}
	return filepath.Join(names...)
}

// piece is rows of one partition that make one file. Round counts the pieces of a partition in one publication.
type piece struct {
	rows   []sinks.Rows
	folder string
	round  int
}

// pieces deals rows of one partition into files and calls fn with each: one, or one for each stretch of event time that follows another. What is given to
// fn is valid during the call.
func (w *writer) pieces(rows []sinks.Rows, fn func(piece) error) error {
	if w.cfg.Every == 0 {
		return fn(piece{rows: rows})
	}
	var open piece
	last := int64(0)
	var row partitions.Row
	for _, r := range rows {
		data, begin, from, number := r.Data, r.Data, r.From, r.From
		cut := func() {
			if number > from {
				open.rows = append(open.rows, sinks.Rows{Partition: r.Partition, From: from, Rows: partitions.Rows{Data: begin[:len(begin)-len(data)], Count: int(number - from)}})
			}
			begin, from = data, number
		}
		for ; number < r.End(); number++ {
			rest, err := partitions.DecodeRow(data, w.width, &row)
			if err != nil {
				return codes.New(codes.Internal, "row %d of partition %d cannot be published: %w", number, r.Partition, err)
			}
			if n := stretch(row.Time, w.cfg.Every); open.folder == "" || n != last {
				cut()
				if err := w.emit(&open, fn); err != nil {
					return err
				}
				open.folder, last = stretchFolder(n, w.cfg.Every), n
			}
			data = rest
		}
		if len(data) != 0 {
			return codes.New(codes.Internal, "rows of partition %d cannot be published: %w", r.Partition, partitions.ErrRows)
		}
		cut()
	}
	return w.emit(&open, fn)
}

// emit hands a piece over, if it has rows, and makes room for the next one.
func (w *writer) emit(p *piece, fn func(piece) error) error {
	if len(p.rows) == 0 {
		return nil
	}
	err := fn(*p)
	p.rows, p.round = p.rows[:0], p.round+1
	return err
}

// made makes a folder of the run, and all above it, so that they last. It remembers them.
func (w *writer) made(folder string) error {
	if folder == "." || w.known[folder] {
		return nil
	}
	if err := w.made(filepath.Dir(folder)); err != nil {
		return err
	}
	path := filepath.Join(w.folder, folder)
	if err := os.Mkdir(path, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return unwritable(path, err)
	}
	// It may be another process's that was killed before it did this.
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return unwritable(path, err)
	}
	const most = 1024
	if len(w.known) >= most {
		clear(w.known)
	}
	w.known[folder] = true
	return nil
}

// each calls fn with every file of the run that is of this format, with its folder.
func (w *writer) each(folder string, depth int, fn func(folder string, partition int32, from int64)) error {
	entries, err := os.ReadDir(filepath.Join(w.folder, folder))
	if err != nil {
		return unwritable(filepath.Join(w.folder, folder), err)
	}
	_, columns := levels(w.cfg.Every)
	for _, e := range entries {
		switch {
		case depth < len(columns) && e.IsDir() && strings.HasPrefix(e.Name(), columns[depth]+"="):
			if err := w.each(filepath.Join(folder, e.Name()), depth+1, fn); err != nil {
				return err
			}
		case depth == len(columns):
			if p, from, ok := w.place(e.Name()); ok {
				fn(folder, p, from)
			}
		}
	}
	return nil
}
