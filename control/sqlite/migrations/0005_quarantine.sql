-- What is needed to give a quarantined record to its partition again: which record of its position it is, the log's own timestamp, and its headers as
-- they are encoded. NULL headers were not kept, as in rows of the versions before.
ALTER TABLE quarantine ADD COLUMN sub INTEGER NOT NULL DEFAULT 0;
ALTER TABLE quarantine ADD COLUMN arrival INTEGER NOT NULL DEFAULT -9223372036854775808;
ALTER TABLE quarantine ADD COLUMN headers BLOB;
