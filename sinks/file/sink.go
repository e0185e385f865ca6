package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

// Config of a sink.
type Config struct {
	// Folder under which each run gets its own. It must exist. Required.
	Folder string
	// Format of the files. Defaults to JSONLines.
	Format Format
	// Every, unless 0, puts files into folders by the event time of their rows, one for each such stretch, as CheckEvery allows.
	Every time.Duration
	// Perm of the files, subject to the process's umask for folders. Defaults to 0640.
	Perm fs.FileMode
	// Hook, unless nil, is called between any two steps; what it returns ends the write there. It is for drills and tests.
	Hook func(step string) error
}

// Sink is a folder of files.
type Sink struct{ cfg Config }

var _ sinks.Sink = (*Sink)(nil)

// New makes a sink; nothing is touched before Open. Errors: CONFIG_INVALID.
func New(cfg Config) (*Sink, error) {
	if cfg.Folder == "" {
		return nil, codes.New(codes.ConfigInvalid, "a sink of files needs a folder")
	}
	if cfg.Format == nil {
		cfg.Format = JSONLines
	}
	if cfg.Perm == 0 {
		cfg.Perm = 0o640
	}
	if cfg.Hook == nil {
		cfg.Hook = func(string) error { return nil }
	}
	return &Sink{cfg}, CheckEvery(cfg.Every)
}

// Features implements sinks.Sink.
func (s *Sink) Features() sinks.Features {
	return sinks.Features{Once: true, ReadBack: true, IdempotentByKey: true, AppendOnly: true}
}

// Open implements sinks.Sink.
func (s *Sink) Open(ctx context.Context, target sinks.Target) (sinks.Writer, error) {
	if err := s.fits(target); err != nil {
		return nil, err
	}
	w := &writer{cfg: s.cfg, folder: filepath.Join(s.cfg.Folder, folderName(target.RunID)), width: len(target.Outputs), encode: s.cfg.Format.begin(target), known: map[string]bool{}}
	if err := w.prepare(ctx, target.Sequence); err != nil {
		return nil, err
	}
	at, err := w.stands(target.Partitions)
	if err != nil {
		return nil, err
	}
	if err := w.step(ctx, "read back"); err != nil {
		return nil, err
	}
	w.progress = sinks.NewProgress(len(target.Outputs), at)
	return w, nil
}

// fits refuses outputs that would have the name of a column that is there already. Most readers do not care for case.
func (s *Sink) fits(target sinks.Target) error {
	_, folders := levels(s.cfg.Every)
	taken := s.cfg.Format.taken()
	for i, name := range target.Outputs {
		same := func(other string) bool { return strings.EqualFold(other, name) }
		if slices.ContainsFunc(taken, same) || slices.ContainsFunc(folders, same) {
			return codes.New(codes.SinkInvalid, "sink of files: the output %q has the name of a column that every row has: give it another name in the flow", name)
		}
		if j := slices.IndexFunc(target.Outputs[:i], same); taken != nil && j >= 0 {
			return codes.New(codes.SinkInvalid, "sink of files: the outputs %q and %q are one name to most readers of such files: give one of them another name in the flow", target.Outputs[j], name)
		}
	}
	return nil
}

// temporary begins the names of drafts. Those of former releases, which did not name the format, are all formats'.
const temporary = ".new-"

// drafts is how the names of this format's drafts begin: several formats may share a folder, and do not touch each other's.
func (w *writer) drafts() string { return temporary + w.kind() + "-" }

// abandoned says whether an entry is a draft that whoever opens the folder for this format removes.
func (w *writer) abandoned(name string) bool {
	rest, draft := strings.CutPrefix(name, temporary)
	return draft && (strings.HasPrefix(name, w.drafts()) || !strings.Contains(rest, "-"))
}

