-- Fenced runs, checkpoints and their blobs.

-- fence is the highest token under which a run was opened or committed, 0 for one that never was under a lease. A run that was made out of a
-- checkpoint says of which.
ALTER TABLE weir.journal
  ADD COLUMN fence        bigint NOT NULL DEFAULT 0 CHECK (fence >= 0),
  ADD COLUMN forked_from  text   COLLATE "C",
  ADD COLUMN forked_epoch bigint,
  ADD CHECK ((forked_from IS NULL) = (forked_epoch IS NULL));

-- digest is the SHA-256 of data, as the writer reckoned it: a checkpoint refers to what has not changed by it, and every reader verifies it.
ALTER TABLE weir.checkpoint_blobs ADD COLUMN digest bytea CHECK (octet_length(digest) = 32);
UPDATE weir.checkpoint_blobs SET digest = sha256(data);
ALTER TABLE weir.checkpoint_blobs ALTER COLUMN digest SET NOT NULL;

-- Pointers make manifests retained checkpoints.
CREATE TABLE weir.pointers (
  run         bigint      NOT NULL REFERENCES weir.journal (id),
  epoch       bigint      NOT NULL CHECK (epoch > 0),
  manifest    text        COLLATE "C" NOT NULL CHECK (manifest ~ '^[0-9a-f]{64}$'),
  hash        text        COLLATE "C" NOT NULL CHECK (hash ~ '^sha256:[0-9a-f]{64}$'),
  fingerprint bytea       NOT NULL,
  fence_token bigint      NOT NULL CHECK (fence_token > 0),
  blobs       bigint      NOT NULL CHECK (blobs >= 0),
  bytes       bigint      NOT NULL CHECK (bytes >= 0),
  new_bytes   bigint      NOT NULL CHECK (new_bytes >= 0),
  pinned      boolean     NOT NULL,
  created     timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (run, epoch)
);

-- The one row names this store. A copy of the database is the same store, wherever it is restored.
CREATE TABLE weir.store (
  one boolean PRIMARY KEY DEFAULT true CHECK (one),
  id  text    COLLATE "C" NOT NULL CHECK (id ~ '^[0-9a-f]{32}$')
);
INSERT INTO weir.store (id) VALUES (replace(gen_random_uuid()::text, '-', ''));

-- Blobs under the SHA-256 of their bytes, in parts of at most 4 MiB. blob numbers the bytes, so that they are named, replaced or set aside without
-- being moved. What is set aside (aside, ticket) counts as gone; a ticket is given out once.
CREATE SEQUENCE weir.blob_numbers;
CREATE SEQUENCE weir.blob_tickets;
CREATE TABLE weir.blobs (
  blob     bigint      PRIMARY KEY,
  name     bytea       NOT NULL CHECK (octet_length(name) = 32),
  size     bigint      NOT NULL CHECK (size >= 0),
  modified timestamptz NOT NULL,
  aside    timestamptz,
  ticket   bigint      UNIQUE,
  CHECK ((aside IS NULL) = (ticket IS NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX blobs_standing ON weir.blobs (name) WHERE aside IS NULL;
CREATE INDEX blobs_aside ON weir.blobs (name) WHERE aside IS NOT NULL;
CREATE TABLE weir.blob_parts (
  blob bigint  NOT NULL,
  part integer NOT NULL,
  data bytea   NOT NULL,
  PRIMARY KEY (blob, part)
);
ALTER TABLE weir.blob_parts ALTER COLUMN data SET STORAGE EXTERNAL;

-- name_blob gives bytes that were written their name. What stood under it was the same, or damaged: it goes.
CREATE FUNCTION weir.name_blob(p_blob bigint, p_name bytea, p_size bigint) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  old bigint;
  at  timestamptz;
BEGIN
  LOOP
    SELECT blob INTO old FROM weir.blobs WHERE name = p_name AND aside IS NULL FOR UPDATE;
    IF FOUND THEN
      UPDATE weir.blobs SET blob = p_blob, size = p_size, modified = clock_timestamp() WHERE blob = old RETURNING modified INTO at;
      DELETE FROM weir.blob_parts WHERE blob = old;
      RETURN at;
    END IF;
    INSERT INTO weir.blobs (blob, name, size, modified) VALUES (p_blob, p_name, p_size, clock_timestamp()) ON CONFLICT DO NOTHING RETURNING modified INTO at;
    IF FOUND THEN RETURN at; END IF;
  END LOOP;
END $$;

-- put_blob writes a blob of one part. Bytes that stand already, and are good, are not written again.
CREATE FUNCTION weir.put_blob(p_name bytea, p_data bytea) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  number bigint;
  at     timestamptz;
BEGIN
  UPDATE weir.blobs b SET modified = clock_timestamp()
    WHERE b.name = p_name AND b.aside IS NULL AND b.size = octet_length(p_data)
      AND EXISTS (SELECT FROM weir.blob_parts p WHERE p.blob = b.blob AND p.part = 0 AND p.data = p_data)
    RETURNING modified INTO at;
  IF FOUND THEN RETURN at; END IF;
  number := nextval('weir.blob_numbers');
  INSERT INTO weir.blob_parts (blob, part, data) VALUES (number, 0, p_data);
  RETURN weir.name_blob(number, p_name, octet_length(p_data));
END $$;

-- bring_back lets a blob that was set aside stand again; if its name stands already, it goes. It tells whether there was such a ticket.
CREATE FUNCTION weir.bring_back(p_ticket bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  b weir.blobs%ROWTYPE;
BEGIN
  SELECT * INTO b FROM weir.blobs WHERE ticket = p_ticket FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  BEGIN
    UPDATE weir.blobs SET aside = NULL, ticket = NULL, modified = clock_timestamp() WHERE blob = b.blob;
  EXCEPTION WHEN unique_violation THEN
    DELETE FROM weir.blobs WHERE blob = b.blob;
    DELETE FROM weir.blob_parts WHERE blob = b.blob;
  END;
  RETURN true;
END $$;

-- What people and dashboards may see.
CREATE OR REPLACE VIEW weir.journal_shown AS
  SELECT run_id, encode(source, 'escape') AS source, status, epoch, created, committed, fence, forked_from, forked_epoch FROM weir.journal;
CREATE VIEW weir.pointers_shown AS
  SELECT j.run_id, p.epoch, p.manifest, p.hash, p.fence_token, p.blobs, p.bytes, p.new_bytes, p.pinned, p.created
  FROM weir.pointers p JOIN weir.journal j ON j.id = p.run;
CREATE VIEW weir.blobs_shown AS
  SELECT encode(name, 'hex') AS name, size, modified, aside FROM weir.blobs;

REVOKE ALL ON FUNCTION weir.name_blob, weir.put_blob, weir.bring_back FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weir.name_blob, weir.put_blob, weir.bring_back TO weir_runtime;
GRANT USAGE ON SEQUENCE weir.blob_numbers, weir.blob_tickets TO weir_runtime;
GRANT SELECT ON weir.store TO weir_runtime, weir_reader;
GRANT SELECT, INSERT, DELETE, UPDATE (pinned) ON weir.pointers TO weir_runtime;
GRANT SELECT, INSERT, UPDATE, DELETE ON weir.blobs TO weir_runtime;
GRANT SELECT, INSERT, DELETE ON weir.blob_parts TO weir_runtime;
GRANT SELECT ON weir.pointers_shown, weir.blobs_shown TO weir_reader;
