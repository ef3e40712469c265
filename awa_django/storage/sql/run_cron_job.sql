-- Enqueue one job of a schedule now, beside its fires: the mark stays, and a pause does not matter.
-- Returns id, queue; no row when there is no such schedule.
-- Params: name, asked_by.
-- Index: cron_jobs_pkey.
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
        'asked_at', clock_timestamp(),
        'asked_by', %(asked_by)s::text
    ))
FROM awa.cron_jobs AS schedule
WHERE schedule.name = %(name)s::text
RETURNING id, queue
