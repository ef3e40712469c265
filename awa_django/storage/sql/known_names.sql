-- Names that are known from somewhere: 'waiting' with the queues of jobs that wait; 'declared' with those of
-- queues that were paused, are served, or have a kind or a schedule; 'kind' with the kinds of the catalogue, and
-- 'match' with those that a search means.
-- Params: limit (names of each at most), search (a part of kinds, whatever their case; null: no search).
-- Index: jobs_hot_claim and scheduled_jobs_queue_due, one probe a queue (loose scans); job_kinds_pkey.
WITH RECURSIVE available_queue AS (
    (
        SELECT job.queue FROM awa.jobs_hot AS job WHERE job.state = 'available' ORDER BY job.queue LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT job.queue
        FROM awa.jobs_hot AS job
        WHERE job.state = 'available' AND job.queue > available_queue.queue
        ORDER BY job.queue
        LIMIT 1
    )
    FROM available_queue
    WHERE available_queue.queue IS NOT NULL
),
deferred_queue AS (
    (
        SELECT job.queue FROM awa.scheduled_jobs AS job ORDER BY job.queue LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT job.queue
        FROM awa.scheduled_jobs AS job
        WHERE job.queue > deferred_queue.queue
        ORDER BY job.queue
        LIMIT 1
    )
    FROM deferred_queue
    WHERE deferred_queue.queue IS NOT NULL
)
(
    SELECT 'waiting', waiting.queue
    FROM (
        (SELECT available_queue.queue FROM available_queue LIMIT %(limit)s::integer)
        UNION
        (SELECT deferred_queue.queue FROM deferred_queue LIMIT %(limit)s::integer)
    ) AS waiting (queue)
    WHERE waiting.queue IS NOT NULL
    ORDER BY waiting.queue
    LIMIT %(limit)s::integer
)
UNION ALL
(
    SELECT 'declared', declared.queue
    FROM (
        SELECT meta.queue FROM awa.queue_meta AS meta
        UNION
        SELECT kind.queue FROM awa.job_kinds AS kind
        UNION
        SELECT unnest(instance.queues) FROM awa.runtime_instances AS instance
        UNION
        SELECT cron.queue FROM awa.cron_jobs AS cron
    ) AS declared (queue)
    WHERE declared.queue IS NOT NULL
    ORDER BY declared.queue
    LIMIT %(limit)s::integer
)
UNION ALL
(
    SELECT 'kind', kind.kind
    FROM awa.job_kinds AS kind
    ORDER BY kind.kind
    LIMIT %(limit)s::integer
)
UNION ALL
(
    SELECT 'match', kind.kind
    FROM awa.job_kinds AS kind
    WHERE strpos(upper(kind.kind), upper(%(search)s::text)) > 0
    ORDER BY kind.kind
    LIMIT %(limit)s::integer
)
