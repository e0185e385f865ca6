package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	_ "modernc.org/sqlite" // registers the driver "sqlite"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
)

// Config says which file to open and how.
type Config struct {
	// Path of the file. Its folder must exist.
	Path string
	// MustExist refuses a file that is not there instead of creating it: for commands that only look.
	MustExist bool
	// BusyTimeout is how long a lock of another process is waited for. Defaults to 5 s.
	BusyTimeout time.Duration
	// Now is the store's clock, by which leases end and claims age. Defaults to time.Now; tests move it.
	Now func() time.Time
	// Hook is called between any two steps of a write, with the step's name: for tests and drills, which fail, stop or kill there. "begin" comes
	// before the transaction, "commit" just before COMMIT, with the write lock held, and "committed" after it, before the caller hears of it.
	// An error ends the write, and comes back. It may be called from several goroutines. Defaults to none.
	Hook func(step string) error

	// maxPages bounds the file, as a full disk would. 0 is no bound.
	maxPages int
	// maxBlob is the largest value in bytes. 0 is SQLite's own limit.
	maxBlob int
	// migrations are applied instead of the embedded ones.
	migrations []migration
}

// maxValue is what SQLite takes in one row: a billion bytes, less room for the rest of the row.
const maxValue = 1_000_000_000 - 1<<16

// Store is a control plane in a SQLite file: it implements control.ControlStore.
type Store struct {
	cfg            Config
	writer, reader *sql.DB
	st             statements
	bell           *bell
	// file is what Path named when it was opened.
	file fs.FileInfo
}

var _ control.ControlStore = (*Store)(nil)

// Open opens or creates the file and brings its schema up to date. It fails with StoreUnavailable (missing folder, no permission),
// StoreInvalid (not a SQLite file, or another program's), StoreNewer or JournalCorrupt.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	path, err := filepath.Abs(cfg.Path)
	if cfg.Path == "" || err != nil {
		return nil, codes.New(codes.StoreInvalid, "the journal's path %q cannot be used", cfg.Path)
	}
	cfg.Path = path
	if cfg.BusyTimeout <= 0 {
		cfg.BusyTimeout = 5 * time.Second
	}
	if cfg.maxBlob == 0 {
		cfg.maxBlob = maxValue
	}
	if cfg.migrations == nil {
		cfg.migrations = embedded()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{cfg: cfg, bell: newBell()}
	if s.file, err = s.place(); err != nil {
		return nil, err
	}
	if s.writer, err = sql.Open("sqlite", s.dsn(false)); err != nil {
		return nil, s.fail(ctx, "open", err)
	}
	s.writer.SetMaxOpenConns(1)
	if s.reader, err = sql.Open("sqlite", s.dsn(true)); err != nil {
		return nil, errors.Join(s.fail(ctx, "open", err), s.Close())
	}
	// Readers have no upper bound: a reader may read again while it reads, and a bound would then be a deadlock.
	s.reader.SetMaxIdleConns(2)
	if err := s.prepare(ctx); err != nil {
		err = s.fail(ctx, "open", err)
		_ = s.Close() // the reason to give up says more
		return nil, err
	}
	return s, nil
}

// place makes sure that a regular file stands at the path, without opening one that is there.
func (s *Store) place() (fs.FileInfo, error) {
	unavailable := func(err error, format string, args ...any) error {
		return codes.New(codes.StoreUnavailable, "journal %s: "+format+": %w", append(append([]any{s.cfg.Path}, args...), err)...)
	}
	dir := filepath.Dir(s.cfg.Path)
	if info, err := os.Stat(dir); err != nil {
		return nil, unavailable(bare(err), "its folder %s cannot be used; create it first", dir)
	} else if !info.IsDir() {
		return nil, codes.New(codes.StoreUnavailable, "journal %s: %s is not a folder", s.cfg.Path, dir)
	}
	info, err := os.Stat(s.cfg.Path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return nil, codes.New(codes.StoreInvalid, "journal %s: it is not a regular file", s.cfg.Path)
	case err == nil:
		return info, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, unavailable(bare(err), "it cannot be looked at")
	case s.cfg.MustExist:
		return nil, codes.New(codes.StoreUnavailable, "journal %s: there is no such file", s.cfg.Path)
	}
	f, err := os.OpenFile(s.cfg.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil && !errors.Is(err, fs.ErrExist) { // another process may have been faster
		return nil, unavailable(bare(err), "it cannot be created")
	}
	if err == nil {
		err = errors.Join(f.Close(), syncFolder(dir))
		if err != nil {
			return nil, unavailable(bare(err), "it cannot be created")
		}
	}
	if info, err = os.Stat(s.cfg.Path); err != nil {
		return nil, unavailable(bare(err), "it cannot be looked at")
	}
	return info, nil
}

// syncFolder makes a new file's name durable. SQLite does so for the files that it creates itself.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrInvalid) {
		err = nil // a file system that cannot sync folders
	}
	return errors.Join(err, d.Close())
}

