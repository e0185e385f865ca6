-- The control plane. Moments are timestamptz, by the server's clock. Event times of the data are nanoseconds since the Unix epoch as
-- bigint, -9223372036854775808 being "none". What is canonical, or comes from records, is bytea: text refuses NUL, and jsonb would change
-- numbers and the order of keys. Text keys are COLLATE "C", so that they sort as bytes.

-- Leases. An effect holds FOR KEY SHARE on the row. A heartbeat changes no column of a unique index, so it does not wait for effects; a
-- take-over changes fence_token, which is in one, so it does.
CREATE TABLE weir.leases (
  name        text        COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 400),
  owner       text        COLLATE "C" NOT NULL CHECK (octet_length(owner) BETWEEN 1 AND 400),
  fence_token bigint      NOT NULL CHECK (fence_token > 0),
  until       timestamptz NOT NULL,
  acquired    timestamptz NOT NULL,
  UNIQUE (name, fence_token)
) WITH (fillfactor = 50);

-- Runs that were admitted. seq is their order for listings.
CREATE TABLE weir.runs (
  run_id           text        COLLATE "C" PRIMARY KEY CHECK (run_id ~ '^run_[0-9a-f]{64}$'),
  seq              bigint      GENERATED ALWAYS AS IDENTITY UNIQUE,
  principal        text        COLLATE "C" NOT NULL,
  operation        text        COLLATE "C" NOT NULL,
  body             bytea       NOT NULL,
  flow             text        NOT NULL,
  snapshot         text        NOT NULL,
  phase            text        NOT NULL CHECK (phase IN ('QUEUED', 'RUNNING', 'SUCCEEDED', 'FAILED', 'CANCELLED')),
  revision         bigint      NOT NULL DEFAULT 0,
  result_refs      text[]      NOT NULL DEFAULT '{}',
  error            text        NOT NULL DEFAULT '',
  cancel_requested boolean     NOT NULL DEFAULT false,
  created          timestamptz NOT NULL,
  updated          timestamptz NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX runs_unfinished ON weir.runs (seq) WHERE phase IN ('QUEUED', 'RUNNING');

-- Claims of idempotency keys. The run id covers the body, so another body under the same scope is another run id.
CREATE TABLE weir.admission (
  principal text        COLLATE "C" NOT NULL CHECK (octet_length(principal) BETWEEN 1 AND 400),
  operation text        COLLATE "C" NOT NULL CHECK (octet_length(operation) BETWEEN 1 AND 400),
  key       text        COLLATE "C" NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 400),
  run_id    text        COLLATE "C" NOT NULL REFERENCES weir.runs (run_id) DEFERRABLE INITIALLY DEFERRED,
  created   timestamptz NOT NULL,
  PRIMARY KEY (principal, operation, key)
);

