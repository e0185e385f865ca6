-- Fenced runs and checkpoints. What SQL cannot say, sums and digests, is filled in by Go (fillFences).

-- fence is the highest token under which the run was opened or committed; 0 is none. forked_from and forked_epoch name the run and epoch that
-- the run is a fork of; '' and 0 is none.
ALTER TABLE runs ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN forked_from TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN forked_epoch INTEGER NOT NULL DEFAULT 0;

-- The state blobs that stand. digest is the SHA-256 of data and size its length: they come before data, so that they are read without it, and
-- ref_crc is the sum of run, partition, name, size and digest. crc is the sum of run, partition, name and data.
DROP INDEX blobs_by_name;
ALTER TABLE blobs RENAME TO blobs_before;
CREATE TABLE blobs (
  run       INTEGER NOT NULL REFERENCES runs (id),
  partition INTEGER NOT NULL,
  name      TEXT    NOT NULL,
  size      INTEGER NOT NULL,
  digest    BLOB    NOT NULL CHECK (length(digest) = 32),
  ref_crc   INTEGER NOT NULL,
  crc       INTEGER NOT NULL,
  data      BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX blobs_by_name ON blobs (run, partition, name);

-- The rows that make manifests retained checkpoints.
CREATE TABLE pointers (
  run_id      TEXT    NOT NULL,
  epoch       INTEGER NOT NULL CHECK (epoch > 0),
  manifest    TEXT    NOT NULL,
  hash        TEXT    NOT NULL,
  fingerprint TEXT    NOT NULL,
  token       INTEGER NOT NULL,
  blobs       INTEGER NOT NULL,
  bytes       INTEGER NOT NULL,
  new_bytes   INTEGER NOT NULL,
  pinned      INTEGER NOT NULL,
  created_ns  INTEGER NOT NULL,
  crc         INTEGER NOT NULL,
  PRIMARY KEY (run_id, epoch)
) STRICT, WITHOUT ROWID;

-- The name of the store, one row.
CREATE TABLE store (
  one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
  id  TEXT    NOT NULL CHECK (length(id) = 32),
  crc INTEGER NOT NULL
) STRICT;
