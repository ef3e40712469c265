-- Every schedule that is not paused, with the instant from which its next fire counts and the clock.
SELECT
    schedule.name,
    schedule.cron_expr,
    schedule.timezone,
    coalesce(schedule.last_enqueued_at, schedule.created_at),
    now()
FROM awa.cron_jobs AS schedule
WHERE NOT schedule.paused
ORDER BY schedule.name