-- Events: pending (no claimant), claimed, or delivered. Which are due is seen from their state and never from "ids above the last one",
-- so a smaller id that commits later is found like any other.
CREATE TABLE weir.outbox (
  id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind       text        NOT NULL,
  run_id     text        COLLATE "C" NOT NULL,
  attempt    integer     NOT NULL DEFAULT 0,
  claimant   text        COLLATE "C",
  claimed_at timestamptz,
  delivered  timestamptz,
  created    timestamptz NOT NULL
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX outbox_pending ON weir.outbox (id) WHERE claimant IS NULL AND delivered IS NULL;
CREATE INDEX outbox_claimed ON weir.outbox (id) WHERE claimant IS NOT NULL AND delivered IS NULL;
CREATE INDEX outbox_by_run ON weir.outbox (run_id);

-- Results under deterministic keys. digest is the SHA-256 of value. Nobody has the right to change a row.
CREATE TABLE weir.publications (
  key       text        COLLATE "C" PRIMARY KEY CHECK (octet_length(key) BETWEEN 1 AND 400),
  value     bytea       NOT NULL,
  digest    bytea       NOT NULL CHECK (octet_length(digest) = 32),
  run_id    text        COLLATE "C" NOT NULL,
  published timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The journal of stream runs: a row for each run, and the epoch that it stands at.
CREATE TABLE weir.journal (
  id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  run_id       text        COLLATE "C" NOT NULL UNIQUE CHECK (octet_length(run_id) BETWEEN 1 AND 200),
  fingerprint  bytea       NOT NULL,
  source       bytea       NOT NULL,
  source_id    bytea       NOT NULL,
  source_group bytea       NOT NULL,
  status       text        NOT NULL CHECK (status IN ('OPEN', 'FINISHED')),
  epoch        bigint      NOT NULL CHECK (epoch >= 0),
  watermark    bigint      NOT NULL,
  created      timestamptz NOT NULL,
  committed    timestamptz
) WITH (fillfactor = 50);

-- One row for each partition of a run, from its opening on; epoch 0 until its first commit. next is a position, 24 bytes big endian.
CREATE TABLE weir.checkpoints (
  run        bigint  NOT NULL REFERENCES weir.journal (id),
  partition  integer NOT NULL CHECK (partition >= 0),
  epoch      bigint  NOT NULL,
  next       bytea   NOT NULL CHECK (octet_length(next) = 24),
  watermark  bigint  NOT NULL,
  finished   boolean NOT NULL,
  records    bigint  NOT NULL,
  consumed   bigint  NOT NULL,
  filtered   bigint  NOT NULL,
  omitted    bigint  NOT NULL,
  duplicates bigint  NOT NULL,
  late       bigint  NOT NULL,
  future     bigint  NOT NULL,
  outputs    bigint  NOT NULL,
  PRIMARY KEY (run, partition)
) WITH (fillfactor = 50);

-- The state blobs that stand.
CREATE TABLE weir.checkpoint_blobs (
  run       bigint  NOT NULL REFERENCES weir.journal (id),
  partition integer NOT NULL,
  name      bytea   NOT NULL,
  data      bytea   NOT NULL,
  PRIMARY KEY (run, partition, name)
);
ALTER TABLE weir.checkpoint_blobs ALTER COLUMN data SET STORAGE EXTERNAL;

-- The rows of one partition and epoch, cut into parts. first and last are event times.
CREATE TABLE weir.journal_outputs (
  run       bigint  NOT NULL REFERENCES weir.journal (id),
  partition integer NOT NULL,
  epoch     bigint  NOT NULL,
  part      integer NOT NULL,
  parts     integer NOT NULL,
  rows      bigint  NOT NULL,
  first     bigint  NOT NULL,
  last      bigint  NOT NULL,
  data      bytea   NOT NULL,
  PRIMARY KEY (run, partition, epoch, part)
);
ALTER TABLE weir.journal_outputs ALTER COLUMN data SET STORAGE EXTERNAL;

-- n numbers what one epoch says about a partition.
CREATE TABLE weir.quarantine (
  run        bigint  NOT NULL REFERENCES weir.journal (id),
  partition  integer NOT NULL,
  position   bytea   NOT NULL CHECK (octet_length(position) = 24),
  epoch      bigint  NOT NULL,
  n          integer NOT NULL,
  reason     bytea   NOT NULL,
  detail     bytea   NOT NULL,
  event_id   bytea   NOT NULL,
  event_time bigint  NOT NULL,
  key        bytea,
  value      bytea,
  PRIMARY KEY (run, partition, position, epoch, n)
);

CREATE TABLE weir.decisions (
  run       bigint  NOT NULL REFERENCES weir.journal (id),
  partition integer NOT NULL,
  position  bytea   NOT NULL CHECK (octet_length(position) = 24),
  epoch     bigint  NOT NULL,
  n         integer NOT NULL,
  kind      bytea   NOT NULL,
  detail    bytea   NOT NULL,
  PRIMARY KEY (run, partition, position, epoch, n)
);

-- What people and dashboards may see.
CREATE VIEW weir.runs_shown AS
  SELECT run_id, principal, operation, flow, snapshot, phase, revision, result_refs, error, cancel_requested, created, updated FROM weir.runs;
CREATE VIEW weir.leases_shown AS
  SELECT name, owner, fence_token, until, until > clock_timestamp() AS valid FROM weir.leases;
CREATE VIEW weir.outbox_shown AS
  SELECT id, kind, run_id, attempt, claimant, claimed_at, delivered, created FROM weir.outbox;
CREATE VIEW weir.publications_shown AS
  SELECT key, encode(digest, 'hex') AS digest, octet_length(value) AS bytes, run_id, published FROM weir.publications;
CREATE VIEW weir.journal_shown AS
  SELECT run_id, encode(source, 'escape') AS source, status, epoch, created, committed FROM weir.journal;
