-- What waits in each queue, counted to a cap, and since when the one that waits longest is due.
-- Params: queues (names), cap (the highest count), soon (seconds).
-- Index: jobs_hot_claim (one probe for each priority in use finds the oldest), scheduled_jobs_queue_due.
-- The queue of deferred rows is bounded from both sides instead of being equal: no index but that one has
-- them in this order then. The first rows are read, and those that are due are counted among them.
SELECT
    known.queue,
    coalesce(meta.paused AND (meta.paused_until IS NULL OR meta.paused_until > now()), false),
    meta.paused_by,
    runnable.count,
    oldest.run_at,
    deferred.count,
    due_soon.count,
    deferred.overdue_count
FROM unnest(%(queues)s::text[]) AS known (queue)
LEFT JOIN awa.queue_meta AS meta ON meta.queue = known.queue
CROSS JOIN LATERAL (
    SELECT count(*)
    FROM (
        SELECT FROM awa.jobs_hot AS job
        WHERE job.queue = known.queue AND job.state = 'available'
        ORDER BY job.priority, job.run_at, job.id
        LIMIT %(cap)s::integer
    ) AS capped
) AS runnable
CROSS JOIN LATERAL (
    WITH RECURSIVE head AS (
        (
            SELECT job.priority, job.run_at
            FROM awa.jobs_hot AS job
            WHERE job.queue = known.queue AND job.state = 'available'
            ORDER BY job.priority, job.run_at, job.id
            LIMIT 1
        )
        UNION ALL
        SELECT following.priority, following.run_at
        FROM head
        CROSS JOIN LATERAL (
            SELECT job.priority, job.run_at
            FROM awa.jobs_hot AS job
            WHERE job.queue = known.queue AND job.state = 'available' AND job.priority > head.priority
            ORDER BY job.priority, job.run_at, job.id
            LIMIT 1
        ) AS following
    )
    SELECT min(head.run_at) AS run_at FROM head
) AS oldest
CROSS JOIN LATERAL (
    SELECT count(*) AS count, count(*) FILTER (WHERE capped.run_at <= now()) AS overdue_count
    FROM (
        SELECT job.run_at
        FROM awa.scheduled_jobs AS job
        WHERE job.queue >= known.queue AND job.queue <= known.queue
        ORDER BY job.queue, job.run_at, job.id
        LIMIT %(cap)s::integer
    ) AS capped
) AS deferred
CROSS JOIN LATERAL (
    SELECT count(*)
    FROM (
        SELECT job.run_at
        FROM awa.scheduled_jobs AS job
        WHERE job.queue >= known.queue AND job.queue <= known.queue AND job.run_at > now()
        ORDER BY job.queue, job.run_at, job.id
        LIMIT %(cap)s::integer
    ) AS following
    WHERE following.run_at <= now() + make_interval(secs => %(soon)s::double precision)
) AS due_soon
