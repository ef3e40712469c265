-- Enqueue a job for each of the fire times and move the mark, in one statement: each fire time makes one
-- job, however many leaders try. Returns id, queue; no row when the fires are done already, or when
-- somebody else is at this schedule just now (then the next look finds what is left).
-- Params: name, fire_ats (ascending, may be empty), until (the newest fire time considered), since (the
-- mark from which they were computed), skipped_count (fires since then for which no job is wanted).
-- Index: cron_jobs_pkey. The row lock orders rivals; the second one sees the mark. Locked rows are left:
-- one schedule in somebody's open transaction must not hold up the others.
WITH schedule AS MATERIALIZED (
    SELECT locked.*, coalesce(locked.last_enqueued_at, locked.created_at) AS mark
    FROM awa.cron_jobs AS locked
    WHERE locked.name = %(name)s::text
      AND NOT locked.paused
      AND coalesce(locked.last_enqueued_at, locked.created_at) < %(until)s::timestamptz
      AND NOT locked.metadata ? 'awa:unique'  -- has just been declared so
    FOR UPDATE SKIP LOCKED
),
marked AS (
    UPDATE awa.cron_jobs AS marking
    SET last_enqueued_at = %(until)s::timestamptz,
        skipped_count = marking.skipped_count + CASE
            WHEN schedule.mark <= %(since)s::timestamptz THEN %(skipped_count)s::bigint
            ELSE 0  -- a rival has been here and counted them
        END
    FROM schedule
    WHERE marking.name = schedule.name
)
INSERT INTO awa.jobs_hot (kind, queue, args, priority, max_attempts, tags, metadata)
SELECT
    schedule.kind,
    schedule.queue,
    schedule.args,
    schedule.priority,
    schedule.max_attempts,
    schedule.tags,
    schedule.metadata || jsonb_build_object('awa:cron', jsonb_build_object(
        'name', schedule.name,
        'fire_at', fire.at
    ))
FROM schedule
JOIN unnest(%(fire_ats)s::timestamptz[]) AS fire (at) ON fire.at > schedule.mark
ORDER BY fire.at
RETURNING id, queue
