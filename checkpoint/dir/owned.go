package dir

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirstream/weir/checkpoint"
	"github.com/weirstream/weir/codes"
)

// MarkFile is the file in a folder of checkpoints that holds the id of the store whose checkpoints they are.
const MarkFile = "STORE"

// OpenOwned opens a folder for the checkpoints of one store, and marks it as that store's own if it is new. Refused with ConfigInvalid are a
// folder of another store, one that holds blobs and no mark, one that others may write to, and a link in its place: each could mean that a
// clean-up removes what is not the store's. Whatever else is wrong is as in Open.
func OpenOwned(path, storeID string) (*Store, error) {
	if err := checkFolder(path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, codes.New(codes.OutputUnwritable, "the folder of checkpoints %s cannot be made: %w", path, checkpoint.Bare(err))
	}
	if err := mark(path, storeID); err != nil {
		return nil, err
	}
	s, err := Open(path)
	if err != nil {
		return nil, err
	}
	s.owner = storeID
	return s, nil
}

// checkFolder refuses links and folders that others may write to; one that is not there is fine.
func checkFolder(path string) error {
	for _, at := range []string{path, filepath.Join(path, folder)} {
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return codes.New(codes.StoreUnavailable, "the folder of checkpoints %s cannot be looked at: %w", at, checkpoint.Bare(err))
		case !info.IsDir():
			return codes.New(codes.ConfigInvalid, "the folder of checkpoints %s is no folder of its own (%s), and links are not followed: name another folder", at, info.Mode().Type())
		case info.Mode().Perm()&0o022 != 0:
			return codes.New(codes.ConfigInvalid, "the folder of checkpoints %s can be written to by others (mode %04o): chmod go-w it, after a look at what is in it", at, info.Mode().Perm())
		}
	}
	return nil
}

// mark makes sure that the folder has the mark of the store.
func mark(path, storeID string) error {
	at := filepath.Join(path, MarkFile)
	switch has, err := readMark(at); {
	case err == nil && has == storeID:
		return nil
	case err == nil:
		return codes.New(codes.ConfigInvalid, "the folder of checkpoints %s belongs to the store %.40q, this is %q: name another folder, or the store it belongs to", path, has, storeID)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if n, err := blobsIn(path); err != nil {
		return codes.New(codes.StoreUnavailable, "the folder of checkpoints %s cannot be read: %w", path, checkpoint.Bare(err))
	} else if n > 0 {
		return codes.New(codes.ConfigInvalid, "the folder of checkpoints %s holds %d blobs and no file %s that says whose they are: name another folder", path, n, MarkFile)
	}
	if err := writeMark(at, storeID); err != nil {
		return codes.New(codes.OutputUnwritable, "the folder of checkpoints %s cannot be marked: %w", path, checkpoint.Bare(err))
	}
	// Of two stores that mark at once one was first.
	switch has, err := readMark(at); {
	case err != nil:
		return err
	case has != storeID:
		return codes.New(codes.ConfigInvalid, "the folder of checkpoints %s was marked by the store %.40q at the same time: name another folder", path, has)
	}
	return nil
}

// markLimit is more than any mark has.
const markLimit = 100

func readMark(at string) (string, error) {
	info, err := os.Lstat(at)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > markLimit || info.Mode().Perm()&0o022 != 0 {
		return "", codes.New(codes.ConfigInvalid, "%s is not the mark that weir writes (%s, %d bytes): links, folders and what others may write to are not trusted", at, info.Mode(), info.Size())
	}
	b, err := os.ReadFile(at)
	if err != nil {
		return "", codes.New(codes.StoreUnavailable, "%s cannot be read: %w", at, checkpoint.Bare(err))
	}
	id, ok := strings.CutSuffix(string(b), "\n")
	if !ok || id == "" {
		return "", codes.New(codes.ConfigInvalid, "%s does not hold the id of a store", at)
	}
	return id, nil
}

// writeMark makes the mark, whole or not at all; if there is one already it stays.
func writeMark(at, storeID string) error {
	temporaryFile := filepath.Join(filepath.Dir(at), temporary+rand.Text())
	f, err := os.OpenFile(temporaryFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(temporaryFile)
	_, err = f.WriteString(storeID + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	err = os.Link(temporaryFile, at)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = os.Rename(temporaryFile, at) // a file system without hard links
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return err
}

// blobsIn counts what stands or is set aside in a folder.
func blobsIn(path string) (n int, err error) {
	entries, err := os.ReadDir(filepath.Join(path, folder))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, e := range entries {
		if checkpoint.CheckName(e.Name()) == nil || e.Name() == asideFolder {
			n++
		}
	}
	return n, err
}

// Owner implements checkpoint.Blobs: the mark with which the folder was opened, or "".
func (s *Store) Owner(ctx context.Context) (string, error) { return s.owner, ctx.Err() }

// Strangers names what is in the folder and is neither a blob, nor set aside, nor a temporary file, nor the mark. Nobody touches it.
func (s *Store) Strangers() ([]string, error) {
	var strange []string
	for _, look := range []struct {
		at   string
		ours func(e fs.DirEntry) bool
	}{
		{"", func(e fs.DirEntry) bool {
			return e.Name() == folder && e.IsDir() || e.Name() == MarkFile && e.Type().IsRegular()
		}},
		{folder, func(e fs.DirEntry) bool {
			return e.Name() == asideFolder && e.IsDir() || e.Type().IsRegular() && checkpoint.CheckName(e.Name()) == nil
		}},
		{filepath.Join(folder, asideFolder), func(e fs.DirEntry) bool {
			_, _, ok := parseTicket(e.Name())
			return ok && e.Type().IsRegular()
		}},
	} {
		entries, err := os.ReadDir(filepath.Join(s.path, look.at))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, codes.New(codes.StoreUnavailable, "the folder of checkpoints %s cannot be read: %w", s.path, checkpoint.Bare(err))
		}
		for _, e := range entries {
			if !look.ours(e) && !strings.HasPrefix(e.Name(), temporary) {
				strange = append(strange, filepath.Join(look.at, e.Name()))
			}
		}
	}
	slices.Sort(strange)
	return strange, nil
}
