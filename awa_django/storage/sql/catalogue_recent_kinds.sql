-- Remember the kinds found in the tables: of the newest hot rows, and of all deferred ones.
-- Params: window (how many of the newest hot rows to look at).
-- Index: jobs_hot_pkey backwards; scheduled_jobs_kind_due, one probe a kind (a loose scan).
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
),
found AS (
    SELECT recent.kind
    FROM (
        SELECT job.kind FROM awa.jobs_hot AS job ORDER BY job.id DESC LIMIT %(window)s::integer
    ) AS recent
    UNION
    SELECT deferred_kind.kind FROM (SELECT kind FROM deferred_kind LIMIT 10000) AS deferred_kind
    WHERE deferred_kind.kind IS NOT NULL
)
INSERT INTO awa.job_kinds AS known (kind)
SELECT found.kind
FROM found
ORDER BY found.kind
ON CONFLICT (kind) DO UPDATE
SET last_seen_at = now()
