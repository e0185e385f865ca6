package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/weirstream/weir/codes"
)

// fail gives an error its code and names the file. Errors that have a code already pass, and so does a context's own: whoever cancelled
// knows why.
func (s *Store) fail(ctx context.Context, doing string, err error) error {
	if err == nil || codes.Of(err) != nil {
		return err
	}
	if cerr := ctx.Err(); cerr != nil {
		// Whatever the driver says by then (interrupted, rolled back, bad connection) follows from it.
		return fmt.Errorf("journal %s: %s: %w", s.cfg.Path, doing, cerr)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("journal %s: %s: %w", s.cfg.Path, doing, err)
	}
	code, reason := codes.Internal, "an unexpected answer"
	var e *sqlite.Error
	if errors.As(err, &e) {
		code, reason = verdict(e.Code())
	}
	var unknown *unknownError
	if code == codes.Internal && errors.As(err, &unknown) {
		code, reason = codes.StoreUnavailable, "it is unknown whether it stands" // Internal would be a refusal
	}
	if isBusy(err) {
		reason = fmt.Sprintf("it is locked by another process, for longer than %s", s.cfg.BusyTimeout)
	}
	return &codes.Error{Code: code, Msg: fmt.Sprintf("journal %s: %s: %s (SQLite: %s)", s.cfg.Path, doing, reason, short(err.Error())), Err: err}
}

// short makes one printable line out of a driver's text, which may quote from a damaged file.
func short(text string) string {
	const most = 120
	line := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
	line = strings.Join(strings.Fields(line), " ")
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return line
}

// isBusy says whether another connection holds a lock that was needed.
func isBusy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

// verdict translates a result code of SQLite.
func verdict(rc int) (code *codes.Code, reason string) {
	switch rc {
	case sqlite3.SQLITE_READONLY_DBMOVED:
		return codes.StoreUnavailable, "the file was moved or deleted while it was in use"
	case sqlite3.SQLITE_IOERR_CORRUPTFS, sqlite3.SQLITE_IOERR_DATA:
		return codes.JournalCorrupt, "the file system says that the file is damaged"
	}
	switch rc & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		return codes.StoreUnavailable, "it is locked by another process"
	case sqlite3.SQLITE_FULL:
		return codes.StoreUnavailable, "the disk is full; make room"
	case sqlite3.SQLITE_READONLY:
		return codes.StoreUnavailable, "it cannot be written; check the permissions of the file and its folder"
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH:
		return codes.StoreUnavailable, "it cannot be opened; check the permissions of the file and its folder"
	case sqlite3.SQLITE_IOERR:
		return codes.StoreUnavailable, "reading or writing failed; check the disk"
	case sqlite3.SQLITE_NOMEM:
		return codes.StoreUnavailable, "there is not enough memory"
	case sqlite3.SQLITE_NOTADB:
		return codes.StoreInvalid, "it is not a SQLite file, or its first page is damaged; check the path"
	case sqlite3.SQLITE_ERROR:
		// The statements are fixed and tested, so the file's schema is not what they were written for.
		return codes.JournalCorrupt, "its tables are not as this version makes them; restore it from a backup, or use a new store"
	case sqlite3.SQLITE_CORRUPT:
		return codes.JournalCorrupt, "the file is damaged; restore it from a backup, or use a new store"
	case sqlite3.SQLITE_CONSTRAINT:
		return codes.JournalCorrupt, "it holds rows that cannot be there; restore it from a backup, or use a new store"
	case sqlite3.SQLITE_TOOBIG:
		return codes.LimitReached, "a value is larger than SQLite takes"
	}
	return codes.Internal, "an unexpected answer"
}

// corrupt is the error of a row that is not what was written.
func (s *Store) corrupt(format string, args ...any) error {
	return codes.New(codes.JournalCorrupt, "journal %s: %s; restore it from a backup, or start a new run id", s.cfg.Path, fmt.Sprintf(format, args...))
}
