-- What the fence has refused to stale owners, written by themselves, under no lease: so it can only be added to, by a function that keeps the newest of each
-- lease and looks up whose the lease is.
CREATE TABLE weir.refusals (
  id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  run_id    text        COLLATE "C" NOT NULL,
  lease     text        COLLATE "C" NOT NULL,
  owner     text        NOT NULL,
  token     bigint      NOT NULL,
  effect    text        NOT NULL,
  target    text        NOT NULL,
  detail    text        NOT NULL,
  met_owner text        NOT NULL,
  met_token bigint      NOT NULL,
  at        timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX refusals_by_lease ON weir.refusals (lease, id);

CREATE FUNCTION weir.note_refusal(p_run text, p_lease text, p_owner text, p_token bigint, p_effect text, p_target text, p_detail text, p_keep integer) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  INSERT INTO weir.refusals (run_id, lease, owner, token, effect, target, detail, met_owner, met_token)
    SELECT p_run, p_lease, p_owner, p_token, left(p_effect, 500), left(p_target, 500), left(p_detail, 500), coalesce(l.owner, ''), coalesce(l.fence_token, 0)
    FROM (SELECT 1) one LEFT JOIN weir.leases l ON l.name = p_lease;
  DELETE FROM weir.refusals WHERE lease = p_lease AND id <= (SELECT r.id FROM weir.refusals r WHERE r.lease = p_lease ORDER BY r.id DESC OFFSET greatest(p_keep, 1) LIMIT 1);
END $$;

REVOKE ALL ON FUNCTION weir.note_refusal(text, text, text, bigint, text, text, text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION weir.note_refusal(text, text, text, bigint, text, text, text, integer) TO weir_runtime;
GRANT SELECT ON weir.refusals TO weir_runtime, weir_reader;
