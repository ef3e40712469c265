-- The soak's own tables: every transition of every job by triggers, in the transactions that make them;
-- and the effects of the atomic jobs. Not part of the product.
CREATE SCHEMA soak;

CREATE TABLE soak.transitions (
    seq bigserial PRIMARY KEY,
    transaction_id xid8 NOT NULL DEFAULT pg_current_xact_id(),
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    job_id bigint NOT NULL,
    was awa.job_state,
    is_now awa.job_state,
    run_lease bigint NOT NULL,
    attempt smallint NOT NULL,
    max_attempts smallint NOT NULL,
    kind text NOT NULL,
    token text,
    unique_key text
);

CREATE TABLE soak.effects (job_id bigint NOT NULL, run_lease bigint NOT NULL);

-- The token of a job that a schedule made is the time that it is of.
CREATE FUNCTION soak.note() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    job awa.jobs_hot;
BEGIN
    IF TG_OP = 'DELETE' THEN
        job := OLD;
    ELSE
        job := NEW;
    END IF;
    INSERT INTO soak.transitions (
        job_id, was, is_now, run_lease, attempt, max_attempts, kind, token, unique_key
    )
    VALUES (
        job.id,
        CASE WHEN TG_OP <> 'INSERT' THEN OLD.state END,
        CASE WHEN TG_OP <> 'DELETE' THEN NEW.state END,
        job.run_lease, job.attempt, job.max_attempts, job.kind,
        coalesce(job.args ->> 'token', job.metadata #>> '{awa:cron,fire_at}'),
        encode(job.unique_key, 'hex')
    );
    RETURN NULL;
END
$$;

-- Triggers fire in the order of their names: these after those that take and leave unique keys.
CREATE TRIGGER zz_note_birth AFTER INSERT OR DELETE ON awa.jobs_hot
    FOR EACH ROW EXECUTE FUNCTION soak.note();
CREATE TRIGGER zz_note_change AFTER UPDATE ON awa.jobs_hot
    FOR EACH ROW WHEN (OLD.state <> NEW.state OR OLD.run_lease <> NEW.run_lease OR OLD.attempt <> NEW.attempt)
    EXECUTE FUNCTION soak.note();
CREATE TRIGGER zz_note_birth AFTER INSERT OR DELETE ON awa.scheduled_jobs
    FOR EACH ROW EXECUTE FUNCTION soak.note();
CREATE TRIGGER zz_note_change AFTER UPDATE ON awa.scheduled_jobs
    FOR EACH ROW WHEN (OLD.state <> NEW.state OR OLD.run_lease <> NEW.run_lease OR OLD.attempt <> NEW.attempt)
    EXECUTE FUNCTION soak.note();
