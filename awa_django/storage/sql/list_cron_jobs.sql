-- The schedules as an operator sees them, all or one of them, with the clock and what
-- the unique keys of its jobs are made of.
-- Params: name (null for all), declared_within.
SELECT
    schedule.name,
    schedule.cron_expr,
    schedule.timezone,
    schedule.kind,
    schedule.queue,
    schedule.missed,
    schedule.catch_up_limit,
    schedule.paused,
    schedule.paused_by,
    -- Whether no living worker declares it any more.
    coalesce(schedule.declared_at <= now() - %(declared_within)s::interval, false),
    schedule.skipped_count,
    -- Within what every client can represent; null before the first fire.
    CASE
        WHEN schedule.last_enqueued_at IS NOT NULL
        THEN least(greatest(schedule.last_enqueued_at, '2000-01-01 00:00+00'), '9999-12-01 00:00+00')
    END,
    now(),
    schedule.metadata -> 'awa:unique'
FROM awa.cron_jobs AS schedule
WHERE %(name)s::text IS NULL OR schedule.name = %(name)s::text
ORDER BY schedule.name
