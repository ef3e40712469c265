-- Stop the fires of a schedule. Returns whether that changed anything; no row when there is no such schedule.
-- Params: name, paused_by.
-- Index: cron_jobs_pkey.
WITH schedule AS MATERIALIZED (
    SELECT locked.name, locked.paused
    FROM awa.cron_jobs AS locked
    WHERE locked.name = %(name)s::text
    FOR UPDATE
),
changed AS (
    UPDATE awa.cron_jobs AS pausing
    SET paused = true,
        paused_at = now(),
        paused_by = %(paused_by)s::text
    FROM schedule
    WHERE pausing.name = schedule.name
      AND NOT schedule.paused
)
SELECT NOT schedule.paused
FROM schedule
