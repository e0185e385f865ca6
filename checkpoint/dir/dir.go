package dir

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
)

const (
	folder    = "sha256"
	temporary = ".tmp-"
	// abandoned is the age from which a temporary file belongs to nobody.
	abandoned = time.Hour
)

// Store is a blob store in a folder. It may be used by several processes at once.
type Store struct {
	root *os.Root
	// owner is the store that the folder is marked with, path what its messages may name.
	owner, path string
	// hook is called between the steps of a method, with the step's name. Tests fail or kill there.
	hook func(step string) error
}

var _ checkpoint.Blobs = (*Store)(nil)

// Open opens the store in a folder, which it makes if it is not there. The error carries OutputUnwritable.
func Open(path string) (*Store, error) {
	at := filepath.Join(path, folder)
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, codes.New(codes.OutputUnwritable, "the folder of artefacts %s cannot be made: %w", path, checkpoint.Bare(err))
	}
	if info, err := os.Lstat(at); err != nil || !info.IsDir() {
		return nil, codes.New(codes.OutputUnwritable, "the folder of artefacts %s has a %q that is no folder", path, folder)
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		return nil, codes.New(codes.OutputUnwritable, "the folder of artefacts %s cannot be opened: %w", path, checkpoint.Bare(err))
	}
	s := &Store{root: root, path: path}
	if err := s.sweep(time.Now().Add(-abandoned)); err != nil {
		return nil, errors.Join(codes.New(codes.OutputUnwritable, "the folder of artefacts %s cannot be read: %w", path, checkpoint.Bare(err)), root.Close())
	}
	return s, nil
}

// Close gives the folder's handle back. Readers that are open stay good.
func (s *Store) Close() error { return s.root.Close() }

// sweep removes temporary files that were last written to before a time.
func (s *Store) sweep(before time.Time) error {
	entries, err := s.entries()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), temporary) || !e.Type().IsRegular() {
			continue
		}
		if info, err := s.root.Lstat(e.Name()); err == nil && info.ModTime().Before(before) {
			_ = s.root.Remove(e.Name()) // another process may have been faster
		}
	}
	return nil
}

func (s *Store) entries() ([]fs.DirEntry, error) { return s.entriesOf(".") }

func (s *Store) entriesOf(folder string) ([]fs.DirEntry, error) {
	d, err := s.root.Open(folder)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.ReadDir(-1)
}

func (s *Store) step(name string) error {
	if s.hook == nil {
		return nil
	}
	return s.hook(name)
}

// Put implements checkpoint.Blobs.
func (s *Store) Put(ctx context.Context, r io.Reader) (checkpoint.Info, error) {
	name := temporary + rand.Text()
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return checkpoint.Info{}, unwritable(err)
	}
	info, err := s.fill(ctx, f, r)
	if closeErr := f.Close(); err == nil && closeErr != nil {
		err = unwritable(closeErr)
	}
	if err == nil {
		err = s.publish(name, info.Name)
	}
	if err != nil {
		_ = s.root.Remove(name) // after the rename it is not there any more
		return checkpoint.Info{}, err
	}
	return info, nil
}

// fill writes a temporary file and makes its bytes durable.
func (s *Store) fill(ctx context.Context, f *os.File, r io.Reader) (checkpoint.Info, error) {
	h := sha256.New()
	in := &input{ctx: ctx, r: r}
	size, err := io.Copy(io.MultiWriter(h, onlyWriter{f}), in)
	switch {
	case in.err != nil:
		return checkpoint.Info{}, in.err
	case err != nil:
		return checkpoint.Info{}, unwritable(err)
	}
	if err := s.step("written"); err != nil {
		return checkpoint.Info{}, err
	}
	if err := f.Sync(); err != nil {
		return checkpoint.Info{}, unwritable(err)
	}
	return checkpoint.Info{Name: hex.EncodeToString(h.Sum(nil)), Size: size, Modified: time.Now()}, s.step("synced")
}

// publish gives a durable file its name. What stood there before is replaced: it was the same, or damaged, or a link.
func (s *Store) publish(from, name string) error {
	if err := s.root.Rename(from, name); err != nil {
		return unwritable(err)
	}
	if err := s.step("renamed"); err != nil {
		return err
	}
	return unwritable(s.syncFolder())
}

