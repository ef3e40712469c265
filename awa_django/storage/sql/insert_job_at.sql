-- Insert one job into the table that its due instant asks for by the database's clock: deferred
-- when it is later than now, hot otherwise. Returns its id, whether it may run
-- now and whether somebody waits to be woken for it, and the process of the server that answers.
-- Params: those of insert_job; metadata (JSON text), tags; run_at, or delay from now, or both null: now.
WITH due AS MATERIALIZED (
    SELECT
        nextval('awa.jobs_id_seq') AS id,
        coalesce(%(run_at)s::timestamptz, now() + %(delay)s::interval, now()) AS run_at
),
hot AS (
    INSERT INTO awa.jobs_hot (id, kind, queue, args, priority, max_attempts, metadata, tags, run_at)
    SELECT
        due.id,
        %(kind)s::text,
        %(queue)s::text,
        %(args)s::jsonb,
        %(priority)s::smallint,
        %(max_attempts)s::smallint,
        %(metadata)s::jsonb,
        %(tags)s::text[],
        due.run_at
    FROM due
    WHERE due.run_at <= now()
    RETURNING id
),
deferred AS (
    INSERT INTO awa.scheduled_jobs (id, kind, queue, args, priority, max_attempts, metadata, tags, run_at)
    SELECT
        due.id,
        %(kind)s::text,
        %(queue)s::text,
        %(args)s::jsonb,
        %(priority)s::smallint,
        %(max_attempts)s::smallint,
        %(metadata)s::jsonb,
        %(tags)s::text[],
        due.run_at
    FROM due
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
