-- Let a paused schedule fire again, from now on: the fires of the pause were not wanted.
-- Returns whether that changed anything; no row when there is no such schedule.
-- Params: name.
-- Index: cron_jobs_pkey.
WITH schedule AS MATERIALIZED (
    SELECT locked.name, locked.paused
    FROM awa.cron_jobs AS locked
    WHERE locked.name = %(name)s::text
    FOR UPDATE
),
changed AS (
    UPDATE awa.cron_jobs AS resuming
    SET paused = false,
        paused_at = NULL,
        paused_by = NULL,
        last_enqueued_at = greatest(resuming.last_enqueued_at, now())
    FROM schedule
    WHERE resuming.name = schedule.name
      AND schedule.paused
)
SELECT schedule.paused
FROM schedule
