-- Take the unique key first and insert the job second, if it was free: no exception, so the caller's
-- transaction stays usable. No row comes back when another job holds the key. Waits for a rival that
-- has taken the key in an open transaction.
-- Returns what insert_job_at does.
-- Params: those of insert_job_at; unique_key, unique_states.
-- Index: idx_awa_jobs_unique.
-- The insert triggers find the claim of this id in place and accept it.
WITH due AS MATERIALIZED (
    SELECT
        nextval('awa.jobs_id_seq') AS id,
        coalesce(%(run_at)s::timestamptz, now() + %(delay)s::interval, now()) AS run_at
),
claim AS (
    INSERT INTO awa.job_unique_claims (unique_key, job_id)
    SELECT %(unique_key)s::bytea, due.id
    FROM due
    ON CONFLICT (unique_key) DO NOTHING
    RETURNING job_id
),
hot AS (
    INSERT INTO awa.jobs_hot (
        id, kind, queue, args, priority, max_attempts, metadata, tags, run_at, unique_key, unique_states
    )
    SELECT
        due.id,
        %(kind)s::text,
        %(queue)s::text,
        %(args)s::jsonb,
        %(priority)s::smallint,
        %(max_attempts)s::smallint,
        %(metadata)s::jsonb,
        %(tags)s::text[],
        due.run_at,
        %(unique_key)s::bytea,
        %(unique_states)s::bit(8)
    FROM due
    JOIN claim ON claim.job_id = due.id
    WHERE due.run_at <= now()
    RETURNING id
),
deferred AS (
    INSERT INTO awa.scheduled_jobs (
        id, kind, queue, args, priority, max_attempts, metadata, tags, run_at, unique_key, unique_states
    )
    SELECT
        due.id,
        %(kind)s::text,
        %(queue)s::text,
        %(args)s::jsonb,
        %(priority)s::smallint,
        %(max_attempts)s::smallint,
        %(metadata)s::jsonb,
        %(tags)s::text[],
        due.run_at,
        %(unique_key)s::bytea,
        %(unique_states)s::bit(8)
    FROM due
    JOIN claim ON claim.job_id = due.id
    WHERE due.run_at > now()
    RETURNING id
)
SELECT
    id,
    true AS is_due,
    EXISTS (
        SELECT FROM awa.waiters AS waiter
        WHERE waiter.expires_at > now() AND %(queue)s::text = ANY (waiter.queues)
    ) AS is_awaited,
    pg_backend_pid()
FROM hot
UNION ALL
SELECT id, false, false, pg_backend_pid() FROM deferred
