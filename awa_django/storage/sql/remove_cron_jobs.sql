-- Delete the schedules that no worker has declared for so long; returns their names. A paused one stays,
-- as it must not come back unpaused, and so does one written by hand.
-- Params: undeclared_for.
WITH gone AS MATERIALIZED (
    SELECT schedule.name
    FROM awa.cron_jobs AS schedule
    WHERE schedule.declared_at < now() - %(undeclared_for)s::interval
      AND NOT schedule.paused
    ORDER BY schedule.name
    FOR UPDATE SKIP LOCKED
)
DELETE FROM awa.cron_jobs AS schedule
WHERE schedule.name = ANY (ARRAY(SELECT gone.name FROM gone))
RETURNING schedule.name
