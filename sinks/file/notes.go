package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/sinks"
)

// pin compares the notes beside the files of a run with what is about to be published, and writes those that are missing. They last when it returns, so that
// no file is ever older than its notes, but for those of releases that had none.
func (w *writer) pin(sequence string) error {
	if err := w.pinLayout(); err != nil {
		return err
	}
	if sequence != "" {
		have, err := w.note(".sequence-"+w.kind(), sequence)
		if err != nil {
			return err
		}
		if !sinks.SameSequence(have, sequence) {
			return codes.New(codes.SinkInvalid, "sink of files: the %s files in %s are of another sequence (%q) than those to come (%q), of another flow, input or store, and the numbers of one say nothing about the other: "+
				"name another folder for this sink, or give the run another id", w.kind(), w.folder, have, sequence)
		}
	}
	// A note that was found may be of a process that was killed before it did this.
	return w.lasting(".")
}

// kind is the format's name in those of notes and drafts, which are no files for readers: the extension is not theirs.
func (w *writer) kind() string { return strings.TrimPrefix(w.cfg.Format.extension(), ".") }

// pinLayout makes sure that the files of a run have one layout for ever: the names that tell owners apart lie in the folders that it says.
func (w *writer) pinLayout() error {
	name, want := ".layout"+w.cfg.Format.extension(), ""
	if w.cfg.Every > 0 {
		want = "a folder for every " + w.cfg.Every.String() + " of event time"
	}
	have, err := w.read(name)
	if errors.Is(err, fs.ErrNotExist) && want != "" {
		flat := writer{cfg: w.cfg, folder: w.folder}
		flat.cfg.Every = 0
		found := false
		if err := flat.each("", 0, func(string, int32, int64) { found = true }); err != nil {
			return err
		}
		if found {
			return w.otherLayout("all files in one folder")
		}
		have, err = w.note(name, want)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // as folders are that are older than layouts
		return nil
	case err != nil:
		return unwritable(filepath.Join(w.folder, name), err)
	case have != want:
		return w.otherLayout(have)
	}
	return nil
}

func (w *writer) otherLayout(have string) error {
	return codes.New(codes.SinkInvalid, "sink of files: the files of this run in %s have another layout (%s), and keep it: go on with that, or name another folder, which is filled from the journal", w.folder, have)
}

// read gives what a note says.
func (w *writer) read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(w.folder, name))
	return strings.TrimSuffix(string(text), "\n"), err
}

// note gives what a note says, which is text if there was none: of several owners that come at once, one writes it.
func (w *writer) note(name, text string) (string, error) {
	path := filepath.Join(w.folder, name)
	have, err := w.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := w.write(path, text+"\n"); err != nil {
			return "", err
		}
		have, err = w.read(name)
	}
	return have, unwritable(path, err)
}

// write makes a note, whole or not at all, unless another owner does at this moment.
func (w *writer) write(path, text string) error {
	f, err := os.CreateTemp(w.folder, w.drafts()+"*")
	if err != nil {
		return unwritable(w.folder, err)
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Chmod(w.cfg.Perm)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
			return nil
		}
	}
	return w.explain(path, err)
}
