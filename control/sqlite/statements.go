package sqlite

import (
	"context"
	"database/sql"
	"strings"
)

const (
	selectRuns = `SELECT id, run_id, fingerprint, source, source_id, source_group, status, epoch, watermark, partitions, created_ns, committed_ns, crc,
		fence, forked_from, forked_epoch FROM runs`
	selectCuts = `SELECT run, partition, epoch, next, watermark, finished, records, consumed, filtered, omitted, duplicates, late, future, outputs,
		blobs, parts, quarantined, decided, crc FROM cuts`
	selectBlobRefs = `SELECT name, size, digest, ref_crc FROM blobs WHERE run = ? AND partition = ? ORDER BY name`
	selectBlob     = `SELECT crc, data FROM blobs WHERE run = ? AND partition = ? AND name = ?`
	selectBlobs    = `SELECT name, crc, data FROM blobs WHERE run = ? AND partition = ? ORDER BY name`
	selectOutputs  = `SELECT epoch, part, parts, rows, first, last, crc, data FROM outputs WHERE run = ? AND partition = ? ORDER BY epoch, part`
	quarantined    = `SELECT partition, position, epoch, n, reason, detail, event_id, event_time, sub, arrival, headers IS NULL, headers, crc, key IS NULL, key, value IS NULL, value FROM quarantine`
	decided        = `SELECT partition, position, epoch, n, kind, detail, crc FROM decisions`
	byPosition     = ` ORDER BY partition, position, epoch, n`

	selectQuarantine   = quarantined + ` WHERE run = ?` + byPosition
	selectQuarantineOf = quarantined + ` WHERE run = ? AND partition = ?` + byPosition
	selectDecisions    = decided + ` WHERE run = ?` + byPosition
	selectDecisionsOf  = decided + ` WHERE run = ? AND partition = ?` + byPosition

	insertRun = `INSERT INTO runs (run_id, fingerprint, source, source_id, source_group, status, epoch, watermark, partitions, created_ns, committed_ns, crc, id,
		fence, forked_from, forked_epoch) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`
	updateHeader = `UPDATE runs SET source_id = ?, source_group = ?, partitions = ?, fence = ?, crc = ? WHERE id = ?`
	insertCut    = `INSERT INTO cuts (run, partition, epoch, next, watermark, finished, records, consumed, filtered, omitted, duplicates, late, future, outputs,
		blobs, parts, quarantined, decided, crc) VALUES (?, ?, 0, ?, ?, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ?)`

	// The compare-and-set: no row is changed unless the run still stands at the epoch before.
	updateRun = `UPDATE runs SET status = ?, epoch = ?, watermark = ?, committed_ns = ?, fence = ?, crc = ? WHERE id = ? AND epoch = ? AND status = 'OPEN'`
	updateCut = `UPDATE cuts SET epoch = ?, next = ?, watermark = ?, finished = ?, records = ?, consumed = ?, filtered = ?, omitted = ?, duplicates = ?, late = ?, future = ?, outputs = ?,
		blobs = ?, parts = ?, quarantined = ?, decided = ?, crc = ? WHERE run = ? AND partition = ?`
	updateBlob   = `UPDATE blobs SET size = ?, digest = ?, ref_crc = ?, crc = ?, data = ? WHERE run = ? AND partition = ? AND name = ?`
	insertBlob   = `INSERT INTO blobs (size, digest, ref_crc, crc, data, run, partition, name) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`
	deleteBlob   = `DELETE FROM blobs WHERE run = ? AND partition = ? AND name = ?`
	insertOutput = `INSERT INTO outputs (run, partition, epoch, part, parts, rows, first, last, crc, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	insertQuarantine = `INSERT INTO quarantine (run, partition, position, epoch, n, reason, detail, event_id, event_time, sub, arrival, headers, crc, key, value) VALUES `
	quarantineWidth  = 15
	insertDecisions  = `INSERT INTO decisions (run, partition, position, epoch, n, kind, detail, crc) VALUES `
	decisionsWidth   = 8
)

// batches are how many rows one insert of quarantine or decisions takes. A commit uses the largest that it can fill.
var batches = [...]int{maxBatch, 8, 1}

const maxBatch = 64

// statements of the writing connection, prepared once.
type statements struct {
	run, cut, updateRun, updateCut, updateBlob, insertBlob, deleteBlob, insertOutput *sql.Stmt
	quarantine, decisions                                                            [len(batches)]*sql.Stmt

	lease, insertLease, updateLease                                  *sql.Stmt
	scope, admitted, lastAdmission, insertAdmission, updateAdmission *sql.Stmt
	event, lastEvent, insertEvent, updateEvent                       *sql.Stmt
	digest                                                           *sql.Stmt
	pointer, insertPointer, pinPointer, dropPointer                  *sql.Stmt
	publish                                                          [len(batches)]*sql.Stmt
}

func (st *statements) prepare(ctx context.Context, db *sql.DB) (err error) {
	prepare := func(to **sql.Stmt, text string) {
		if err == nil {
			*to, err = db.PrepareContext(ctx, text)
		}
	}
	prepare(&st.run, selectRuns+` WHERE run_id = ?`)
	prepare(&st.cut, selectCuts+` WHERE run = ? AND partition = ?`)
	prepare(&st.updateRun, updateRun)
	prepare(&st.updateCut, updateCut)
	prepare(&st.updateBlob, updateBlob)
	prepare(&st.insertBlob, insertBlob)
	prepare(&st.deleteBlob, deleteBlob)
	prepare(&st.insertOutput, insertOutput)
	for i, n := range batches {
		prepare(&st.quarantine[i], insertQuarantine+tuples(n, quarantineWidth))
		prepare(&st.decisions[i], insertDecisions+tuples(n, decisionsWidth))
		prepare(&st.publish[i], insertPublications+tuples(n, publicationsWidth)+ifAbsent)
	}
	prepare(&st.lease, selectLeases+` WHERE name = ?`)
	prepare(&st.insertLease, `INSERT INTO leases (owner, token, until_ns, crc, name) VALUES (?, ?, ?, ?, ?)`)
	prepare(&st.updateLease, `UPDATE leases SET owner = ?, token = ?, until_ns = ?, crc = ? WHERE name = ?`)
	prepare(&st.scope, selectAdmission+` WHERE principal = ? AND operation = ? AND key = ?`)
	prepare(&st.admitted, selectAdmission+` WHERE run_id = ?`)
	prepare(&st.lastAdmission, `SELECT coalesce(max(id), 0) FROM admission`)
	prepare(&st.insertAdmission, `INSERT INTO admission (id, run_id, principal, operation, key, flow, snapshot, phase, revision, result_refs, error, cancel, created_ns, updated_ns, crc, body)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
	prepare(&st.updateAdmission, `UPDATE admission SET phase = ?, revision = ?, result_refs = ?, error = ?, cancel = ?, updated_ns = ?, crc = ? WHERE id = ?`)
	prepare(&st.event, selectOutbox+` WHERE id = ?`)
	// An id is never given twice, also when the newest event was removed: people and logs name events by it.
	prepare(&st.lastEvent, `SELECT seq FROM sqlite_sequence WHERE name = 'outbox'`)
	prepare(&st.insertEvent, `INSERT INTO outbox (id, kind, run_id, attempt, claimant, claimed_ns, delivered, created_ns, crc) VALUES (?, ?, ?, 0, '', 0, 0, ?, ?)`)
	prepare(&st.updateEvent, `UPDATE outbox SET attempt = ?, claimant = ?, claimed_ns = ?, delivered = ?, crc = ? WHERE id = ?`)
	prepare(&st.digest, `SELECT digest FROM publications WHERE key = ?`)
	prepare(&st.pointer, selectPointers+` WHERE run_id = ? AND epoch = ?`)
	prepare(&st.insertPointer, `INSERT INTO pointers (run_id, epoch, manifest, hash, fingerprint, token, blobs, bytes, new_bytes, pinned, created_ns, crc)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
	prepare(&st.pinPointer, `UPDATE pointers SET pinned = ?, crc = ? WHERE run_id = ? AND epoch = ?`)
	prepare(&st.dropPointer, `DELETE FROM pointers WHERE run_id = ? AND epoch = ?`)
	return err
}

// tuples writes n value lists of a width: (?, ?), (?, ?).
func tuples(n, width int) string {
	one := "(?" + strings.Repeat(", ?", width-1) + ")"
	return one + strings.Repeat(", "+one, n-1)
}
