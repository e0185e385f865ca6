// Package atomicfile writes files that are either whole or not there: everything goes to a temporary file in the folder of the
// target, which takes the target's place in one step when it is complete and on the disk.
package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirstream/weir/codes"
)

// File is a file in the making. Close it with Commit or Discard. It is for one goroutine.
type File struct {
	target string // what the caller named, for messages
	final  string // where it ends: target with symbolic links followed
	f      *os.File
	direct bool // the target is a device or pipe, which nothing may replace
}

// Create starts a file that is to stand at path. perm is subject to the process's umask. A path that exists and is no regular file
// (a device, a pipe) is written directly. The error carries codes.OutputUnwritable.
func Create(path string, perm os.FileMode) (*File, error) {
	f := &File{target: path, final: path}
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return nil, codes.New(codes.OutputUnwritable, "%s is a folder; name a file", path)
		}
		if !info.Mode().IsRegular() {
			f.direct = true
			f.f, err = os.OpenFile(path, os.O_WRONLY, 0)
			return f, Unwritable(path, err)
		}
		// The link stays and what it points to is replaced, as writing through it would do.
		if final, err := filepath.EvalSymlinks(path); err == nil {
			f.final = final
		}
	}
	dir, base := filepath.Split(f.final)
	for n := 0; ; n++ {
		var err error
		f.f, err = os.OpenFile(filepath.Join(dir, fmt.Sprintf(".%s.%d-%d.tmp", base, os.Getpid(), n)), os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		return f, Unwritable(path, err)
	}
}

// Write appends to the file. The error carries codes.OutputUnwritable.
func (f *File) Write(p []byte) (int, error) {
	n, err := f.f.Write(p)
	return n, Unwritable(f.target, err)
}

// Commit makes the file stand at its path: it is on the disk before it takes the place of what stood there, and the folder's entry
// is on the disk when Commit returns. After an error nothing of it is left.
func (f *File) Commit() error {
	if f.direct {
		err := f.f.Close()
		f.f = nil
		return Unwritable(f.target, err)
	}
	err := f.f.Sync()
	if closeErr := f.f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.f.Name(), f.final)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(f.final))
	} else {
		os.Remove(f.f.Name())
	}
	f.f = nil
	return Unwritable(f.target, err)
}

// Discard leaves nothing behind. After Commit it does nothing, so that it can be deferred.
func (f *File) Discard() {
	if f.f == nil {
		return
	}
	f.f.Close()
	if !f.direct {
		os.Remove(f.f.Name())
	}
	f.f = nil
}

func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// Spool opens a file without a name in dir ("" is the system's temporary folder): its space comes back when it is closed, however
// the process ends. The error carries codes.OutputUnwritable.
func Spool(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".weir-spool-*")
	if err != nil {
		if dir == "" {
			dir = os.TempDir()
		}
		return nil, Unwritable(dir, err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, Unwritable(f.Name(), err)
	}
	return f, nil
}

// Unwritable gives err the code OutputUnwritable and a message that names the path; nil stays nil.
func Unwritable(path string, err error) error {
	var pathErr *fs.PathError
	var linkErr *os.LinkError
	switch {
	case err == nil:
		return nil
	case codes.Of(err) != nil:
		return err
	case errors.As(err, &pathErr):
		return codes.New(codes.OutputUnwritable, "%s cannot be written: %w", path, pathErr.Err)
	case errors.As(err, &linkErr):
		return codes.New(codes.OutputUnwritable, "%s cannot be written: %w", path, linkErr.Err)
	}
	return codes.New(codes.OutputUnwritable, "%s cannot be written: %w", path, err)
}

// Write makes a file with this content stand at path, whole or not at all. perm is subject to the process's umask. The error carries
// codes.OutputUnwritable.
func Write(path string, data []byte, perm os.FileMode) error {
	f, err := Create(path, perm)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Commit()
}
