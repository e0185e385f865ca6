-- What the fence has refused to stale owners, written by themselves, under no lease.
CREATE TABLE refusals (
  id        INTEGER PRIMARY KEY AUTOINCREMENT,
  run_id    TEXT    NOT NULL,
  lease     TEXT    NOT NULL,
  owner     TEXT    NOT NULL,
  token     INTEGER NOT NULL,
  effect    TEXT    NOT NULL,
  target    TEXT    NOT NULL,
  detail    TEXT    NOT NULL,
  met_owner TEXT    NOT NULL,
  met_token INTEGER NOT NULL,
  at_ns     INTEGER NOT NULL,
  crc       INTEGER NOT NULL
) STRICT;
CREATE INDEX refusals_by_lease ON refusals (lease, id);
