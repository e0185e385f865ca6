-- What is needed to give a quarantined record to its partition again: which record of its position it is, the log's own timestamp, and its headers as
-- they are encoded. NULL headers were not kept, as in rows of the versions before.
ALTER TABLE weir.quarantine
  ADD COLUMN sub     bigint NOT NULL DEFAULT 0 CHECK (sub >= 0),
  ADD COLUMN arrival bigint NOT NULL DEFAULT -9223372036854775808,
  ADD COLUMN headers bytea;

-- number is the identity of an entry within its partition. The record itself is not shown: it may hold anything.
CREATE VIEW weir.quarantine_shown AS
  SELECT j.run_id, q.partition, row_number() OVER (PARTITION BY q.run, q.partition ORDER BY q.epoch, q.n) - 1 AS number, q.epoch,
    encode(q.reason, 'escape') AS reason, octet_length(q.key) AS key_bytes, octet_length(q.value) AS value_bytes
  FROM weir.quarantine q JOIN weir.journal j ON j.id = q.run;
GRANT SELECT ON weir.quarantine_shown TO weir_reader;
