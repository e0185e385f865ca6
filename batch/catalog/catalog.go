// Package catalog registers flows and snapshots under names, from two folders. A request names what it wants and can say no more: it
// never carries code, a path or a URL.
//
// A name is that of a file without its extension: lower-case letters, digits, dots, underscores and hyphens, starting with a letter or a
// digit, at most 100 bytes. Flows are NAME.yaml, NAME.yml or NAME.json; snapshots NAME.jsonl, NAME.ndjson, NAME.json or NAME.csv. Files of
// other names are not registered, nor are two files of one name.
//
// The folders are opened through os.Root: a link that leads out of its folder is not followed, and what is no regular file is refused. They are
// looked at again at each call, so a file that is put there is known at once. Messages hold names, never paths.
package catalog

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/flow"
	"github.com/weirstream/weir/sources"
	"github.com/weirstream/weir/sources/snapshot"
)

// MaxName is the longest name, in bytes.
const MaxName = 100

// flowLimit is more than any flow file may hold; the parser's own limit is lower and names itself.
const flowLimit = 4 << 20

// Extensions of the registered files.
var (
	flowExtensions     = []string{".yaml", ".yml", ".json"}
	snapshotExtensions = []string{".jsonl", ".ndjson", ".json", ".csv"}
)

// Catalog finds flows and snapshots by name. It may be used by several goroutines.
type Catalog struct{ flows, snapshots shelf }

// Open opens the two folders. The error carries FileMissing and names the folder.
func Open(flows, snapshots string) (*Catalog, error) {
	c := &Catalog{flows: shelf{what: "flow", extensions: flowExtensions}, snapshots: shelf{what: "snapshot", extensions: snapshotExtensions}}
	var err error
	if c.flows.root, err = openFolder("flows", flows); err != nil {
		return nil, err
	}
	if c.snapshots.root, err = openFolder("snapshots", snapshots); err != nil {
		return nil, errors.Join(err, c.flows.root.Close())
	}
	return c, nil
}

func openFolder(what, path string) (*os.Root, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, codes.New(codes.FileMissing, "the folder of %s: %w", what, err)
	}
	return root, nil
}

// Close gives the folders back.
func (c *Catalog) Close() error { return errors.Join(c.flows.root.Close(), c.snapshots.root.Close()) }

// Flows lists the names of flows, sorted. They are not checked.
func (c *Catalog) Flows() ([]string, error) { return c.flows.list() }

// Snapshots lists the names of snapshots, sorted.
func (c *Catalog) Snapshots() ([]string, error) { return c.snapshots.list() }

// CheckName says whether a name can be registered. The error carries NameInvalid.
func CheckName(what, name string) error {
	ok := name != "" && len(name) <= MaxName
	for i := 0; ok && i < len(name); i++ {
		b := name[i]
		ok = b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || i > 0 && (b == '.' || b == '_' || b == '-')
	}
	if ok {
		return nil
	}
	return codes.New(codes.NameInvalid, "%q is not the name of a %s: 1 to %d lower-case letters, digits, '.', '_' and '-', starting with a letter or digit",
		name[:min(len(name), 40)], what, MaxName)
}

// Plan reads and compiles a flow. The error carries NameInvalid, NameUnknown, FileMissing or FlowInvalid.
func (c *Catalog) Plan(name string) (*flow.Plan, error) {
	file, err := c.flows.find(name)
	if err != nil {
		return nil, err
	}
	f, err := c.flows.open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, flowLimit+1))
	if err != nil {
		return nil, unreadable("flow", name, err)
	}
	if len(src) > flowLimit {
		return nil, codes.New(codes.FlowInvalid, "flow %q has more than %d bytes; is it the right file?", name, flowLimit)
	}
	return flow.Parse(file, src, nil)
}

// CheckSnapshot says whether a snapshot of the name is registered. The error carries NameInvalid or NameUnknown.
func (c *Catalog) CheckSnapshot(name string) error {
	_, err := c.snapshots.find(name)
	return err
}

// CheckFlow says whether a flow of the name is registered; whether it is a good one, Plan says. The error carries NameInvalid or NameUnknown.
func (c *Catalog) CheckFlow(name string) error {
	_, err := c.flows.find(name)
	return err
}

// Source is a snapshot as the input of a flow. Rows that have to be sorted and do not fit into memory go to files in tempDir ("" is the
// system's). The error carries NameInvalid or NameUnknown; what is wrong inside is found when it is read.
func (c *Catalog) Source(name string, plan *flow.Plan, tempDir string) (sources.Source, error) {
	file, err := c.snapshots.find(name)
	if err != nil {
		return nil, err
	}
	open := func() (*os.File, error) { return c.snapshots.open(file) }
	return snapshot.New(snapshot.Config{Path: file, Open: open, Fields: snapshot.FieldsOf(plan), TempDir: tempDir}), nil
}

// shelf is one folder.
type shelf struct {
	root       *os.Root
	what       string
	extensions []string
}

// split takes the extension off a file's name; ok is false for a file that is not registered.
func (s *shelf) split(file string) (name string, ok bool) {
	for _, ext := range s.extensions {
		if name, ok = strings.CutSuffix(file, ext); ok {
			return name, CheckName(s.what, name) == nil
		}
	}
	return "", false
}

// find gives the file of a name.
func (s *shelf) find(name string) (file string, err error) {
	if err := CheckName(s.what, name); err != nil {
		return "", err
	}
	for _, ext := range s.extensions {
		info, err := s.root.Stat(name + ext)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			// A link out of the folder is told like any file that cannot be read.
			return "", unreadable(s.what, name, err)
		case !info.Mode().IsRegular():
			return "", codes.New(codes.FileMissing, "%s %q is no regular file", s.what, name)
		case file != "":
			return "", codes.New(codes.NameUnknown, "the name of %s %q is not clear: both %s and %s have it; rename one", s.what, name, file, name+ext)
		}
		file = name + ext
	}
	if file != "" {
		return file, nil
	}
	if stem, ok := s.split(name); ok {
		if _, err := s.find(stem); err == nil {
			return "", codes.New(codes.NameUnknown, "there is no %s %q; a name has no extension, write %q", s.what, name, stem)
		}
	}
	return "", codes.New(codes.NameUnknown, "there is no %s %q", s.what, name)
}

// open opens a file that find gave.
func (s *shelf) open(file string) (*os.File, error) {
	f, err := s.root.Open(file)
	if err != nil {
		return nil, unreadable(s.what, file, err)
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, codes.New(codes.FileMissing, "%s %q is no regular file", s.what, file)
	}
	return f, nil
}

func (s *shelf) list() ([]string, error) {
	d, err := s.root.Open(".")
	if err != nil {
		return nil, codes.New(codes.FileMissing, "the folder of %ss cannot be read: %w", s.what, bare(err))
	}
	defer d.Close()
	files, err := d.Readdirnames(-1)
	if err != nil {
		return nil, codes.New(codes.FileMissing, "the folder of %ss cannot be read: %w", s.what, bare(err))
	}
	names := []string{}
	for _, file := range files {
		name, ok := s.split(file)
		if !ok {
			continue
		}
		if _, err := s.find(name); err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func unreadable(what, name string, err error) error {
	return codes.New(codes.FileMissing, "%s %q cannot be read: %w", what, name, bare(err))
}

// bare is the reason without the path.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
