-- Every schedule that is not paused, with the instant from which its next fire counts and the clock.
SELECT
    schedule.name,
    schedule.cron_expr,
    schedule.timezone,
    -- Within what every client can represent: a value set by hand must not hide all schedules.
    least(greatest(coalesce(schedule.last_enqueued_at, schedule.created_at), '2000-01-01 00:00+00'), now()),
    now()
FROM awa.cron_jobs AS schedule
WHERE NOT schedule.paused
ORDER BY schedule.name
