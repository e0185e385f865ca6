package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

// Config of a sink.
type Config struct {
	// Folder under which each run gets its own. It must exist. Required.
	Folder string
	// Format of the files. Defaults to JSONLines.
	Format Format
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
	return &Sink{cfg}, nil
}

// Features implements sinks.Sink.
func (s *Sink) Features() sinks.Features {
	return sinks.Features{Once: true, ReadBack: true, IdempotentByKey: true, AppendOnly: true}
}

// Open implements sinks.Sink.
func (s *Sink) Open(ctx context.Context, target sinks.Target) (sinks.Writer, error) {
	w := &writer{cfg: s.cfg, folder: filepath.Join(s.cfg.Folder, folderName(target.RunID)), encode: s.cfg.Format.begin(target)}
	if err := w.prepare(ctx); err != nil {
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

const temporary = ".new-"

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

// prepare makes the run's folder and removes what killed processes left in it.
func (w *writer) prepare(ctx context.Context) error {
	if info, err := os.Stat(w.cfg.Folder); err != nil || !info.IsDir() {
		return codes.New(codes.SinkInvalid, "sink of files: the folder %s does not exist: create it", w.cfg.Folder)
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
	entries, err := os.ReadDir(w.folder)
	if err != nil {
		return unwritable(w.folder, err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), temporary) {
			if err := os.Remove(filepath.Join(w.folder, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return unwritable(w.folder, err)
			}
		}
	}
	// What is about to be read back may have been linked by a process that was killed before it synced the folder.
	if err := syncFolder(w.folder); err != nil {
		return unwritable(w.folder, err)
	}
	return w.step(ctx, "cleaned up")
}

// stands reads the last file of each partition.
func (w *writer) stands(parts []int32) (map[int32]int64, error) {
	at := map[int32]int64{}
	for _, p := range parts {
		at[p] = 0
	}
	last := map[int32]string{}
	entries, err := os.ReadDir(w.folder)
	if err != nil {
		return nil, unwritable(w.folder, err)
	}
	for _, e := range entries { // sorted by name, and so by the first row
		p, _, ok := w.place(e.Name())
		if _, ours := at[p]; ok && ours {
			last[p] = e.Name()
		}
	}
	for p, name := range last {
		path := filepath.Join(w.folder, name)
		n, err := w.cfg.Format.rows(path)
		if err != nil {
			return nil, codes.New(codes.SinkInvalid, "sink of files: %s is not as it was written (%v): restore it, since it tells where its partition goes on", path, err)
		}
		_, from, _ := w.place(name)
		at[p] = from + n
	}
	return at, nil
}
