package emit

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/internal/atomicfile"
	"github.com/weirstream/weir/partitions"
)

// Spool keeps the rows of one partition in a file without a name until they can be merged: each piece is its length (uvarint) and
// its bytes.
type Spool struct {
	f   *os.File
	buf *bufio.Writer
	n   [binary.MaxVarintLen64]byte
}

// NewSpool opens a spool in the folder of a target file, or in the system's temporary folder for "" or a device.
func NewSpool(beside string) (*Spool, error) {
	f, err := scratch(beside)
	if err != nil {
		return nil, err
	}
	return &Spool{f: f, buf: bufio.NewWriterSize(f, 1<<16)}, nil
}

// scratch opens a file without a name on the disk that will hold the target.
func scratch(beside string) (*os.File, error) {
	dir := ""
	switch info, err := os.Stat(beside); {
	case beside == "":
	case err != nil || info.Mode().IsRegular():
		dir = filepath.Dir(beside)
	case info.IsDir():
		return nil, codes.New(codes.OutputUnwritable, "%s is a folder; name a file", beside)
	}
	return atomicfile.Spool(dir)
}

// Append adds rows.
func (s *Spool) Append(rows partitions.Rows) error {
	if rows.Count == 0 {
		return nil
	}
	n := binary.PutUvarint(s.n[:], uint64(len(rows.Data)))
	s.buf.Write(s.n[:n])
	_, err := s.buf.Write(rows.Data)
	return spoolError(err)
}

// Run reads the rows back; nothing may be appended meanwhile.
func (s *Spool) Run() Run {
	return func(yield func([]byte, error) bool) {
		if err := s.each(func(piece []byte) bool { return yield(piece, nil) }); err != nil {
			yield(nil, spoolError(err))
		}
	}
}

func (s *Spool) each(yield func([]byte) bool) error {
	if err := s.buf.Flush(); err != nil {
		return err
	}
	if _, err := s.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(s.f, 1<<16)
	var piece []byte
	for {
		n, err := binary.ReadUvarint(in)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if uint64(cap(piece)) < n {
			piece = make([]byte, n)
		}
		piece = piece[:n]
		if _, err := io.ReadFull(in, piece); err != nil {
			return err
		}
		if !yield(piece) {
			return nil
		}
	}
}

// Close gives the space back.
func (s *Spool) Close() { s.f.Close() }
