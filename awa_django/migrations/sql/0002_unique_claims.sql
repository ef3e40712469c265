-- One uniqueness boundary over both tables of jobs: a job holds its key while the bit of its
-- current state is set in its mask, and job_unique_claims has a row exactly for that time.

CREATE TABLE awa.job_unique_claims (
    unique_key bytea NOT NULL,
    job_id bigint NOT NULL
);
CREATE UNIQUE INDEX idx_awa_jobs_unique ON awa.job_unique_claims (unique_key);
ALTER TABLE awa.job_unique_claims SET (
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

CREATE FUNCTION awa.holds_unique_key(state awa.job_state, unique_key bytea, unique_states bit(8))
RETURNS boolean
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT unique_key IS NOT NULL
        AND unique_states IS NOT NULL
        AND get_bit(
            unique_states,
            CASE state
                WHEN 'scheduled' THEN 0
                WHEN 'available' THEN 1
                WHEN 'running' THEN 2
                WHEN 'completed' THEN 3
                WHEN 'retryable' THEN 4
                WHEN 'failed' THEN 5
                WHEN 'cancelled' THEN 6
                WHEN 'waiting_external' THEN 7
            END
        ) = 1
$$;

-- Take the key for a job, or fail with unique_violation naming idx_awa_jobs_unique.
-- A claim that already names the job is accepted: enqueue takes it before it writes the row,
-- and a move between the tables keeps it.
CREATE FUNCTION awa.take_unique_key(wanted_key bytea, wanted_job_id bigint)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
    holder_id bigint;
BEGIN
    LOOP
        -- Waits for an open rival; what it left is looked up in a second statement.
        INSERT INTO awa.job_unique_claims (unique_key, job_id)
        VALUES (wanted_key, wanted_job_id)
        ON CONFLICT (unique_key) DO NOTHING;
        IF FOUND THEN
            RETURN;
        END IF;
        SELECT claim.job_id INTO holder_id
        FROM awa.job_unique_claims AS claim
        WHERE claim.unique_key = wanted_key;
        IF holder_id = wanted_job_id THEN
            RETURN;
        END IF;
        IF holder_id IS NOT NULL THEN
            RAISE unique_violation USING
                MESSAGE = format('job %s cannot hold its unique key: job %s holds it', wanted_job_id, holder_id),
                DETAIL = format('Key (unique_key)=(%s) is held by job %s.', wanted_key, holder_id),
                HINT = 'Let that job end, or cancel it, first.',
                SCHEMA = 'awa',
                TABLE = 'job_unique_claims',
                CONSTRAINT = 'idx_awa_jobs_unique';
        END IF;
    END LOOP;
END
$$;

CREATE FUNCTION awa.keep_unique_claim_on_insert()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
BEGIN
    IF awa.holds_unique_key(NEW.state, NEW.unique_key, NEW.unique_states) THEN
        PERFORM awa.take_unique_key(NEW.unique_key, NEW.id);
    ELSE
        -- Moved here in a state that does not hold it (a deferred job cancelled, for one).
        DELETE FROM awa.job_unique_claims AS claim
        WHERE claim.unique_key = NEW.unique_key AND claim.job_id = NEW.id;
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION awa.keep_unique_claim_on_update()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
    held boolean := awa.holds_unique_key(OLD.state, OLD.unique_key, OLD.unique_states);
    holds boolean := awa.holds_unique_key(NEW.state, NEW.unique_key, NEW.unique_states);
BEGIN
    IF held AND NOT (holds AND NEW.unique_key = OLD.unique_key) THEN
        DELETE FROM awa.job_unique_claims AS claim
        WHERE claim.unique_key = OLD.unique_key AND claim.job_id = OLD.id;
    END IF;
    IF holds AND NOT (held AND NEW.unique_key = OLD.unique_key) THEN
        PERFORM awa.take_unique_key(NEW.unique_key, NEW.id);
    END IF;
    RETURN NULL;
END
$$;

-- A row deleted by a move lives on in the other table, whose insert trigger settled the claim.
CREATE FUNCTION awa.drop_unique_claim_on_delete()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
BEGIN
    DELETE FROM awa.job_unique_claims AS claim
    WHERE claim.unique_key = OLD.unique_key
      AND claim.job_id = OLD.id
      AND NOT EXISTS (SELECT FROM awa.jobs_hot AS job WHERE job.id = OLD.id)
      AND NOT EXISTS (SELECT FROM awa.scheduled_jobs AS job WHERE job.id = OLD.id);
    RETURN NULL;
END
$$;

CREATE TRIGGER unique_claim_insert AFTER INSERT ON awa.jobs_hot
    FOR EACH ROW WHEN (NEW.unique_key IS NOT NULL)
    EXECUTE FUNCTION awa.keep_unique_claim_on_insert();
CREATE TRIGGER unique_claim_update AFTER UPDATE ON awa.jobs_hot
    FOR EACH ROW WHEN (
        (OLD.unique_key IS NOT NULL OR NEW.unique_key IS NOT NULL)
        AND (
            OLD.state <> NEW.state
            OR OLD.unique_key IS DISTINCT FROM NEW.unique_key
            OR OLD.unique_states IS DISTINCT FROM NEW.unique_states
        )
    )
    EXECUTE FUNCTION awa.keep_unique_claim_on_update();
CREATE TRIGGER unique_claim_delete AFTER DELETE ON awa.jobs_hot
    FOR EACH ROW WHEN (OLD.unique_key IS NOT NULL)
    EXECUTE FUNCTION awa.drop_unique_claim_on_delete();

CREATE TRIGGER unique_claim_insert AFTER INSERT ON awa.scheduled_jobs
    FOR EACH ROW WHEN (NEW.unique_key IS NOT NULL)
    EXECUTE FUNCTION awa.keep_unique_claim_on_insert();
CREATE TRIGGER unique_claim_update AFTER UPDATE ON awa.scheduled_jobs
    FOR EACH ROW WHEN (
        (OLD.unique_key IS NOT NULL OR NEW.unique_key IS NOT NULL)
        AND (
            OLD.state <> NEW.state
            OR OLD.unique_key IS DISTINCT FROM NEW.unique_key
            OR OLD.unique_states IS DISTINCT FROM NEW.unique_states
        )
    )
    EXECUTE FUNCTION awa.keep_unique_claim_on_update();
CREATE TRIGGER unique_claim_delete AFTER DELETE ON awa.scheduled_jobs
    FOR EACH ROW WHEN (OLD.unique_key IS NOT NULL)
    EXECUTE FUNCTION awa.drop_unique_claim_on_delete();

-- TRUNCATE fires no row triggers: the claims of a truncated table go with it.
CREATE FUNCTION awa.drop_unique_claims_on_truncate()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM awa.job_unique_claims AS claim
    WHERE NOT EXISTS (SELECT FROM awa.jobs_hot AS job WHERE job.id = claim.job_id)
      AND NOT EXISTS (SELECT FROM awa.scheduled_jobs AS job WHERE job.id = claim.job_id);
    RETURN NULL;
END
$$;

CREATE TRIGGER unique_claim_truncate AFTER TRUNCATE ON awa.jobs_hot
    FOR EACH STATEMENT EXECUTE FUNCTION awa.drop_unique_claims_on_truncate();
CREATE TRIGGER unique_claim_truncate AFTER TRUNCATE ON awa.scheduled_jobs
    FOR EACH STATEMENT EXECUTE FUNCTION awa.drop_unique_claims_on_truncate();

-- Trigger functions need no EXECUTE of the caller's to fire; the two helpers are called with the
-- rights of whoever writes a job, so they stay open to the roles that may write jobs.
REVOKE ALL ON FUNCTION awa.keep_unique_claim_on_insert() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.keep_unique_claim_on_update() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.drop_unique_claim_on_delete() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.drop_unique_claims_on_truncate() FROM PUBLIC;
