-- The kinds of jobs that wait: of all deferred rows, and of some that are available.
-- Params: sample (how many available rows to look at), limit (names at most).
-- Index: scheduled_jobs_kind_due, one probe a kind (a loose scan); jobs_hot_claim.
WITH RECURSIVE deferred_kind AS (
    (SELECT job.kind FROM awa.scheduled_jobs AS job ORDER BY job.kind LIMIT 1)
    UNION ALL
    SELECT (
        SELECT job.kind
        FROM awa.scheduled_jobs AS job
        WHERE job.kind > deferred_kind.kind
        ORDER BY job.kind
        LIMIT 1
    )
    FROM deferred_kind
    WHERE deferred_kind.kind IS NOT NULL
)
SELECT waiting.kind
FROM (
    SELECT some_available.kind
    FROM (
        SELECT job.kind
        FROM awa.jobs_hot AS job
        WHERE job.state = 'available'
        ORDER BY job.queue, job.priority, job.run_at, job.id
        LIMIT %(sample)s::integer
    ) AS some_available
    UNION
    (SELECT deferred_kind.kind FROM deferred_kind LIMIT %(limit)s::integer)
) AS waiting (kind)
WHERE waiting.kind IS NOT NULL
ORDER BY waiting.kind
