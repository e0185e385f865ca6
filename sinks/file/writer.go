package file

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

type writer struct {
	cfg      Config
	folder   string
	encode   encoder
	progress *sinks.Progress
}

// draft is a file in the making: temporary, and the name that it is to have.
type draft struct{ path, final string }

// Published implements sinks.Writer.
func (w *writer) Published() map[int32]int64 { return w.progress.Published() }

// Close implements sinks.Writer.
func (w *writer) Close() error { return nil }

// Publish implements sinks.Writer: one file for each partition. All are written before the first takes its name.
func (w *writer) Publish(ctx context.Context, batches []sinks.Rows) error {
	rest, err := w.progress.Rest(batches)
	if err == nil && len(rest) > 0 {
		if err = w.publish(ctx, rest); err == nil {
			w.progress.Done(rest)
		}
	}
	return w.progress.Fail(err)
}

func (w *writer) publish(ctx context.Context, rest []sinks.Rows) error {
	var drafts []draft
	defer func() { // a killed process leaves them to who opens the folder next
		for _, d := range drafts {
			os.Remove(d.path)
		}
	}()
	for len(rest) > 0 {
		n := 1
		for n < len(rest) && rest[n].Partition == rest[0].Partition {
			n++
		}
		path, err := w.draft(ctx, rest[:n])
		if path != "" {
			drafts = append(drafts, draft{path, filepath.Join(w.folder, w.name(rest[0].Partition, rest[0].From))})
		}
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	for _, d := range drafts {
		if err := os.Link(d.path, d.final); err != nil {
			return w.explain(d.final, err)
		}
		if err := w.step(ctx, "linked"); err != nil {
			return err
		}
	}
	if err := syncFolder(w.folder); err != nil {
		return unwritable(w.folder, err)
	}
	return w.step(ctx, "published")
}

// draft writes rows of one partition to a temporary file, synced. Its path is "" while there is none.
func (w *writer) draft(ctx context.Context, rows []sinks.Rows) (string, error) {
	f, err := os.CreateTemp(w.folder, temporary+"*")
	if err != nil {
		return "", unwritable(w.folder, err)
	}
	err = w.step(ctx, "created")
	if err == nil {
		if err = w.encode.write(f, rows); err == nil {
			err = f.Chmod(w.cfg.Perm)
		}
		if err == nil {
			err = f.Sync()
		}
		err = unwritable(f.Name(), err)
	}
	if closeErr := f.Close(); err == nil {
		err = unwritable(f.Name(), closeErr)
	}
	if err == nil {
		err = w.step(ctx, "written")
	}
	return f.Name(), err
}

func (w *writer) step(ctx context.Context, name string) error {
	if err := w.cfg.Hook(name); err != nil {
		return err
	}
	return ctx.Err()
}

// explain says why a file could not take its name.
func (w *writer) explain(final string, err error) error {
	switch {
	case errors.Is(err, fs.ErrExist):
		return codes.New(codes.SinkUnavailable, "sink of files: %s was published by another owner meanwhile; what stands is read again", final)
	case errors.Is(err, fs.ErrNotExist):
		return codes.New(codes.SinkUnavailable, "sink of files: another owner has opened %s and removed what was not published; what stands is read again", w.folder)
	case errors.Is(err, syscall.EPERM), errors.Is(err, errors.ErrUnsupported):
		return codes.New(codes.SinkInvalid, "sink of files: the file system of %s has no hard links: choose a folder on another", w.folder)
	}
	return unwritable(final, err)
}

// unwritable gives an error its code: what can pass is to be tried again. nil and errors with a code stay as they are.
func unwritable(path string, err error) error {
	switch {
	case err == nil || codes.Of(err) != nil:
		return err
	case errors.Is(err, fs.ErrPermission):
		return codes.New(codes.SinkDenied, "sink of files: %s cannot be written: grant this user the right to: %w", path, err)
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EFBIG):
		return codes.New(codes.SinkInvalid, "sink of files: %s cannot be written: %w", path, err)
	}
	return codes.New(codes.SinkUnavailable, "sink of files: %s cannot be written: is the disk full, or gone? %w", path, err)
}

func syncFolder(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// hash tells long names apart.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}
