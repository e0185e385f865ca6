package file

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

type writer struct {
	cfg      Config
	folder   string
	width    int
	encode   encoder
	progress *sinks.Progress
	known    map[string]bool // folders that are there and last
}

// draft is a file in the making: temporary, and the folder and the name that it is to have.
type draft struct {
	path, folder, name string
	round              int
}

// Published implements sinks.Writer.
func (w *writer) Published() map[int32]int64 { return w.progress.Published() }

// Close implements sinks.Writer.
func (w *writer) Close() error { return nil }

// Publish implements sinks.Writer: one file for each partition, or several that follow each other. All are written before the first takes its name.
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
	syncs := newSyncs()
	defer func() { // a killed process leaves them to who opens the folder next
		_ = syncs.wait() // nil, or told already
		for _, d := range drafts {
			os.Remove(d.path)
		}
	}()
	for len(rest) > 0 {
		n := 1
		for n < len(rest) && rest[n].Partition == rest[0].Partition {
			n++
		}
		err := w.pieces(rest[:n], func(p piece) error {
			path, err := w.draft(ctx, p.rows, syncs)
			if path != "" {
				drafts = append(drafts, draft{path, p.folder, w.name(p.rows[0].Partition, p.rows[0].From), p.round})
			}
			return err
		})
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	if err := syncs.wait(); err != nil {
		return err
	}
	if err := w.step(ctx, "synced"); err != nil {
		return err
	}
	return w.link(ctx, drafts)
}

// link gives files their names. A partition's come in the order of their rows, each once the one before is there to stay: what stands is read from the last
// one, after whatever kill. Those of several partitions go side by side.
func (w *writer) link(ctx context.Context, drafts []draft) error {
	slices.SortStableFunc(drafts, func(a, b draft) int { return a.round - b.round })
	dirty := map[string]bool{}
	for i, d := range drafts {
		if i > 0 && d.round != drafts[i-1].round {
			if err := w.settle(dirty); err != nil {
				return err
			}
		}
		if err := w.made(cmp.Or(d.folder, ".")); err != nil {
			return err
		}
		dirty[d.folder] = true
		final := filepath.Join(w.folder, d.folder, d.name)
		if err := os.Link(d.path, final); err != nil {
			return w.explain(final, err)
		}
		if err := w.step(ctx, "linked"); err != nil {
			return err
		}
	}
	if err := w.settle(dirty); err != nil {
		return err
	}
	return w.step(ctx, "published")
}

// settle syncs folders and empties the set.
func (w *writer) settle(dirty map[string]bool) error {
	for folder := range dirty {
		if err := w.lasting(folder); err != nil {
			return err
		}
	}
	clear(dirty)
	return nil
}

// lasting syncs a folder of the run.
func (w *writer) lasting(folder string) error {
	path := filepath.Join(w.folder, folder)
	return unwritable(path, syncFolder(path))
}

// draft writes rows of one partition to a temporary file, and has it synced. Its path is "" while there is none.
func (w *writer) draft(ctx context.Context, rows []sinks.Rows, syncs *syncs) (string, error) {
	f, err := os.CreateTemp(w.folder, w.drafts()+"*")
	if err != nil {
		return "", unwritable(w.folder, err)
	}
	err = w.step(ctx, "created")
	if err == nil {
		if err = w.encode.write(f, rows); err == nil {
			err = f.Chmod(w.cfg.Perm)
		}
		err = unwritable(f.Name(), err)
	}
	if err != nil {
		_ = f.Close() // the reason to give up says more
		return f.Name(), err
	}
	syncs.add(f)
	return f.Name(), w.step(ctx, "written")
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
	case errors.Is(err, syscall.ENOTDIR):
		return codes.New(codes.SinkInvalid, "sink of files: %s is in the way, or something above it: it is no folder; take it away, or choose another folder: %w", path, err)
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
