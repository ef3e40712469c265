-- Queues with their pause and with what waits and runs in them, counted to a cap.
-- Params: queues (names), cap (the highest count).
-- Index: jobs_hot_claim, jobs_hot_running (as many rows as the workers run), scheduled_jobs_queue_due.
WITH running AS MATERIALIZED (
    SELECT job.queue, count(*) AS count
    FROM awa.jobs_hot AS job
    WHERE job.state = 'running'
    GROUP BY job.queue
)
SELECT
    known.queue,
    coalesce(meta.paused AND (meta.paused_until IS NULL OR meta.paused_until > now()), false),
    meta.paused_at,
    meta.paused_by,
    CASE WHEN isfinite(meta.paused_until) THEN meta.paused_until END,
    available.count,
    coalesce(running.count, 0),
    deferred.count
FROM unnest(%(queues)s::text[]) AS known (queue)
LEFT JOIN awa.queue_meta AS meta ON meta.queue = known.queue
LEFT JOIN running ON running.queue = known.queue
CROSS JOIN LATERAL (
    SELECT count(*)
    FROM (
        SELECT FROM awa.jobs_hot AS job
        WHERE job.queue = known.queue AND job.state = 'available'
        LIMIT %(cap)s::integer
    ) AS capped
) AS available
CROSS JOIN LATERAL (
    SELECT count(*)
    FROM (
        SELECT FROM awa.scheduled_jobs AS job
        WHERE job.queue = known.queue
        LIMIT %(cap)s::integer
    ) AS capped
) AS deferred
ORDER BY known.queue
