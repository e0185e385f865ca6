package sqlite

import (
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
)

// fillFences is the part of migration 3 that SQL cannot do: the sums of runs cover the new columns, blobs get their digests, and the store
// its name. A row that is damaged stays so, and is told when it is read: the other runs of the file go on.
func fillFences(t *txn) error {
	if err := t.fillRuns(); err != nil {
		return err
	}
	if err := t.fillBlobs(); err != nil {
		return err
	}
	if err := t.adhoc("drop", `DROP TABLE blobs_before`); err != nil {
		return err
	}
	var b [16]byte
	rand.Read(b[:])
	id := hex.EncodeToString(b[:])
	return t.adhoc("name store", `INSERT INTO store (one, id, crc) VALUES (1, ?, ?)`, id, storeSum(id))
}

func (t *txn) fillRuns() error {
	var all []*runRow
	err := t.s.query(t.ctx, t.tx, selectRuns+` NOT INDEXED`, nil, func(rows *sql.Rows) error {
		r := &runRow{}
		if err := t.s.scanned(rows.Scan(r.columns()...), "a run"); err != nil {
			return err
		}
		if r.crc == r.sumBeforeFences() {
			all = append(all, r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range all {
		if err := t.adhoc("fill run", `UPDATE runs SET crc = ? WHERE id = ?`, r.sum(), r.id); err != nil {
			return err
		}
	}
	return nil
}

func (t *txn) fillBlobs() error {
	insert, err := t.tx.PrepareContext(t.statement, insertBlob)
	if err != nil {
		return err
	}
	defer insert.Close()
	return t.s.query(t.ctx, t.tx, `SELECT run, partition, name, crc, data FROM blobs_before NOT INDEXED ORDER BY rowid`, nil, func(rows *sql.Rows) error {
		var run, partition, crc int64
		var name string
		var data sql.RawBytes
		if err := t.s.scanned(rows.Scan(&run, &partition, &name, &crc, &data), "a state blob"); err != nil {
			return err
		}
		digest := sha256.Sum256(data)
		size := int64(len(data))
		_, err := t.exec("fill blob", insert, size, digest[:], refSum(run, partition, name, size, digest[:]), crc, notNil(data), run, partition, name)
		return err
	})
}
