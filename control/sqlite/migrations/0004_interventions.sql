-- What operators ask of the owners of stream runs. detail is JSON: what only some kinds have. settled_ns 0 is PENDING.
CREATE TABLE interventions (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id     TEXT    NOT NULL,
  partition  INTEGER NOT NULL,
  kind       TEXT    NOT NULL,
  detail     TEXT    NOT NULL,
  who        TEXT    NOT NULL,
  why        TEXT    NOT NULL,
  created_ns INTEGER NOT NULL,
  outcome    TEXT    NOT NULL CHECK (outcome IN ('PENDING', 'APPLIED', 'DISMISSED')),
  epoch      INTEGER NOT NULL,
  note       TEXT    NOT NULL,
  settled_ns INTEGER NOT NULL,
  crc        INTEGER NOT NULL
) STRICT;
CREATE INDEX interventions_by_run ON interventions (run_id, id);
