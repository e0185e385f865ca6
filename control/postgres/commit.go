package postgres

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirstream/weir/codes"
	"github.com/weirstream/weir/control"
	"github.com/weirstream/weir/partitions"
	"github.com/weirstream/weir/record"
)

const (
	// maxPart is the largest part of a row run; maxFlush the bytes from which a flush is sent before more is queued.
	maxPart  = 4 << 20
	maxFlush = 8 << 20
	// maxRows is the most rows that one statement inserts.
	maxRows = 4000
	// maxValue is what a bytea takes, less room for the rest of the message.
	maxValue = 1<<30 - 1<<16
)

const (
	updateJournal = `UPDATE weir.journal SET status = $3, epoch = $4, watermark = $5, fence = $6, committed = clock_timestamp() WHERE id = $1 AND epoch = $2 AND status = 'OPEN'`
	updateCut     = `UPDATE weir.checkpoints SET epoch = $3, next = $4, watermark = $5, finished = $6, records = $7, consumed = $8, filtered = $9, omitted = $10, duplicates = $11, late = $12,
		future = $13, outputs = $14 WHERE run = $1 AND partition = $2`
	deleteBlobs = `DELETE FROM weir.checkpoint_blobs WHERE run = $1 AND partition = $2 AND name = ANY ($3)`
	putBlobs    = `INSERT INTO weir.checkpoint_blobs (run, partition, name, data, digest) SELECT $1, $2, b.* FROM unnest($3::bytea[], $4::bytea[], $5::bytea[]) AS b
		ON CONFLICT (run, partition, name) DO UPDATE SET data = excluded.data, digest = excluded.digest`
	insertOutput = `INSERT INTO weir.journal_outputs (run, partition, epoch, part, parts, rows, first, last, data) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	insertAside  = `INSERT INTO weir.quarantine (run, partition, epoch, position, n, reason, detail, event_id, event_time, key, value, sub, arrival, headers)
		SELECT $1, $2, $3, q.* FROM unnest($4::bytea[], $5::int[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bigint[], $10::bytea[], $11::bytea[],
			$12::bigint[], $13::bigint[], $14::bytea[]) AS q`
	insertDecisions = `INSERT INTO weir.decisions (run, partition, epoch, position, n, kind, detail)
		SELECT $1, $2, $3, d.* FROM unnest($4::bytea[], $5::int[], $6::bytea[], $7::bytea[]) AS d`
)

// Commit is control.Journal's, in two round trips for an epoch of ordinary size: lock and read, then write and commit.
func (s *Store) Commit(ctx context.Context, c control.Commit) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return s.commitUnder(ctx, nil, c)
}

// commitUnder commits under a lease, or with nil under none.
func (s *Store) commitUnder(ctx context.Context, l *control.Lease, c control.Commit) error {
	if err := s.fits(c); err != nil {
		return err
	}
	err := s.write(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		err := s.commit(ctx, conn, l, c)
		if err != nil {
			endTransaction(ctx, conn)
		}
		return err
	})
	if l != nil {
		err = refusal(err, *l)
	}
	return s.fail(ctx, fmt.Sprintf("commit of epoch %d of run %q", c.Epoch, c.RunID), err)
}

// fits refuses values that PostgreSQL does not take, before anything is written.
func (s *Store) fits(c control.Commit) error {
	for _, p := range c.Partitions {
		for _, b := range p.Cut.Put {
			if n := len(b.Data) + len(b.Name); n > maxValue {
				return codes.New(codes.LimitReached, "store %s: run %q, partition %d: the state blob %q has %d bytes, PostgreSQL takes %d", s.name, c.RunID, p.Cut.Partition, b.Name, n, maxValue)
			}
		}
		for i := range p.Quarantine {
			if n := p.Quarantine[i].Size(); n > maxValue {
				return codes.New(codes.LimitReached, "store %s: run %q, partition %d: the quarantined record at %s has %d bytes, PostgreSQL takes %d", s.name, c.RunID, p.Cut.Partition, p.Quarantine[i].Position, n, maxValue)
			}
		}
	}
	return nil
}

func (s *Store) commit(ctx context.Context, conn *pgx.Conn, l *control.Lease, c control.Commit) error {
	row, cuts, err := s.begin(ctx, conn, l, c)
	if err != nil {
		return err
	}
	if err := s.step("locked", conn); err != nil {
		return err
	}
	var token control.FenceToken
	if l != nil {
		token = l.Token
	}
	if err := check(row, cuts, c, token); err != nil {
		return err
	}
	return s.commitRow(ctx, conn, row.id, c, token)
}

// commitRow writes an epoch that was checked against the row of its run, which is locked, and ends the transaction.
func (s *Store) commitRow(ctx context.Context, conn *pgx.Conn, run int64, c control.Commit, token control.FenceToken) error {
	f := &flush{s: s, ctx: ctx, conn: conn, batch: &pgx.Batch{}, run: run, epoch: int64(c.Epoch)}
	f.queue(updateJournal, 0, run, int64(c.Epoch)-1, string(c.Status), int64(c.Epoch), int64(c.Watermark), int64(token))
	for i := range c.Partitions {
		if err := f.partition(&c.Partitions[i]); err != nil {
			return err
		}
	}
	if err := f.join(c, token); err != nil {
		return err
	}
	commits(f.batch)
	if err := s.step("commit", conn); err != nil {
		return err
	}
	return f.send()
}

// begin opens the transaction, locks the lease and the run, and reads what the commit will be compared with.
func (s *Store) begin(ctx context.Context, conn *pgx.Conn, l *control.Lease, c control.Commit) (row journalRow, cuts map[int32]partitions.Cut, err error) {
	var ps []int32
	for i := range c.Partitions {
		ps = append(ps, c.Partitions[i].Cut.Partition)
	}
	cuts = map[int32]partitions.Cut{}
	b := &pgx.Batch{}
	s.begins(b, l)
	b.Queue(selectJournal+` WHERE run_id = $1 FOR NO KEY UPDATE`, text(c.RunID)).QueryRow(func(r pgx.Row) (err error) {
		row, err = scanJournal(r)
		return noRun(err, c.RunID)
	})
	b.Queue(selectCuts+` WHERE run = (SELECT id FROM weir.journal WHERE run_id = $1) AND partition = ANY ($2)`, text(c.RunID), some(ps)).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			r, err := scanCut(rows)
			if err != nil {
				return err
			}
			cuts[r.cut.Partition] = r.cut
		}
		return rows.Err()
	})
	return row, cuts, conn.SendBatch(ctx, b).Close()
}

// check applies the rules of a commit.
func check(row journalRow, cuts map[int32]partitions.Cut, c control.Commit, token control.FenceToken) error {
	if err := control.CheckFence(c.RunID, row.fence, token); err != nil {
		return err
	}
	if err := control.CheckCommit(row.info.Status, row.info.Epoch, c); err != nil {
		return err
	}
	if c.Watermark < row.info.Watermark {
		return codes.New(codes.Internal, "run %q: the merged watermark would go back from %s to %s", c.RunID, row.info.Watermark, c.Watermark)
	}
	for i := range c.Partitions {
		next := c.Partitions[i].Cut
		stored, ok := cuts[next.Partition]
		if !ok {
			return codes.New(codes.Internal, "run %q has no partition %d", c.RunID, next.Partition)
		}
		if err := control.CheckCut(c.RunID, stored, next); err != nil {
			return err
		}
	}
	return nil
}

// flush collects statements of a transaction and sends them, many at once.
type flush struct {
	s     *Store
	ctx   context.Context
	conn  *pgx.Conn
	batch *pgx.Batch
	size  int
	// run and epoch that are written.
	run, epoch int64
}

// queue adds a statement whose parameters have about size bytes. It has to change a row only where that is compared, under the lock.
func (f *flush) queue(statement string, size int, args ...any) {
	f.batch.Queue(statement, args...)
	f.size += size
}

// room sends what has been queued when it is much.
func (f *flush) room() error {
	if f.size < maxFlush {
		return nil
	}
	if err := f.s.step("flush", f.conn); err != nil {
		return err
	}
	return f.send()
}

func (f *flush) send() error {
	err := f.conn.SendBatch(f.ctx, f.batch).Close()
	*f.batch, f.size = pgx.Batch{}, 0
	return err
}

// partition queues one partition's share.
func (f *flush) partition(p *control.PartitionCommit) error {
	if err := f.blobs(&p.Cut); err != nil {
		return err
	}
	if err := f.rows(p.Cut.Partition, &p.Rows); err != nil {
		return err
	}
	if err := f.quarantine(p.Cut.Partition, p.Quarantine); err != nil {
		return err
	}
	if err := f.decisions(p.Cut.Partition, p.Decisions); err != nil {
		return err
	}
	f.cut(&p.Cut)
	return nil
}

func (f *flush) cut(cut *partitions.Cut) {
	c := &cut.Counts
	f.queue(updateCut, 0, f.run, cut.Partition, f.epoch, positionBytes(cut.Next), int64(cut.Watermark), cut.Finished,
		c.Records, c.Consumed, c.Filtered, c.Omitted, c.Duplicates, c.Late, c.Future, c.Outputs)
}

func positionBytes(p record.Position) []byte {
	b, _ := p.AppendBinary(nil) // its error is always nil
	return b
}

// blobs applies a cut's delta: deletes, then puts, of which the last one of a name counts.
func (f *flush) blobs(cut *partitions.Cut) error {
	if len(cut.Delete) > 0 {
		names := make([][]byte, len(cut.Delete))
		for i, name := range cut.Delete {
			names[i] = []byte(name)
		}
		f.queue(deleteBlobs, 0, f.run, cut.Partition, names)
	}
	last := make(map[string]int, len(cut.Put))
	for i, b := range cut.Put {
		last[b.Name] = i
	}
	puts := f.puts(cut.Partition)
	for i, b := range cut.Put {
		if last[b.Name] != i {
			continue
		}
		if err := puts.add(b); err != nil {
			return err
		}
	}
	return puts.end()
}

// puts gathers state blobs of a partition for one statement. Two of one name must not meet in it.
type puts struct {
	f                    *flush
	partition            int32
	names, data, digests [][]byte
	size                 int
}

func (f *flush) puts(partition int32) *puts { return &puts{f: f, partition: partition} }

// add gathers a blob, whose data must stay as it is until it is sent.
func (p *puts) add(b partitions.StateBlob) error {
	digest := sha256.Sum256(b.Data)
	p.names, p.data, p.digests = append(p.names, []byte(b.Name)), append(p.data, notNil(b.Data)), append(p.digests, digest[:])
	if p.size += len(b.Data); p.size >= maxFlush || len(p.names) == maxRows {
		return p.end()
	}
	return nil
}

// end queues what was gathered.
func (p *puts) end() error {
	if len(p.names) > 0 {
		p.f.queue(putBlobs, p.size, p.f.run, p.partition, p.names, p.data, p.digests)
	}
	p.names, p.data, p.digests, p.size = nil, nil, nil, 0
	return p.f.room()
}

// notNil makes an empty value out of a missing one: nil would become NULL.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// rows writes the rows of an epoch in parts. A part ends anywhere, also within a row; a reader puts them together again.
func (f *flush) rows(partition int32, rows *partitions.Rows) error {
	parts := (len(rows.Data) + maxPart - 1) / maxPart
	data := rows.Data
	for part := range parts {
		piece := data[:min(len(data), maxPart)]
		data = data[len(piece):]
		f.queue(insertOutput, len(piece), f.run, partition, f.epoch, part, parts, rows.Count, int64(rows.First), int64(rows.Last), piece)
		if err := f.room(); err != nil {
			return err
		}
	}
	return nil
}

func (f *flush) quarantine(partition int32, all []partitions.Quarantined) error {
	for from := 0; from < len(all); {
		to, size := from, 0
		var positions, reasons, details, ids, keys, values, headers [][]byte
		var ns []int32
		var times, subs, arrivals []int64
		for ; to < len(all) && to-from < maxRows && (to == from || size+all[to].Size() <= maxPart); to++ {
			q := &all[to]
			size += q.Size()
			positions, ns, reasons, details = append(positions, positionBytes(q.Position)), append(ns, int32(to)), append(reasons, []byte(q.Reason)), append(details, []byte(q.Detail))
			ids, times, keys, values = append(ids, []byte(q.EventID)), append(times, int64(q.EventTime)), append(keys, q.Key), append(values, q.Value)
			subs, arrivals, headers = append(subs, int64(q.Sub)), append(arrivals, int64(q.Arrival)), append(headers, partitions.EncodeHeaders(q.Headers))
		}
		from = to
		f.queue(insertAside, size, f.run, partition, f.epoch, positions, ns, reasons, details, ids, times, keys, values, subs, arrivals, headers)
		if err := f.room(); err != nil {
			return err
		}
	}
	return nil
}

func (f *flush) decisions(partition int32, all []partitions.Decision) error {
	for from := 0; from < len(all); from += maxRows {
		piece := all[from:min(len(all), from+maxRows)]
		var positions, kinds, details [][]byte
		var ns []int32
		size := 0
		for i := range piece {
			d := &piece[i]
			size += len(d.Detail)
			positions, ns, kinds, details = append(positions, positionBytes(d.Position)), append(ns, int32(from+i)), append(kinds, []byte(d.Kind)), append(details, []byte(d.Detail))
		}
		f.queue(insertDecisions, size, f.run, partition, f.epoch, positions, ns, kinds, details)
		if err := f.room(); err != nil {
			return err
		}
	}
	return nil
}