func (s *Store) syncFolder() error {
	d, err := s.root.Open(".")
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrInvalid) {
		err = nil // a file system that cannot sync folders
	}
	return errors.Join(err, d.Close())
}

// input remembers the error of what is read, which is the caller's, apart from that of the file.
type input struct {
	ctx context.Context
	r   io.Reader
	err error
}

// Read reads under the context.
func (i *input) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		i.err = fmt.Errorf("a blob is written: %w", err)
		return 0, i.err
	}
	n, err := i.r.Read(p)
	if err != nil && err != io.EOF {
		i.err = err
	}
	return n, err
}

// onlyWriter hides the other methods of a file, so that io.Copy goes through input.
type onlyWriter struct{ w io.Writer }

// Write writes.
func (o onlyWriter) Write(p []byte) (int, error) { return o.w.Write(p) }

// unwritable gives a file error its code; nil stays nil.
func unwritable(err error) error {
	if err == nil || codes.Of(err) != nil {
		return err
	}
	return codes.New(codes.OutputUnwritable, "a blob cannot be written: %w", checkpoint.Bare(err))
}

// stat finds the blob of a name: a regular file, not reached through a link.
func (s *Store) stat(name string) (fs.FileInfo, error) {
	if err := checkpoint.CheckName(name); err != nil {
		return nil, err
	}
	info, err := s.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, codes.New(codes.BlobMissing, "there is no blob %s", name)
	case err != nil:
		return nil, codes.New(codes.StoreUnavailable, "blob %s cannot be looked at: %w", name, checkpoint.Bare(err))
	case !info.Mode().IsRegular():
		return nil, codes.New(codes.BlobCorrupt, "in the place of blob %s stands something that is no file of its own (%s)", name, info.Mode().Type())
	}
	return info, nil
}

// attempts bounds how often Get looks again for a blob that is set aside and brought back under its eyes.
const attempts = 5

// Get implements checkpoint.Blobs.
func (s *Store) Get(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	for range attempts {
		r, size, err := s.get(ctx, name)
		if !codes.Has(err, codes.BlobMissing) {
			return r, size, err
		}
		if found, backErr := s.bringBackName(name); backErr != nil || !found {
			return nil, 0, errors.Join(err, backErr)
		}
	}
	return nil, 0, codes.New(codes.StoreUnavailable, "blob %s comes and goes while it is opened", name)
}

func (s *Store) get(ctx context.Context, name string) (io.ReadCloser, int64, error) {
	before, err := s.stat(name)
	if err != nil {
		return nil, 0, err
	}
	if err := s.step("found"); err != nil {
		return nil, 0, err
	}
	f, err := s.root.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, codes.New(codes.BlobMissing, "there is no blob %s any more", name)
	case err != nil:
		return nil, 0, codes.New(codes.StoreUnavailable, "blob %s cannot be opened: %w", name, checkpoint.Bare(err))
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, 0, codes.New(codes.BlobCorrupt, "in the place of blob %s stands something that is no file of its own", name)
	}
	if !os.SameFile(before, info) {
		// A Put of the same bytes may have replaced it meanwhile; a link may not have.
		if again, err := s.root.Lstat(name); err != nil || !os.SameFile(again, info) {
			f.Close()
			return nil, 0, codes.New(codes.BlobCorrupt, "the file of blob %s changes while it is opened", name)
		}
	}
	return checkpoint.Verify(ctx, f, name, info.Size()), info.Size(), nil
}

// Has implements checkpoint.Blobs.
func (s *Store) Has(ctx context.Context, name string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	_, err := s.stat(name)
	if codes.Has(err, codes.BlobMissing) {
		return false, nil
	}
	return err == nil, err
}

// List implements checkpoint.Blobs. Names that are not those of blobs, and links, are left out.
func (s *Store) List(ctx context.Context, fn func(checkpoint.Info) error) error {
	entries, err := s.entries()
	if err != nil {
		return codes.New(codes.StoreUnavailable, "the blobs cannot be listed: %w", checkpoint.Bare(err))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		if checkpoint.CheckName(e.Name()) != nil || !e.Type().IsRegular() {
			continue
		}
		info, err := s.root.Lstat(e.Name())
		if err != nil {
			continue // deleted since
		}
		if err := fn(checkpoint.Info{Name: e.Name(), Size: info.Size(), Modified: info.ModTime()}); err != nil {
			return err
		}
	}
	return nil
}
