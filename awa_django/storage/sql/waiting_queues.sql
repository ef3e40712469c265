-- The queues of jobs that wait.
-- Params: limit (names of each table at most).
-- Index: jobs_hot_claim and scheduled_jobs_queue_due, one probe a queue (loose scans).
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
SELECT waiting.queue
FROM (
    (SELECT available_queue.queue FROM available_queue LIMIT %(limit)s::integer)
    UNION
    (SELECT deferred_queue.queue FROM deferred_queue LIMIT %(limit)s::integer)
) AS waiting (queue)
WHERE waiting.queue IS NOT NULL
ORDER BY waiting.queue
