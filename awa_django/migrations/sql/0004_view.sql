-- awa.jobs: both tables of jobs as one, for people, other languages and triggers.
-- Nothing of the worker names it. Its columns are the tables' columns in the tables' order, on
-- which the expansions of NEW.* below rest.

CREATE VIEW awa.jobs AS
SELECT
    id, kind, queue, args, state, priority, attempt, max_attempts, run_at,
    heartbeat_at, deadline_at, attempted_at, finalized_at, created_at,
    errors, metadata, tags, unique_key, unique_states, run_lease, progress, result, worker
FROM awa.jobs_hot
UNION ALL
SELECT
    id, kind, queue, args, state, priority, attempt, max_attempts, run_at,
    heartbeat_at, deadline_at, attempted_at, finalized_at, created_at,
    errors, metadata, tags, unique_key, unique_states, run_lease, progress, result, worker
FROM awa.scheduled_jobs;

-- No default for state: an INSERT that names none is told apart, and its state follows from run_at.
ALTER VIEW awa.jobs ALTER COLUMN queue SET DEFAULT 'default';
ALTER VIEW awa.jobs ALTER COLUMN args SET DEFAULT '{}';
ALTER VIEW awa.jobs ALTER COLUMN priority SET DEFAULT 2;
ALTER VIEW awa.jobs ALTER COLUMN attempt SET DEFAULT 0;
ALTER VIEW awa.jobs ALTER COLUMN max_attempts SET DEFAULT 25;
ALTER VIEW awa.jobs ALTER COLUMN run_at SET DEFAULT now();
ALTER VIEW awa.jobs ALTER COLUMN created_at SET DEFAULT now();
ALTER VIEW awa.jobs ALTER COLUMN errors SET DEFAULT '{}';
ALTER VIEW awa.jobs ALTER COLUMN metadata SET DEFAULT '{}';
ALTER VIEW awa.jobs ALTER COLUMN tags SET DEFAULT '{}';
ALTER VIEW awa.jobs ALTER COLUMN run_lease SET DEFAULT 0;

-- In the three functions enable_seqscan is off because a plan cached while the tables were empty
-- would scan them for ever: 39 ms a row instead of 1. The price that the planner then puts on the
-- scan of a table without a fitting index (awa.waiters) calls for JIT, 30 ms a row: so that is off.

CREATE FUNCTION awa.insert_job_through_view()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
BEGIN
    IF NEW.id IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'generated_always',
            MESSAGE = 'cannot insert a job with an id of its own',
            HINT = 'Leave id out: it comes from the sequence; RETURNING id names it.';
    END IF;
    IF NEW.run_lease <> 0 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation',
            MESSAGE = format('cannot insert a job with run_lease %s', NEW.run_lease),
            HINT = 'Leave run_lease out: it counts the claims of the job.';
    END IF;
    IF NEW.state IN ('running', 'waiting_external') THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation',
            MESSAGE = format('cannot insert a job in state %s', NEW.state),
            HINT = 'Leave state out: the job becomes available or scheduled by its run_at, and a worker claims it.';
    END IF;

    IF coalesce(NEW.state, 'available') = 'available' THEN
        NEW.state := CASE WHEN NEW.run_at > now() THEN 'scheduled' ELSE 'available' END;
    END IF;
    NEW.finalized_at := CASE
        WHEN NEW.state IN ('completed', 'failed', 'cancelled') THEN coalesce(NEW.finalized_at, now())
    END;
    NEW.heartbeat_at := NULL;
    NEW.deadline_at := NULL;
    NEW.id := nextval('awa.jobs_id_seq');

    IF NEW.state IN ('scheduled', 'retryable') THEN
        INSERT INTO awa.scheduled_jobs SELECT NEW.*;
    ELSE
        INSERT INTO awa.jobs_hot SELECT NEW.*;
        -- Asked here first: a call of awa.wake doubles the price of a row, and mostly nobody waits.
        IF NEW.state = 'available'
            AND EXISTS (SELECT FROM awa.waiters AS waiter WHERE waiter.expires_at > now())
        THEN
            PERFORM awa.wake(ARRAY[NEW.queue]);
        END IF;
    END IF;
    RETURN NEW;
