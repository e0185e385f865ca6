package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/record"
	"github.com/weirstream/weir/sources/logfile"
	"github.com/weirstream/weir/sources/snapshot"
)

// BuildConfig says what to build an arrival log from.
type BuildConfig struct {
	// Snapshot is the path of the events, JSON Lines or CSV, and Fields says where their id, key and time are; the zero value is
	// snapshot.DefaultFields.
	Snapshot string
	Fields   snapshot.Fields
	// Schedule of the faults to put in; nil for none.
	Schedule *Schedule
	// Seed is recorded in the log's header. Nothing else depends on it.
	Seed uint64
	// Out is the path of the log. It stands there when it is complete, and not before.
	Out string
}

// Built says what was built.
type Built struct {
	Arrivals, FaultsApplied int64
	LogHash                 string
}

// Build writes the arrival log of a snapshot under a fault schedule. It streams: its memory is that of the schedule and of the
// deliveries that are delayed at one time. Errors carry codes.FileMissing, codes.SnapshotInvalid (with the line), codes.ScheduleInvalid
// (a *ScheduleErrors with every entry that does not fit) or codes.OutputUnwritable; after any of them nothing is left at Out.
func Build(ctx context.Context, cfg BuildConfig) (Built, error) {
	source := openSnapshot(cfg.Snapshot, cfg.Fields)
	cfg.Fields = source.Fields()
	header, err := cfg.check()
	if err != nil {
		return Built{}, err
	}
	if sameFile(cfg.Snapshot, cfg.Out) {
		return Built{}, codes.New(codes.ConfigInvalid, "the log would take the place of the snapshot %s: name another file for it", cfg.Snapshot)
	}
	if header.SnapshotHash, err = source.Hash(ctx); err != nil {
		return Built{}, err
	}
	rows, err := source.Rows(ctx)
	if err != nil {
		return Built{}, err
	}
	defer rows.Close()
	out, err := logfile.Create(cfg.Out, header)
	if err != nil {
		return Built{}, err
	}
	defer out.Discard()
	if err := cfg.write(rows, out); err != nil {
		return Built{}, err
	}
	// The header has the hash of the first pass, and the arrivals are those of the second.
	if again, err := source.Hash(ctx); err != nil {
		return Built{}, err
	} else if again != header.SnapshotHash {
		return Built{}, codes.New(codes.SnapshotInvalid, "%s was changed while the log was built", cfg.Snapshot)
	}
	end, err := out.Commit()
	return Built{Arrivals: end.Arrivals, FaultsApplied: end.FaultsApplied, LogHash: end.LogHash}, err
}

// sameFile says whether two paths lead to one file that exists.
func sameFile(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}

func openSnapshot(path string, fields snapshot.Fields) *snapshot.Source {
	return snapshot.New(snapshot.Config{Path: path, Fields: fields})
}

// revisionField names the field of the revision number, also for fields that name none.
func revisionField(f snapshot.Fields) string {
	return cmp.Or(f.Revision, snapshot.DefaultFields().Revision)
}

// check looks at the schedule and makes the header of the log, but for the hash of the snapshot.
func (cfg *BuildConfig) check() (logfile.Header, error) {
	f := cfg.Fields
	header := logfile.Header{Fields: logfile.Fields{ID: f.ID, Key: f.Key, Time: f.Time, Unit: f.UnitName()}, Seed: cfg.Seed}
	if cfg.Schedule == nil || len(cfg.Schedule.Faults) == 0 {
		return header, nil
	}
	if err := cfg.Schedule.check(); err != nil {
		return header, err
	}
	errs := ScheduleErrors{File: cfg.Schedule.file}
	for i := range cfg.Schedule.Faults {
		fault := &cfg.Schedule.Faults[i]
		for _, name := range []string{f.ID, f.Key, f.Time, revisionField(f)} {
			if _, ok := fault.Values[name]; ok {
				errs.add(fault.line, fault.column, i, fmt.Sprintf("a revision keeps the id, key and time of its event and has the revision number 1: leave %q out", name))
			}
		}
	}
	if err := errs.err(); err != nil {
		return header, err
	}
	var err error
	header.ScheduleHash, err = cfg.Schedule.Hash()
	return header, err
}

// write reads the rows and writes the arrivals.
func (cfg *BuildConfig) write(rows *snapshot.Rows, out *logfile.File) error {
	in := newInjector(cfg.Schedule, revisionField(cfg.Fields), func(a *logfile.Arrival, audit []logfile.Fault) error {
		for i := range audit {
			if err := out.Fault(&audit[i]); err != nil {
				return err
			}
		}
		return out.Arrival(a)
	})
	var row snapshot.Row
	var e event
	var canonical []byte
	for {
		switch err := rows.Next(&row); {
		case err == io.EOF:
			return in.finish()
		case err != nil:
			return err
		}
		var err error
		if canonical, err = appendValue(canonical[:0], row.Value); err == nil {
			e = event{time: row.Time, id: row.ID, key: row.Key, value: canonical}
			err = in.event(&e)
		}
		if err != nil {
			return cfg.refuse(row.Line, err)
		}
	}
}

var errLastMillisecond = errors.New("its time lies in the last millisecond that there is")

// refuse names the line of a row that cannot become an arrival. What has a code is no fault of the row.
func (cfg *BuildConfig) refuse(line int64, err error) error {
	if codes.Of(err) != nil {
		return err
	}
	var syntax *record.SyntaxError
	if errors.As(err, &syntax) {
		return codes.New(codes.SnapshotInvalid, "%s:%d:%d: %s", cfg.Snapshot, line, syntax.Column, syntax.Msg)
	}
	return codes.New(codes.SnapshotInvalid, "%s:%d: %w", cfg.Snapshot, line, err)
}
