-- Say that the code of a living worker declares these schedules; returns the names that have a row.
-- Params: names; fresh_for (what was confirmed within that is not written again, however many workers).
-- Index: cron_jobs_pkey.
WITH stale AS MATERIALIZED (
    SELECT schedule.name
    FROM awa.cron_jobs AS schedule
    WHERE schedule.name = ANY (%(names)s::text[])
      AND schedule.declared_at < now() - %(fresh_for)s::interval
    ORDER BY schedule.name
    FOR UPDATE SKIP LOCKED
),
confirmed AS (
    UPDATE awa.cron_jobs AS schedule
    SET declared_at = now()
    WHERE schedule.name = ANY (ARRAY(SELECT stale.name FROM stale))
)
SELECT schedule.name
FROM awa.cron_jobs AS schedule
WHERE schedule.name = ANY (%(names)s::text[])
