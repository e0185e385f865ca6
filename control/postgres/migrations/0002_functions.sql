-- Refusals are raised with states of the class WR. What explains them is in message, detail and hint:
--   WR001 the lease is not held any more, WR002 it is held by another: owner, token ('0' without a row), expiry in microseconds
--   WR003 another digest is published: key, the digest that stands, the one that was to be published, both in hex
--   WR004 the run is not QUEUED, WR007 it is not RUNNING: run id, phase     WR005 there is no such run: run id
--   WR006 the key was used for another run: its id                          WR008 there is no such event: id
-- Every statement of a function sees what was committed when that statement began, which needs READ COMMITTED.

-- refuse_lease raises how a lease stands.
CREATE FUNCTION weir.refuse_lease(p_state text, p_name text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  l weir.leases%ROWTYPE;
BEGIN
  SELECT * INTO l FROM weir.leases WHERE name = p_name;
  RAISE EXCEPTION USING ERRCODE = p_state, MESSAGE = coalesce(l.owner, ''), DETAIL = coalesce(l.fence_token, 0)::text,
    HINT = coalesce((extract(epoch FROM l.until) * 1000000)::bigint, 0)::text;
END $$;

-- acquire gives the lease, renews it or takes it over. Rows are compared after they are locked, by the clock of that moment.
CREATE FUNCTION weir.acquire(p_name text, p_owner text, p_ttl interval, p_lock_ms text, OUT token bigint, OUT lease_until timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  l weir.leases%ROWTYPE;
BEGIN
  IF p_lock_ms <> '' THEN PERFORM set_config('lock_timeout', p_lock_ms, true); END IF;
  LOOP
    SELECT * INTO l FROM weir.leases WHERE name = p_name;
    IF NOT FOUND THEN
      -- A lock on a row that is not there would lock nothing: the unique indexes decide who of several creates it. Without a target, since a
      -- race may be met in either of the two.
      INSERT INTO weir.leases (name, owner, fence_token, until, acquired)
        VALUES (p_name, p_owner, 1, clock_timestamp() + p_ttl, clock_timestamp())
        ON CONFLICT DO NOTHING RETURNING fence_token, until INTO token, lease_until;
      IF FOUND THEN RETURN; END IF;
    ELSIF l.until > clock_timestamp() AND l.owner <> p_owner THEN
      PERFORM weir.refuse_lease('WR002', p_name);
    ELSIF l.until > clock_timestamp() THEN
      PERFORM FROM weir.leases WHERE name = p_name FOR NO KEY UPDATE;
      UPDATE weir.leases SET until = clock_timestamp() + p_ttl
        WHERE name = p_name AND owner = p_owner AND until > clock_timestamp() RETURNING fence_token, until INTO token, lease_until;
      IF FOUND THEN RETURN; END IF;
    ELSE
      -- Waits for effects of the old term, which hold FOR KEY SHARE.
      PERFORM FROM weir.leases WHERE name = p_name FOR UPDATE;
      UPDATE weir.leases SET owner = p_owner, fence_token = fence_token + 1, until = clock_timestamp() + p_ttl, acquired = clock_timestamp()
        WHERE name = p_name AND until <= clock_timestamp() RETURNING fence_token, until INTO token, lease_until;
      IF FOUND THEN RETURN; END IF;
    END IF;
  END LOOP;
END $$;

-- extend renews a valid lease of this owner and token, or with p_ttl NULL ends it.
CREATE FUNCTION weir.extend(p_name text, p_owner text, p_token bigint, p_ttl interval, p_lock_ms text) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  lease_until timestamptz;
BEGIN
  IF p_lock_ms <> '' THEN PERFORM set_config('lock_timeout', p_lock_ms, true); END IF;
  PERFORM FROM weir.leases WHERE name = p_name FOR NO KEY UPDATE;
  UPDATE weir.leases SET until = clock_timestamp() + coalesce(p_ttl, interval '0')
    WHERE name = p_name AND owner = p_owner AND fence_token = p_token AND until > clock_timestamp()
    RETURNING until INTO lease_until;
  IF NOT FOUND THEN PERFORM weir.refuse_lease('WR001', p_name); END IF;
  RETURN lease_until;
END $$;

-- hold locks the lease row against take-over for the rest of the transaction, and verifies it after the lock.
CREATE FUNCTION weir.hold(p_name text, p_owner text, p_token bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  l weir.leases%ROWTYPE;
BEGIN
  SELECT * INTO l FROM weir.leases WHERE name = p_name FOR KEY SHARE;
  -- Its own statement, after the lock: the clock is read when the wait is over.
  IF NOT FOUND OR l.owner <> p_owner OR l.fence_token <> p_token OR l.until <= clock_timestamp() THEN
    PERFORM weir.refuse_lease('WR001', p_name);
  END IF;
END $$;

-- verify is hold without the lock: a stale owner is told before he sends much. It decides nothing.
CREATE FUNCTION weir.verify(p_name text, p_owner text, p_token bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
BEGIN
  PERFORM FROM weir.leases WHERE name = p_name AND owner = p_owner AND fence_token = p_token AND until > clock_timestamp();
  IF NOT FOUND THEN PERFORM weir.refuse_lease('WR001', p_name); END IF;
END $$;

-- publish inserts what is absent and compares the digest of what is there. Mostly nothing is there, so it first tries a plain insert, which
-- costs far less than one that looks for conflicts. The caller has put the keys in order, so that two that publish the same keys wait
-- for each other and do not deadlock.
CREATE FUNCTION weir.publish(p_keys text[], p_values bytea[], p_digests bytea[], p_runs text[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  n bigint;
  c record;
BEGIN
  BEGIN
    INSERT INTO weir.publications (key, value, digest, run_id) SELECT * FROM unnest(p_keys, p_values, p_digests, p_runs);
    RETURN;
  EXCEPTION WHEN unique_violation THEN NULL;
  END;
  INSERT INTO weir.publications (key, value, digest, run_id) SELECT * FROM unnest(p_keys, p_values, p_digests, p_runs) ON CONFLICT (key) DO NOTHING;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n < cardinality(p_keys) THEN
    -- Without statistics the planner may compare everything with everything.
    PERFORM set_config('enable_nestloop', 'off', true);
    SELECT p.key, p.digest AS stands, u.digest AS asked INTO c FROM unnest(p_keys, p_digests) AS u (key, digest)
      JOIN weir.publications p ON p.key = u.key COLLATE "C" WHERE p.digest <> u.digest ORDER BY p.key LIMIT 1;
    IF FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WR003', MESSAGE = c.key, DETAIL = encode(c.stands, 'hex'), HINT = encode(c.asked, 'hex'); END IF;
  END IF;
END $$;

-- publish_staged does so with what COPY has put into the session's temporary table weir_staged.
CREATE FUNCTION weir.publish_staged(p_count bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  n bigint;
  c record;
BEGIN
  INSERT INTO weir.publications (key, value, digest, run_id)
    SELECT key, value, digest, run_id FROM pg_temp.weir_staged ORDER BY key ON CONFLICT (key) DO NOTHING;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n < p_count THEN
    PERFORM set_config('enable_nestloop', 'off', true); -- as above
    SELECT p.key, p.digest AS stands, u.digest AS asked INTO c FROM pg_temp.weir_staged u
      JOIN weir.publications p ON p.key = u.key WHERE p.digest <> u.digest ORDER BY p.key LIMIT 1;
    IF FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WR003', MESSAGE = c.key, DETAIL = encode(c.stands, 'hex'), HINT = encode(c.asked, 'hex'); END IF;
  END IF;
END $$;

-- refuse_run raises where a run stands.
CREATE FUNCTION weir.refuse_run(p_state text, p_run text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  r record;
BEGIN
  SELECT phase INTO r FROM weir.runs WHERE run_id = p_run;
  IF NOT FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WR005', MESSAGE = p_run; END IF;
  RAISE EXCEPTION USING ERRCODE = p_state, MESSAGE = p_run, DETAIL = r.phase;
END $$;

-- start_run moves a run from QUEUED to RUNNING, or to CANCELLED when that was asked for.
CREATE FUNCTION weir.start_run(p_run text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  moved text;
BEGIN
  UPDATE weir.runs SET phase = CASE WHEN cancel_requested THEN 'CANCELLED' ELSE 'RUNNING' END, updated = clock_timestamp()
    WHERE run_id = p_run AND phase = 'QUEUED' RETURNING phase INTO moved;
  IF NOT FOUND THEN PERFORM weir.refuse_run('WR004', p_run); END IF;
  RETURN moved;
END $$;

-- finish_run moves a run from RUNNING to its end.
CREATE FUNCTION weir.finish_run(p_run text, p_phase text, p_refs text[], p_error text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
BEGIN
  UPDATE weir.runs SET phase = p_phase, result_refs = p_refs, error = p_error, revision = revision + 1, updated = clock_timestamp()
    WHERE run_id = p_run AND phase = 'RUNNING';
  IF NOT FOUND THEN PERFORM weir.refuse_run('WR007', p_run); END IF;
END $$;

-- deliver marks events as delivered.
CREATE FUNCTION weir.deliver(p_ids bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  n bigint;
  absent bigint;
BEGIN
  IF cardinality(p_ids) > 1 THEN -- locked in one order by everybody
    PERFORM FROM weir.outbox WHERE id = ANY (p_ids) ORDER BY id FOR NO KEY UPDATE;
  END IF;
  UPDATE weir.outbox SET delivered = clock_timestamp() WHERE id = ANY (p_ids) AND delivered IS NULL;
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n < cardinality(p_ids) THEN
    SELECT u.id INTO absent FROM unnest(p_ids) AS u (id) WHERE NOT EXISTS (SELECT FROM weir.outbox o WHERE o.id = u.id) LIMIT 1;
    IF FOUND THEN RAISE EXCEPTION USING ERRCODE = 'WR008', MESSAGE = absent::text; END IF;
  END IF;
END $$;

-- fenced is the one door: it holds the lease, then runs effects in order. All of it arrives in one message before anything is locked, so a
-- client that stops while it sends holds nothing. p_kinds: 1 publish, 2 start, 3 finish, 4 deliver, 5 publish what is staged. Effect i owns
-- the elements p_from[i] to p_to[i] of the arrays of its kind; of 5, p_to[i] is the number of rows. It returns the phases that starts led to.
CREATE FUNCTION weir.fenced(p_name text, p_owner text, p_token bigint, p_lock_ms text, p_kinds integer[], p_from integer[], p_to integer[], p_runs text[],
  p_phases text[], p_errors text[], p_refs text[], p_events bigint[], p_keys text[], p_values bytea[], p_digests bytea[], p_pub_runs text[]) RETURNS text[]
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  moved text[] := '{}';
  a integer;
  b integer;
BEGIN
  IF p_lock_ms <> '' THEN PERFORM set_config('lock_timeout', p_lock_ms, true); END IF;
  PERFORM weir.hold(p_name, p_owner, p_token);
  FOR i IN 1 .. cardinality(p_kinds) LOOP
    a := p_from[i];
    b := p_to[i];
    CASE p_kinds[i]
    WHEN 1 THEN
      IF a = 1 AND b = cardinality(p_keys) THEN
        PERFORM weir.publish(p_keys, p_values, p_digests, p_pub_runs);
      ELSE
        PERFORM weir.publish(p_keys[a:b], p_values[a:b], p_digests[a:b], p_pub_runs[a:b]);
      END IF;
    WHEN 2 THEN moved := moved || weir.start_run(p_runs[i]);
    WHEN 3 THEN PERFORM weir.finish_run(p_runs[i], p_phases[i], p_refs[a:b], p_errors[i]);
    WHEN 4 THEN PERFORM weir.deliver(p_events[a:b]);
    WHEN 5 THEN PERFORM weir.publish_staged(b);
    END CASE;
  END LOOP;
  RETURN moved;
END $$;

-- admit claims a key for a run, and creates the run with its event. It tells whether this call did.
CREATE FUNCTION weir.admit(p_principal text, p_operation text, p_key text, p_run text, p_body bytea, p_flow text, p_snapshot text, p_kind text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  known text;
BEGIN
  INSERT INTO weir.admission (principal, operation, key, run_id, created) VALUES (p_principal, p_operation, p_key, p_run, clock_timestamp())
    ON CONFLICT (principal, operation, key) DO NOTHING;
  IF FOUND THEN
    INSERT INTO weir.runs (run_id, principal, operation, body, flow, snapshot, phase, created, updated)
      VALUES (p_run, p_principal, p_operation, p_body, p_flow, p_snapshot, 'QUEUED', clock_timestamp(), clock_timestamp());
    INSERT INTO weir.outbox (kind, run_id, created) VALUES (p_kind, p_run, clock_timestamp());
    PERFORM pg_notify('weir_outbox', '');
    RETURN true;
  END IF;
  SELECT run_id INTO known FROM weir.admission WHERE principal = p_principal AND operation = p_operation AND key = p_key;
  IF known <> p_run THEN RAISE EXCEPTION USING ERRCODE = 'WR006', MESSAGE = known; END IF;
  RETURN false;
END $$;

-- claim gives pending events to a claimant, in order, skipping those that others are claiming at this moment.
CREATE FUNCTION weir.claim(p_claimant text, p_limit integer) RETURNS SETOF weir.outbox
LANGUAGE sql VOLATILE SECURITY INVOKER AS $$
  WITH due AS MATERIALIZED (
    SELECT id FROM weir.outbox WHERE claimant IS NULL AND delivered IS NULL ORDER BY id LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED)
  UPDATE weir.outbox o SET claimant = p_claimant, claimed_at = clock_timestamp(), attempt = attempt + 1
    WHERE o.id = ANY (ARRAY (SELECT id FROM due)) RETURNING o.*
$$;

-- release_events makes claimed events pending again, or marks them delivered, and returns which. p_claimant '' is anyone.
CREATE FUNCTION weir.release_events(p_claimant text, p_ids bigint[], p_ignored boolean) RETURNS SETOF bigint
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
BEGIN
  PERFORM FROM weir.outbox WHERE id = ANY (p_ids) ORDER BY id FOR NO KEY UPDATE;
  IF p_ignored THEN
    RETURN QUERY UPDATE weir.outbox SET delivered = clock_timestamp()
      WHERE id = ANY (p_ids) AND delivered IS NULL AND claimant IS NOT NULL AND (p_claimant = '' OR claimant = p_claimant) RETURNING id;
    RETURN;
  END IF;
  RETURN QUERY UPDATE weir.outbox SET claimant = NULL, claimed_at = NULL
    WHERE id = ANY (p_ids) AND delivered IS NULL AND claimant IS NOT NULL AND (p_claimant = '' OR claimant = p_claimant) RETURNING id;
  IF FOUND THEN PERFORM pg_notify('weir_outbox', ''); END IF;
END $$;

-- mend puts a run or its event right, if it is still wrong once the rows are locked: the lease first, then the run, then its event. It tells
-- whether it did. p_stale is the age from which a claim counts as abandoned.
CREATE FUNCTION weir.mend(p_kind text, p_run text, p_lease text, p_requested text, p_stale interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY INVOKER AS $$
DECLARE
  event bigint;
BEGIN
  -- Waits for an effect that is under way, then keeps the lease from being taken.
  PERFORM FROM weir.leases WHERE name = p_lease FOR UPDATE;
  PERFORM FROM weir.leases WHERE name = p_lease AND until > clock_timestamp();
  IF FOUND THEN RETURN false; END IF;
  PERFORM FROM weir.runs WHERE run_id = p_run FOR NO KEY UPDATE;
  SELECT max(id) INTO event FROM weir.outbox WHERE run_id = p_run;
  PERFORM FROM weir.outbox WHERE id = event FOR NO KEY UPDATE;
  CASE p_kind
  WHEN 'CLAIMED_UNDELIVERED' THEN
    PERFORM FROM weir.outbox WHERE id = event AND claimant IS NOT NULL AND delivered IS NULL AND claimed_at <= clock_timestamp() - p_stale;
  WHEN 'RUNNING_ORPHAN' THEN
    UPDATE weir.runs SET phase = 'QUEUED', updated = clock_timestamp() WHERE run_id = p_run AND phase = 'RUNNING';
  WHEN 'QUEUED_DELIVERED' THEN
    PERFORM FROM weir.runs WHERE run_id = p_run AND phase = 'QUEUED' AND NOT EXISTS (SELECT FROM weir.outbox WHERE id = event AND delivered IS NULL);
  END CASE;
  IF NOT FOUND THEN RETURN false; END IF;
  IF event IS NULL THEN
    INSERT INTO weir.outbox (kind, run_id, created) VALUES (p_requested, p_run, clock_timestamp());
  ELSE
    UPDATE weir.outbox SET claimant = NULL, claimed_at = NULL, delivered = NULL WHERE id = event;
  END IF;
  PERFORM pg_notify('weir_outbox', '');
  RETURN true;
END $$;
