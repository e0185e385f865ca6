package logfile

import (
	"bytes"
	"errors"
	"io"
)

var (
	errUnterminated = errors.New("the last line does not end with a line feed: the log was cut short")
	errLongLine     = errors.New("a line is longer than an arrival log allows")
)

// A buffer starts small, for a log may be, and grows to the longest line and to readAhead.
const (
	firstRead = 16 << 10
	readAhead = 256 << 10
)

// lines reads the lines of a file from any offset. It holds one buffer, which grows to the longest line.
type lines struct {
	read func(p []byte, off int64) (int, error)
	// at is the offset of the next line, start and end what of the buffer stands from there on.
	at         int64
	buf        []byte
	start, end int
	eof        bool
}

func linesOf(r io.Reader) *lines {
	return &lines{read: func(p []byte, _ int64) (int, error) { return r.Read(p) }}
}

func linesAt(r io.ReaderAt) *lines { return &lines{read: r.ReadAt} }

// seek goes to the line that starts at an offset. What is buffered of it is used.
func (l *lines) seek(off int64) {
	if d := off - l.at; d >= int64(-l.start) && d <= int64(l.end-l.start) {
		l.start += int(d)
	} else {
		l.start, l.end, l.eof = 0, 0, false
	}
	l.at = off
}

// next returns the next line without its line feed, valid until the next call, or io.EOF at the end of the file.
func (l *lines) next() ([]byte, error) {
	for scanned := 0; ; {
		if i := bytes.IndexByte(l.buf[l.start+scanned:l.end], '\n'); i >= 0 {
			line := l.buf[l.start : l.start+scanned+i]
			l.start += len(line) + 1
			l.at += int64(len(line) + 1)
			return line, nil
		}
		scanned = l.end - l.start
		switch {
		case l.eof && scanned == 0:
			return nil, io.EOF
		case l.eof:
			return nil, errUnterminated
		case scanned > MaxLine:
			return nil, errLongLine
		}
		if err := l.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads more behind what is there.
func (l *lines) fill() error {
	if l.start > 0 {
		copy(l.buf, l.buf[l.start:l.end])
		l.start, l.end = 0, l.end-l.start
	}
	if l.end == len(l.buf) || l.at > 0 && len(l.buf) < readAhead {
		grown := make([]byte, max(firstRead, 2*len(l.buf)))
		copy(grown, l.buf[:l.end])
		l.buf = grown
	}
	n, err := l.read(l.buf[l.end:], l.at+int64(l.end-l.start))
	l.end += n
	if err == io.EOF {
		l.eof = true
		err = nil
	}
	return err
}
