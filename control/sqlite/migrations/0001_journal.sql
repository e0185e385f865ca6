-- The journal. Times are nanoseconds since the Unix epoch; -9223372036854775808 is "none". A position is 24 bytes big endian, so that bytes
-- sort as positions do. crc is the CRC-32C of everything else in its row (see crc.go): it is checked whenever the row is read.

CREATE TABLE runs (
  id           INTEGER PRIMARY KEY,
  run_id       TEXT    NOT NULL UNIQUE,
  fingerprint  TEXT    NOT NULL,
  source       TEXT    NOT NULL,
  source_id    TEXT    NOT NULL,
  source_group TEXT    NOT NULL,
  status       TEXT    NOT NULL CHECK (status IN ('OPEN', 'FINISHED')),
  epoch        INTEGER NOT NULL,
  watermark    INTEGER NOT NULL,
  partitions   INTEGER NOT NULL, -- how many rows the run has in cuts
  created_ns   INTEGER NOT NULL,
  committed_ns INTEGER NOT NULL,
  crc          INTEGER NOT NULL
) STRICT;

-- One row for each partition of the run, from its opening on; epoch 0 until its first commit. blobs, parts, quarantined and decided say how
-- many rows stand in the tables below, so that a lost row does not pass for one that was never there.
CREATE TABLE cuts (
  run         INTEGER NOT NULL REFERENCES runs (id),
  partition   INTEGER NOT NULL,
  epoch       INTEGER NOT NULL,
  next        BLOB    NOT NULL,
  watermark   INTEGER NOT NULL,
  finished    INTEGER NOT NULL,
  records     INTEGER NOT NULL,
  consumed    INTEGER NOT NULL,
  filtered    INTEGER NOT NULL,
  omitted     INTEGER NOT NULL,
  duplicates  INTEGER NOT NULL,
  late        INTEGER NOT NULL,
  future      INTEGER NOT NULL,
  outputs     INTEGER NOT NULL,
  blobs       INTEGER NOT NULL,
  parts       INTEGER NOT NULL,
  quarantined INTEGER NOT NULL,
  decided     INTEGER NOT NULL,
  crc         INTEGER NOT NULL,
  PRIMARY KEY (run, partition)
) STRICT, WITHOUT ROWID;

-- The state blobs that stand.
CREATE TABLE blobs (
  run       INTEGER NOT NULL REFERENCES runs (id),
  partition INTEGER NOT NULL,
  name      TEXT    NOT NULL,
  crc       INTEGER NOT NULL,
  data      BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX blobs_by_name ON blobs (run, partition, name);

-- The rows of one partition and epoch, cut into parts of at most 4 MiB. The first part carries the count, the times and the number of parts.
CREATE TABLE outputs (
  run       INTEGER NOT NULL REFERENCES runs (id),
  partition INTEGER NOT NULL,
  epoch     INTEGER NOT NULL,
  part      INTEGER NOT NULL,
  parts     INTEGER NOT NULL,
  rows      INTEGER NOT NULL,
  first     INTEGER NOT NULL,
  last      INTEGER NOT NULL,
  crc       INTEGER NOT NULL,
  data      BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX outputs_by_epoch ON outputs (run, partition, epoch, part);

-- n numbers the records that one epoch sets aside in a partition.
CREATE TABLE quarantine (
  run        INTEGER NOT NULL REFERENCES runs (id),
  partition  INTEGER NOT NULL,
  position   BLOB    NOT NULL,
  epoch      INTEGER NOT NULL,
  n          INTEGER NOT NULL,
  reason     TEXT    NOT NULL,
  detail     TEXT    NOT NULL,
  event_id   TEXT    NOT NULL,
  event_time INTEGER NOT NULL,
  crc        INTEGER NOT NULL,
  key        BLOB,
  value      BLOB
) STRICT;
CREATE UNIQUE INDEX quarantine_by_position ON quarantine (run, partition, position, epoch, n);

CREATE TABLE decisions (
  run       INTEGER NOT NULL REFERENCES runs (id),
  partition INTEGER NOT NULL,
  position  BLOB    NOT NULL,
  epoch     INTEGER NOT NULL,
  n         INTEGER NOT NULL,
  kind      TEXT    NOT NULL,
  detail    TEXT    NOT NULL,
  crc       INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX decisions_by_position ON decisions (run, partition, position, epoch, n);
