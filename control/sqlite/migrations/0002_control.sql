-- Leases, admission, outbox and publications. Times are nanoseconds since the Unix epoch. crc is as in the journal's tables.

-- until_ns 0 is a term that was ended by its holder.
CREATE TABLE leases (
  name     TEXT    NOT NULL PRIMARY KEY,
  owner    TEXT    NOT NULL,
  token    INTEGER NOT NULL CHECK (token > 0),
  until_ns INTEGER NOT NULL,
  crc      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Admitted runs with the claim of their scope: principal, operation and key.
CREATE TABLE admission (
  id          INTEGER PRIMARY KEY,
  run_id      TEXT    NOT NULL UNIQUE,
  principal   TEXT    NOT NULL,
  operation   TEXT    NOT NULL,
  key         TEXT    NOT NULL,
  flow        TEXT    NOT NULL,
  snapshot    TEXT    NOT NULL,
  phase       TEXT    NOT NULL CHECK (phase IN ('QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
  revision    INTEGER NOT NULL,
  result_refs TEXT    NOT NULL, -- a JSON array
  error       TEXT    NOT NULL,
  cancel      INTEGER NOT NULL, -- 1: it should not start
  created_ns  INTEGER NOT NULL,
  updated_ns  INTEGER NOT NULL,
  crc         INTEGER NOT NULL,
  body        BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX admission_by_scope ON admission (principal, operation, key);
CREATE INDEX admission_by_principal ON admission (principal, id);
CREATE INDEX admission_by_phase ON admission (phase, id);

-- The queue. One writer at a time, so ids are committed in order. claimant '' is nobody.
CREATE TABLE outbox (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  kind       TEXT    NOT NULL,
  run_id     TEXT    NOT NULL,
  attempt    INTEGER NOT NULL,
  claimant   TEXT    NOT NULL,
  claimed_ns INTEGER NOT NULL,
  delivered  INTEGER NOT NULL,
  created_ns INTEGER NOT NULL,
  crc        INTEGER NOT NULL
) STRICT;
CREATE INDEX outbox_pending ON outbox (id) WHERE delivered = 0 AND claimant = '';
CREATE INDEX outbox_claimed ON outbox (id) WHERE delivered = 0 AND claimant <> '';
CREATE UNIQUE INDEX outbox_by_run ON outbox (run_id, kind);

-- digest is the SHA-256 of value; the reconciler compares them.
CREATE TABLE publications (
  key        TEXT    NOT NULL PRIMARY KEY,
  digest     BLOB    NOT NULL CHECK (length(digest) = 32),
  run_id     TEXT    NOT NULL,
  created_ns INTEGER NOT NULL,
  value      BLOB    NOT NULL
) STRICT, WITHOUT ROWID;