END
$$;

-- A compare-and-set: the row as it is now, locked, must still be the one that the statement saw.
-- A trigger cannot check the statement's WHERE again, and a row that has changed may no longer
-- match it. What a running attempt reports (heartbeat_at, progress) is left out of the comparison
-- and keeps its newest value, unless the statement itself sets it.
CREATE FUNCTION awa.update_job_through_view()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    current_job awa.jobs_hot;
    refused text := CASE
        WHEN NEW.id IS DISTINCT FROM OLD.id THEN 'id'
        WHEN NEW.kind IS DISTINCT FROM OLD.kind THEN 'kind'
        WHEN NEW.unique_key IS DISTINCT FROM OLD.unique_key THEN 'unique_key'
        WHEN NEW.unique_states IS DISTINCT FROM OLD.unique_states THEN 'unique_states'
        WHEN NEW.run_lease IS DISTINCT FROM OLD.run_lease THEN 'run_lease'
        WHEN NEW.created_at IS DISTINCT FROM OLD.created_at THEN 'created_at'
    END;
    was_deferred boolean := OLD.state IN ('scheduled', 'retryable');
    is_deferred boolean;
BEGIN
    IF refused IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation',
            MESSAGE = format('cannot change %s of job %s', refused, OLD.id),
            HINT = 'Cancel the job and insert another one.';
    END IF;
    IF NEW.queue IS DISTINCT FROM OLD.queue OR NEW.args IS DISTINCT FROM OLD.args THEN
        refused := CASE WHEN NEW.queue IS DISTINCT FROM OLD.queue THEN 'queue' ELSE 'args' END;
        IF OLD.unique_key IS NOT NULL THEN
            RAISE EXCEPTION USING
                ERRCODE = 'check_violation',
                MESSAGE = format('cannot change %s of job %s: its unique key was made from them', refused, OLD.id),
                HINT = 'Cancel the job and enqueue another one, whose key is then right.';
        ELSIF OLD.state IN ('running', 'completed', 'waiting_external') THEN
            RAISE EXCEPTION USING
                ERRCODE = 'check_violation',
                MESSAGE = format('cannot change %s of job %s: it is %s', refused, OLD.id, OLD.state),
                HINT = 'Only a job that waits, or that a retry may run again, can be changed so.';
        END IF;
    END IF;
    IF NEW.state IS NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'not_null_violation',
            MESSAGE = format('cannot set the state of job %s to null', OLD.id),
            HINT = 'Set state = ''available'': with a run_at to come the job is scheduled.',
            COLUMN = 'state';
    END IF;
    IF NEW.state <> OLD.state AND NOT (CASE OLD.state
        WHEN 'scheduled' THEN NEW.state IN ('available', 'cancelled')
        WHEN 'available' THEN NEW.state IN ('scheduled', 'cancelled')
            OR (NEW.state = 'failed' AND OLD.attempt >= OLD.max_attempts)
        WHEN 'running' THEN NEW.state <> 'waiting_external'
        WHEN 'retryable' THEN NEW.state IN ('available', 'cancelled')
        WHEN 'failed' THEN NEW.state = 'available'
        WHEN 'cancelled' THEN NEW.state = 'available'
        WHEN 'waiting_external' THEN NEW.state NOT IN ('running', 'scheduled')
        ELSE false
    END) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'check_violation',
            MESSAGE = format('cannot change job %s from %s to %s', OLD.id, OLD.state, NEW.state),
            HINT = CASE
                WHEN OLD.state = 'completed' THEN 'A completed job stays so: insert another one.'
                WHEN NEW.state IN ('running', 'waiting_external') THEN 'Only a worker makes a job ' || NEW.state || '.'
                WHEN OLD.state = 'retryable' THEN 'Change its run_at, or set state = ''available'' with run_at = now().'
                WHEN OLD.state IN ('failed', 'cancelled') THEN 'Set state = ''available'' and the run_at you want.'
                ELSE 'Set state = ''cancelled'' or state = ''available''.'
            END,
            SCHEMA = 'awa',
            TABLE = 'jobs',
            COLUMN = 'state';
    END IF;

    IF was_deferred THEN
        SELECT * INTO current_job FROM awa.scheduled_jobs AS job WHERE job.id = OLD.id FOR UPDATE;
    ELSE
        SELECT * INTO current_job FROM awa.jobs_hot AS job WHERE job.id = OLD.id FOR UPDATE;
    END IF;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF NEW.heartbeat_at IS NOT DISTINCT FROM OLD.heartbeat_at THEN
        OLD.heartbeat_at := current_job.heartbeat_at;
        NEW.heartbeat_at := current_job.heartbeat_at;
    END IF;
    IF NEW.progress IS NOT DISTINCT FROM OLD.progress THEN
        OLD.progress := current_job.progress;
        NEW.progress := current_job.progress;
    END IF;
    IF current_job *<> OLD THEN
        RETURN NULL;
    END IF;

    IF NEW.state = 'available' THEN
        IF OLD.state IN ('failed', 'cancelled') AND NEW.attempt = OLD.attempt THEN
            NEW.attempt := 0;
        END IF;
        -- Not yet due, so deferred: a job that waits for a retry goes on waiting as one.
        IF NEW.run_at > now() AND (NEW.run_at <> OLD.run_at OR OLD.state <> 'available') THEN
            NEW.state := CASE OLD.state WHEN 'retryable' THEN 'retryable' ELSE 'scheduled' END;
        END IF;
    END IF;
    NEW.finalized_at := CASE
        WHEN NEW.state IN ('completed', 'failed', 'cancelled') THEN coalesce(NEW.finalized_at, OLD.finalized_at, now())
    END;
    IF NEW.state = 'running' THEN
        NEW.heartbeat_at := coalesce(NEW.heartbeat_at, OLD.heartbeat_at);
    ELSE
        NEW.heartbeat_at := NULL;
        NEW.deadline_at := NULL;
    END IF;
    IF NEW.state = 'completed' AND OLD.state <> 'completed' THEN
        NEW.progress := NULL;
    END IF;

    is_deferred := NEW.state IN ('scheduled', 'retryable');
    IF was_deferred AND NOT is_deferred THEN
        WITH moved AS (
            DELETE FROM awa.scheduled_jobs AS job WHERE job.id = OLD.id RETURNING job.id
        )
        INSERT INTO awa.jobs_hot SELECT NEW.* FROM moved;
    ELSIF is_deferred AND NOT was_deferred THEN
        WITH moved AS (
            DELETE FROM awa.jobs_hot AS job WHERE job.id = OLD.id RETURNING job.id
        )
        INSERT INTO awa.scheduled_jobs SELECT NEW.* FROM moved;
    ELSIF is_deferred THEN
        -- A large value that stands keeps its place out of line: NEW holds a copy of it.
        UPDATE awa.scheduled_jobs AS job
        SET queue = NEW.queue,
            args = CASE WHEN NEW.args IS DISTINCT FROM OLD.args THEN NEW.args ELSE job.args END,
            state = NEW.state,
            priority = NEW.priority,
            attempt = NEW.attempt,
            max_attempts = NEW.max_attempts,
            run_at = NEW.run_at,
            heartbeat_at = NEW.heartbeat_at,
            deadline_at = NEW.deadline_at,
            attempted_at = NEW.attempted_at,
            finalized_at = NEW.finalized_at,
            errors = CASE WHEN NEW.errors IS DISTINCT FROM OLD.errors THEN NEW.errors ELSE job.errors END,
            metadata = CASE WHEN NEW.metadata IS DISTINCT FROM OLD.metadata THEN NEW.metadata ELSE job.metadata END,
            tags = NEW.tags,
            progress = CASE WHEN NEW.progress IS DISTINCT FROM OLD.progress THEN NEW.progress ELSE job.progress END,
            result = CASE WHEN NEW.result IS DISTINCT FROM OLD.result THEN NEW.result ELSE job.result END,
            worker = NEW.worker
        WHERE job.id = OLD.id;
    ELSE
        UPDATE awa.jobs_hot AS job
        SET queue = NEW.queue,
            args = CASE WHEN NEW.args IS DISTINCT FROM OLD.args THEN NEW.args ELSE job.args END,
            state = NEW.state,
            priority = NEW.priority,
            attempt = NEW.attempt,
            max_attempts = NEW.max_attempts,
            run_at = NEW.run_at,
            heartbeat_at = NEW.heartbeat_at,
            deadline_at = NEW.deadline_at,
            attempted_at = NEW.attempted_at,
            finalized_at = NEW.finalized_at,
            errors = CASE WHEN NEW.errors IS DISTINCT FROM OLD.errors THEN NEW.errors ELSE job.errors END,
            metadata = CASE WHEN NEW.metadata IS DISTINCT FROM OLD.metadata THEN NEW.metadata ELSE job.metadata END,
            tags = NEW.tags,
            progress = CASE WHEN NEW.progress IS DISTINCT FROM OLD.progress THEN NEW.progress ELSE job.progress END,
            result = CASE WHEN NEW.result IS DISTINCT FROM OLD.result THEN NEW.result ELSE job.result END,
            worker = NEW.worker
        WHERE job.id = OLD.id;
    END IF;

    IF NEW.state = 'available' AND (OLD.state <> 'available' OR NEW.queue <> OLD.queue)
        AND EXISTS (SELECT FROM awa.waiters AS waiter WHERE waiter.expires_at > now())
    THEN
        PERFORM awa.wake(ARRAY[NEW.queue]);
    END IF;
    RETURN NEW;