// bare is the reason without the path, which the message names already.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// dsn is the driver's connection string; each parameter is applied to every connection.
func (s *Store) dsn(read bool) string {
	path := filepath.ToSlash(s.cfg.Path)
	if path[0] != '/' { // a drive letter
		path = "/" + path
	}
	q := url.Values{
		"mode":          {"rw"}, // never create: place did, with the right mode
		"_txlock":       {"immediate"},
		"_busy_timeout": {strconv.FormatInt(max(1, s.cfg.BusyTimeout.Milliseconds()), 10)},
		"_synchronous":  {"FULL"},
		"_foreign_keys": {"1"},
		"_defensive":    {"1"},
		"_dqs":          {"0"},
		"_error_rc":     {"1"},
		// trusted_schema: what a strange file's schema may do. cell_size_check: look closer at pages that may be damaged. journal_size_limit: a large
		// epoch does not leave a large PATH-wal behind.
		"_pragma": {"trusted_schema(0)", "cell_size_check(1)", fmt.Sprintf("journal_size_limit(%d)", 64<<20), fmt.Sprintf("wal_autocheckpoint(%d)", autoCheckpoint)},
	}
	if s.cfg.maxPages > 0 {
		q.Add("_pragma", fmt.Sprintf("max_page_count(%d)", s.cfg.maxPages))
	}
	if read {
		q.Set("_query_only", "1")
	}
	return "file://" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// Page size and the size of PATH-wal, in pages, from which a commit also moves it into the file. Values are large (state blobs, row runs), so
// pages larger than the default mean fewer of them.
const (
	pageSize       = 8192
	autoCheckpoint = 1000
)

// Close closes the file. The last process to do so moves PATH-wal into it.
func (s *Store) Close() error {
	s.bell.close()
	var errs []error
	for _, db := range []*sql.DB{s.reader, s.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return s.fail(context.Background(), "close", err)
	}
	return nil
}

// step lets a test act before a step of a write.
func (s *Store) step(name string) error {
	if s.cfg.Hook == nil {
		return nil
	}
	return s.cfg.Hook(name)
}

// unmoved says whether the path still names the file that is open. SQLite itself would go on writing into a file that was deleted, and
// acknowledge what nobody will find again.
func (s *Store) unmoved() error {
	info, err := os.Stat(s.cfg.Path)
	if err != nil {
		return codes.New(codes.StoreUnavailable, "journal %s: the file was moved or deleted while it was in use: %w", s.cfg.Path, bare(err))
	}
	if !os.SameFile(info, s.file) {
		return codes.New(codes.StoreUnavailable, "journal %s: the file was replaced by another one while it was in use", s.cfg.Path)
	}
	return nil
}

// write runs fn in one transaction that holds the write lock from its beginning.
func (s *Store) write(ctx context.Context, fn func(t *txn) error) error {
	if err := s.unmoved(); err != nil {
		return err
	}
	if err := s.step("begin"); err != nil {
		return err
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	// After a panic too: a transaction that stays open holds the file. After Commit it does nothing.
	defer tx.Rollback()
	t := &txn{s: s, ctx: ctx, tx: tx, statement: context.WithoutCancel(ctx)}
	if err := fn(t); err != nil {
		return err
	}
	if err := s.step("commit"); err != nil {
		return err
	}
	err = tx.Commit()
	if err == nil {
		if t.wakes {
			s.bell.ring()
		}
		// What was acknowledged must be where it will be looked for.
		if err = s.unmoved(); err == nil {
			err = s.step("committed")
		}
	}
	if err != nil {
		return &unknownError{err}
	}
	return nil
}

// unknownError is an error that came after COMMIT was sent: the transaction may stand.
type unknownError struct{ err error }

func (e *unknownError) Error() string { return e.err.Error() }
func (e *unknownError) Unwrap() error { return e.err }

// attempt is how long SQLite tries to get the write lock before begin asks it again. SQLite waits longer and longer between its tries, up to
// 100 ms, and has no queue: beside writers that come again at once, one with such pauses would hardly ever find the lock free. Asked again it
// starts with pauses of a millisecond.
const attempt = 20 * time.Millisecond

// begin starts a transaction with the write lock, for which it waits for BusyTimeout.
func (s *Store) begin(ctx context.Context) (*sql.Tx, error) {
	deadline := time.Now().Add(s.cfg.BusyTimeout)
	for {
		tx, err := s.writer.BeginTx(ctx, nil)
		if !isBusy(err) || !time.Now().Before(deadline) {
			return tx, err
		}
	}
}

// read runs fn in one transaction that sees one consistent moment.
func (s *Store) read(ctx context.Context, fn func(tx *sql.Tx) error) error {
	tx, err := s.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it has changed nothing
	return fn(tx)
}

// txn is a write transaction.
type txn struct {
	s   *Store
	tx  *sql.Tx
	ctx context.Context
	// statement is ctx without its end. Each statement is short (a value of maxPart at most, or one state blob), so ctx is looked at
	// between statements; the driver would otherwise start a goroutine for each one, and drop the connection that it interrupted.
	statement context.Context
	// wakes says that events became pending.
	wakes bool
}

// next is called before every statement.
func (t *txn) next(step string) error {
	if err := t.s.step(step); err != nil {
		return err
	}
	return t.ctx.Err()
}

// exec runs a prepared statement and returns how many rows it changed.
func (t *txn) exec(step string, st *sql.Stmt, args ...any) (int64, error) {
	if err := t.next(step); err != nil {
		return 0, err
	}
	res, err := t.tx.StmtContext(t.statement, st).ExecContext(t.statement, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// query runs a prepared statement that returns at most one row.
func (t *txn) query(step string, st *sql.Stmt, args ...any) (*sql.Row, error) {
	if err := t.next(step); err != nil {
		return nil, err
	}
	return t.tx.StmtContext(t.statement, st).QueryRowContext(t.statement, args...), nil
}

// adhoc runs a statement that is not worth keeping prepared.
func (t *txn) adhoc(step, text string, args ...any) error {
	if err := t.next(step); err != nil {
		return err
	}
	_, err := t.tx.ExecContext(t.statement, text, args...)
	return err
}