// folderName is a name for any run id, different for different ones also where case does not count.
func folderName(run string) string {
	var b strings.Builder
	for i := range len(run) {
		switch c := run[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '-', c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	const most = 200
	if b.Len() <= most {
		return b.String()
	}
	return b.String()[:most-44] + "~" + hash(run)
}

func (w *writer) name(partition int32, from int64) string {
	return fmt.Sprintf("p%05d-r%016d%s", partition, from, w.cfg.Format.extension())
}

// place reads a name. Others are left alone.
func (w *writer) place(name string) (partition int32, from int64, ok bool) {
	base, found := strings.CutSuffix(name, w.cfg.Format.extension())
	p, r, split := strings.Cut(base, "-r")
	n, err := strconv.ParseInt(strings.TrimPrefix(p, "p"), 10, 32)
	from, fromErr := strconv.ParseInt(r, 10, 64)
	ok = found && split && err == nil && fromErr == nil && w.name(int32(n), from) == name
	return int32(n), from, ok
}

// usable says what is wrong with a folder that was given.
func usable(folder string) error {
	info, err := os.Stat(folder)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return unwritable(folder, err)
	case err == nil && !info.IsDir():
		return codes.New(codes.SinkInvalid, "sink of files: %s is no folder: name one, and create it", folder)
	case err != nil:
		return codes.New(codes.SinkInvalid, "sink of files: the folder %s does not exist: create it", folder)
	}
	return nil
}

// prepare makes the run's folder, compares its notes, and removes what killed processes left in it. Who is refused has removed nothing.
func (w *writer) prepare(ctx context.Context, sequence string) error {
	if err := usable(w.cfg.Folder); err != nil {
		return err
	}
	if err := os.Mkdir(w.folder, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return unwritable(w.folder, err)
	}
	if err := syncFolder(w.cfg.Folder); err != nil {
		return unwritable(w.cfg.Folder, err)
	}
	if err := w.step(ctx, "folder made"); err != nil {
		return err
	}
	if err := w.pin(sequence); err != nil {
		return err
	}
	if err := w.step(ctx, "compared"); err != nil {
		return err
	}
	entries, err := os.ReadDir(w.folder)
	if err != nil {
		return unwritable(w.folder, err)
	}
	for _, e := range entries {
		if w.abandoned(e.Name()) {
			if err := os.Remove(filepath.Join(w.folder, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return unwritable(w.folder, err)
			}
		}
	}
	return w.step(ctx, "cleaned up")
}

// stands reads the last file of each partition.
func (w *writer) stands(parts []int32) (map[int32]int64, error) {
	type place struct {
		folder string
		from   int64
	}
	at, last, folders := map[int32]int64{}, map[int32]place{}, map[string]bool{}
	for _, p := range parts {
		at[p] = 0
	}
	err := w.each("", 0, func(folder string, p int32, from int64) {
		_, ours := at[p]
		if l, found := last[p]; ours && (!found || from > l.from) {
			last[p] = place{folder, from}
		}
	})
	if err != nil {
		return nil, err
	}
	for p, l := range last {
		folders[l.folder] = true
		path := filepath.Join(w.folder, l.folder, w.name(p, l.from))
		n, err := w.cfg.Format.rows(path)
		if err == nil && n == 0 {
			err = errEmpty
		}
		if err != nil {
			return nil, unreadable(path, err)
		}
		at[p] = l.from + n
	}
	// What was read back may have been linked by a process that was killed before it synced the folder.
	for folder := range folders {
		if err := w.lasting(folder); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// unreadable gives an error about the last file of a partition its code: what is no fault of the file may pass.
func unreadable(path string, err error) error {
	var errno syscall.Errno
	switch {
	case errors.Is(err, fs.ErrPermission):
		return codes.New(codes.SinkDenied, "sink of files: %s cannot be read, and tells where its partition goes on: grant this user the right to: %w", path, err)
	case errors.As(err, &errno) && errno != syscall.EISDIR && errno != syscall.ELOOP:
		return codes.New(codes.SinkUnavailable, "sink of files: %s cannot be read, and tells where its partition goes on: %w", path, err)
	}
	return codes.New(codes.SinkInvalid, "sink of files: %s is not as it was written (%v): restore it, since it tells where its partition goes on; "+
		"or take it away, if the file before it is there, and its rows are published again", path, err)
}
