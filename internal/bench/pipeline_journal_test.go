package bench

import (
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/weirstream/weir/control/sqlite" // brings the driver "sqlite" along
)

// commitEvery is how often every pipeline writes to its journal.
const commitEvery = time.Second

// bookkeeping is the journal of the loops written by hand: one transaction a second in the same SQLite, as durable as weir's (WAL,
// synchronous FULL, the same page size). It is what a resume would need, and no more: no checksums, no checks, no history.
type bookkeeping struct {
	tb                                              testing.TB
	db                                              *sql.DB
	epoch                                           int64
	last                                            time.Time
	putPosition, putIDs, dropIDs, putState, putRows *sql.Stmt
}

// share is one partition's part of a commit: the next offset, the ids since the last commit and the greatest event time among them,
// what event time has to be for an id to be forgotten, the state of keys and waiting records, and the rows.
type share struct {
	partition, next, until, forget int64
	ids, state, rows               []byte
}

func openBookkeeping(tb testing.TB) *bookkeeping {
	tb.Helper()
	k := &bookkeeping{tb: tb, last: time.Now()}
	dsn := "file:" + filepath.Join(tb.TempDir(), "journal.db") +
		"?_txlock=immediate&_pragma=page_size(8192)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=wal_autocheckpoint(1000)"
	var err error
	if k.db, err = sql.Open("sqlite", dsn); err != nil {
		tb.Fatal(err)
	}
	k.db.SetMaxOpenConns(1)
	_, err = k.db.Exec(`CREATE TABLE positions (partition INTEGER PRIMARY KEY, next INTEGER);
		CREATE TABLE ids (partition INTEGER, epoch INTEGER, until INTEGER, data BLOB, PRIMARY KEY (partition, epoch));
		CREATE TABLE state (partition INTEGER PRIMARY KEY, data BLOB);
		CREATE TABLE outputs (partition INTEGER, epoch INTEGER, data BLOB, PRIMARY KEY (partition, epoch))`)
	if err != nil {
		tb.Fatal(err)
	}
	k.prepare(&k.putPosition, `INSERT OR REPLACE INTO positions VALUES (?, ?)`)
	k.prepare(&k.putIDs, `INSERT INTO ids VALUES (?, ?, ?, ?)`)
	k.prepare(&k.dropIDs, `DELETE FROM ids WHERE partition = ? AND until < ?`)
	k.prepare(&k.putState, `INSERT OR REPLACE INTO state VALUES (?, ?)`)
	k.prepare(&k.putRows, `INSERT INTO outputs VALUES (?, ?, ?)`)
	return k
}

func (k *bookkeeping) prepare(to **sql.Stmt, text string) {
	var err error
	if *to, err = k.db.Prepare(text); err != nil {
		k.tb.Fatal(err)
	}
}

func (k *bookkeeping) due() bool { return time.Since(k.last) >= commitEvery }

func (k *bookkeeping) commit(shares []share) {
	k.last = time.Now()
	k.epoch++
	tx, err := k.db.Begin()
	if err != nil {
		k.tb.Fatal(err)
	}
	run := func(st *sql.Stmt, args ...any) {
		if _, err := tx.Stmt(st).Exec(args...); err != nil {
			k.tb.Fatal(err)
		}
	}
	for _, s := range shares {
		run(k.putPosition, s.partition, s.next)
		run(k.putIDs, s.partition, k.epoch, s.until, s.ids)
		run(k.dropIDs, s.partition, s.forget)
		run(k.putState, s.partition, s.state)
		run(k.putRows, s.partition, k.epoch, s.rows)
	}
	if err := tx.Commit(); err != nil {
		k.tb.Fatal(err)
	}
}

// hash is the hash of all rows, partition by partition, as they stand in the journal. It closes it.
func (k *bookkeeping) hash() string {
	h := sha256.New()
	rows, err := k.db.Query(`SELECT data FROM outputs ORDER BY partition, epoch`)
	if err != nil {
		k.tb.Fatal(err)
	}
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			k.tb.Fatal(err)
		}
		h.Write(data)
	}
	if err := rows.Err(); err != nil {
		k.tb.Fatal(err)
	}
	if err := k.db.Close(); err != nil {
		k.tb.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}
