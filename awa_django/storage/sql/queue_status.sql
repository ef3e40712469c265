-- Queues as an operator sees them: their pause, what waits and since when, what runs, failed and is to come.
-- Params: queues (names), with_others (whether queues come too that are not named and have jobs that run or
--   failed), cap (the highest count), failed_cap (how many of the newest failed jobs are looked at, of all
--   queues), soon (seconds: due within them is due soon).
-- Index: jobs_hot_claim (one probe for each priority in use finds the oldest), jobs_hot_running (as many rows as
-- the workers run), jobs_hot_attention, scheduled_jobs_queue_due. Each count is in the order of its index, so
-- that no statistics make another one or the whole table look cheaper: the queue of deferred rows is bounded
-- from both sides instead of being equal, and so is the state of failed ones. Deferred rows are read first due
-- first, so those that are overdue are counted among them.
WITH running AS MATERIALIZED (
    SELECT job.queue, count(*) AS count
    FROM awa.jobs_hot AS job
    WHERE job.state = 'running'
    GROUP BY job.queue
),
failed AS MATERIALIZED (
    SELECT newest.queue, count(*) AS count
    FROM (
        SELECT job.queue
        FROM awa.jobs_hot AS job
        WHERE job.state IN ('failed', 'cancelled', 'waiting_external')
          AND job.state >= 'failed'
          AND job.state <= 'failed'
        ORDER BY job.state DESC, job.id DESC
        LIMIT %(failed_cap)s::integer
    ) AS newest
    GROUP BY newest.queue
),
known AS MATERIALIZED (
    SELECT unnest(%(queues)s::text[]) AS queue
    UNION
    SELECT running.queue FROM running WHERE %(with_others)s::boolean
    UNION
    SELECT failed.queue FROM failed WHERE %(with_others)s::boolean
)
SELECT
    known.queue,
    coalesce(meta.paused AND (meta.paused_until IS NULL OR meta.paused_until > now()), false),
    meta.paused_at,
    meta.paused_by,
    CASE WHEN isfinite(meta.paused_until) THEN meta.paused_until END,
    available.count,
    extract(epoch FROM now() - oldest.run_at)::double precision,
    coalesce(running.count, 0),
    deferred.count,
    due_soon.count,
    deferred.overdue_count,
    extract(epoch FROM now() - deferred.overdue_since)::double precision,
    coalesce(failed.count, 0)
FROM known
LEFT JOIN awa.queue_meta AS meta ON meta.queue = known.queue
LEFT JOIN running ON running.queue = known.queue
LEFT JOIN failed ON failed.queue = known.queue
CROSS JOIN LATERAL (
    SELECT count(*)
    FROM (
        SELECT FROM awa.jobs_hot AS job
        WHERE job.queue = known.queue AND job.state = 'available'
        ORDER BY job.priority, job.run_at, job.id
        LIMIT %(cap)s::integer
    ) AS capped
) AS available
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
    SELECT
        count(*) AS count,
        count(*) FILTER (WHERE capped.run_at <= now()) AS overdue_count,
        min(capped.run_at) FILTER (WHERE capped.run_at <= now()) AS overdue_since
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
ORDER BY known.queue
