-- Every schedule that may fire, with the instant from which its next fire counts, the clock, and what the
-- unique keys of its jobs are made of (null: they have none). It is not paused, and some worker that lives
-- declares it, or it was written by hand.
-- Params: declared_within.
SELECT
    schedule.name,
    schedule.cron_expr,
    schedule.timezone,
    schedule.missed,
    schedule.catch_up_limit,
    -- Within what every client can represent: a value set by hand must not hide all schedules.
    least(greatest(coalesce(schedule.last_enqueued_at, schedule.created_at), '2000-01-01 00:00+00'), now()),
    now(),
    schedule.metadata -> 'awa:unique'
FROM awa.cron_jobs AS schedule
WHERE NOT schedule.paused
  AND (schedule.declared_at IS NULL OR schedule.declared_at > now() - %(declared_within)s::interval)
ORDER BY schedule.name
