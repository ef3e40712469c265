-- Enqueue the job of one fire time and mark it, in one statement: each fire time makes one job,
-- however many leaders try. Returns id, queue; no row when the fire is done already.
-- Params: name, fire_at.
-- Index: cron_jobs_pkey. The row lock of the mark orders rivals; the second one sees the mark.
WITH mark AS (
    UPDATE awa.cron_jobs AS schedule
    SET last_enqueued_at = %(fire_at)s::timestamptz
    WHERE schedule.name = %(name)s::text
      AND NOT schedule.paused
      AND coalesce(schedule.last_enqueued_at, schedule.created_at) < %(fire_at)s::timestamptz
    RETURNING schedule.*
)
INSERT INTO awa.jobs_hot (kind, queue, args, priority, max_attempts, tags, metadata)
SELECT
    mark.kind,
    mark.queue,
    mark.args,
    mark.priority,
    mark.max_attempts,
    mark.tags,
    mark.metadata || jsonb_build_object('awa:cron', jsonb_build_object(
        'name', mark.name,
        'fire_at', %(fire_at)s::timestamptz
    ))
FROM mark
RETURNING id, queue
