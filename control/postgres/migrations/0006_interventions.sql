-- What operators ask of the owners of stream runs. detail is JSON: what only some kinds have; as bytes, since jsonb would refuse some keys.
CREATE TABLE weir.interventions (
  id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  run       bigint      NOT NULL REFERENCES weir.journal (id),
  partition integer     NOT NULL CHECK (partition >= -1),
  kind      text        COLLATE "C" NOT NULL,
  detail    bytea       NOT NULL,
  who       text        NOT NULL,
  why       text        NOT NULL,
  created   timestamptz NOT NULL DEFAULT clock_timestamp(),
  outcome   text        COLLATE "C" NOT NULL DEFAULT 'PENDING' CHECK (outcome IN ('PENDING', 'APPLIED', 'DISMISSED')),
  epoch     bigint      NOT NULL DEFAULT 0 CHECK (epoch >= 0),
  note      text        NOT NULL DEFAULT '',
  settled   timestamptz,
  CHECK ((outcome = 'PENDING') = (settled IS NULL))
);
CREATE INDEX interventions_by_run ON weir.interventions (run, id);

CREATE VIEW weir.interventions_shown AS
  SELECT i.id, j.run_id, i.partition, i.kind, i.who, i.why, i.created, i.outcome, i.epoch, i.note, i.settled
  FROM weir.interventions i JOIN weir.journal j ON j.id = i.run;

-- What was asked, and by whom, cannot be changed afterwards.
GRANT SELECT, INSERT, UPDATE (outcome, epoch, note, settled) ON weir.interventions TO weir_runtime;
GRANT SELECT ON weir.interventions_shown TO weir_reader;
