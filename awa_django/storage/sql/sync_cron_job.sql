-- Write a declared schedule: new ones count from now, a changed expression or zone counts from now too.
-- Params: name, cron_expr, timezone, kind, queue, args, priority, max_attempts, tags, metadata, missed,
-- catch_up_limit; fresh_for.
-- Index: cron_jobs_pkey. An unchanged schedule that was declared within fresh_for writes nothing; `paused`
-- is the operator's.
INSERT INTO awa.cron_jobs AS schedule (
    name, cron_expr, timezone, kind, queue, args, priority, max_attempts, tags, metadata, missed,
    catch_up_limit, last_enqueued_at, declared_at
)
VALUES (
    %(name)s::text,
    %(cron_expr)s::text,
    %(timezone)s::text,
    %(kind)s::text,
    %(queue)s::text,
    %(args)s::jsonb,
    %(priority)s::smallint,
    %(max_attempts)s::smallint,
    %(tags)s::text[],
    %(metadata)s::jsonb,
    %(missed)s::text,
    %(catch_up_limit)s::smallint,
    now(),
    now()
)
ON CONFLICT (name) DO UPDATE
SET cron_expr = excluded.cron_expr,
    timezone = excluded.timezone,
    kind = excluded.kind,
    queue = excluded.queue,
    args = excluded.args,
    priority = excluded.priority,
    max_attempts = excluded.max_attempts,
    tags = excluded.tags,
    metadata = excluded.metadata,
    missed = excluded.missed,
    catch_up_limit = excluded.catch_up_limit,
    updated_at = now(),
    declared_at = now(),
    last_enqueued_at = CASE
        WHEN (schedule.cron_expr, schedule.timezone) = (excluded.cron_expr, excluded.timezone)
            THEN schedule.last_enqueued_at
        ELSE now()
    END
WHERE (
    schedule.cron_expr, schedule.timezone, schedule.kind, schedule.queue, schedule.args, schedule.priority,
    schedule.max_attempts, schedule.tags, schedule.metadata, schedule.missed, schedule.catch_up_limit
) IS DISTINCT FROM (
    excluded.cron_expr, excluded.timezone, excluded.kind, excluded.queue, excluded.args, excluded.priority,
    excluded.max_attempts, excluded.tags, excluded.metadata, excluded.missed, excluded.catch_up_limit
)
   OR schedule.declared_at IS NULL
   OR schedule.declared_at < now() - %(fresh_for)s::interval