END
$$;

-- The same compare-and-set as for an update.
CREATE FUNCTION awa.delete_job_through_view()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    current_job awa.jobs_hot;
    was_deferred boolean := OLD.state IN ('scheduled', 'retryable');
BEGIN
    IF was_deferred THEN
        SELECT * INTO current_job FROM awa.scheduled_jobs AS job WHERE job.id = OLD.id FOR UPDATE;
    ELSE
        SELECT * INTO current_job FROM awa.jobs_hot AS job WHERE job.id = OLD.id FOR UPDATE;
    END IF;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    OLD.heartbeat_at := current_job.heartbeat_at;
    OLD.progress := current_job.progress;
    IF current_job *<> OLD THEN
        RETURN NULL;
    END IF;
    IF was_deferred THEN
        DELETE FROM awa.scheduled_jobs AS job WHERE job.id = OLD.id;
    ELSE
        DELETE FROM awa.jobs_hot AS job WHERE job.id = OLD.id;
    END IF;
    RETURN OLD;
END
$$;

CREATE TRIGGER insert_job INSTEAD OF INSERT ON awa.jobs
    FOR EACH ROW EXECUTE FUNCTION awa.insert_job_through_view();
CREATE TRIGGER update_job INSTEAD OF UPDATE ON awa.jobs
    FOR EACH ROW EXECUTE FUNCTION awa.update_job_through_view();
CREATE TRIGGER delete_job INSTEAD OF DELETE ON awa.jobs
    FOR EACH ROW EXECUTE FUNCTION awa.delete_job_through_view();

-- Triggers fire without it.
REVOKE ALL ON FUNCTION awa.insert_job_through_view() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.update_job_through_view() FROM PUBLIC;
REVOKE ALL ON FUNCTION awa.delete_job_through_view() FROM PUBLIC;
