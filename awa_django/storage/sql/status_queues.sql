-- Queues as an operator sees them: pause, what waits and since when, what runs, failed and is to come.
-- Params: queues (names), cap (the highest count), soon (seconds: due within them is due soon).
-- Index: jobs_hot_claim, jobs_hot_running, jobs_hot_attention, scheduled_jobs_queue_due.
-- The capped counts go in the order of their index, so that the whole table is never cheaper.
-- The oldest available job is looked for at the head of each priority. Failed jobs are those among the newest
-- of all queues.
WITH RECURSIVE running AS MATERIALIZED (
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
        WHERE job.state = 'failed'
        ORDER BY job.state, job.id DESC
        LIMIT %(cap)s::integer
    ) AS newest
    GROUP BY newest.queue
),
head (queue, priority, run_at) AS (
    SELECT known.queue, first.priority, first.run_at
    FROM unnest(%(queues)s::text[]) AS known (queue)
    CROSS JOIN LATERAL (
        SELECT job.priority, job.run_at
        FROM awa.jobs_hot AS job
        WHERE job.state = 'available' AND job.queue = known.queue
        ORDER BY job.priority, job.run_at, job.id
        LIMIT 1
    ) AS first
    UNION ALL
    SELECT head.queue, following.priority, following.run_at
    FROM head
    CROSS JOIN LATERAL (
        SELECT job.priority, job.run_at
        FROM awa.jobs_hot AS job
        WHERE job.state = 'available' AND job.queue = head.queue AND job.priority > head.priority
        ORDER BY job.priority, job.run_at, job.id
        LIMIT 1
    ) AS following
),
oldest AS MATERIALIZED (
    SELECT head.queue, min(head.run_at) AS run_at FROM head GROUP BY head.queue
)
SELECT
    known.queue,
    coalesce(meta.paused AND (meta.paused_until IS NULL OR meta.paused_until > now()), false),
    meta.paused_by,
    CASE WHEN isfinite(meta.paused_until) THEN meta.paused_until END,
    available.count,
    extract(epoch FROM now() - oldest.run_at)::double precision,
    coalesce(running.count, 0),
    deferred.count,
    due_soon.count,
    overdue.count,
    extract(epoch FROM now() - overdue.run_at)::double precision,
    coalesce(failed.count, 0)
FROM unnest(%(queues)s::text[]) AS known (queue)
LEFT JOIN awa.queue_meta AS meta ON meta.queue = known.queue
LEFT JOIN oldest ON oldest.queue = known.queue
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
    SELECT count(*)
    FROM (
        SELECT FROM awa.scheduled_jobs AS job
        WHERE job.queue = known.queue
        ORDER BY job.run_at, job.id
        LIMIT %(cap)s::integer
    ) AS capped
) AS deferred
CROSS JOIN LATERAL (
    SELECT count(*)
    FROM (
        SELECT FROM awa.scheduled_jobs AS job
        WHERE job.queue = known.queue
          AND job.run_at > now()
          AND job.run_at <= now() + make_interval(secs => %(soon)s::double precision)
        ORDER BY job.run_at, job.id
        LIMIT %(cap)s::integer
    ) AS capped
) AS due_soon
CROSS JOIN LATERAL (
    SELECT count(*), min(capped.run_at) AS run_at
    FROM (
        SELECT job.run_at
        FROM awa.scheduled_jobs AS job
        WHERE job.queue = known.queue AND job.run_at <= now()
        ORDER BY job.run_at, job.id
        LIMIT %(cap)s::integer
    ) AS capped
) AS overdue
ORDER BY known.queue
