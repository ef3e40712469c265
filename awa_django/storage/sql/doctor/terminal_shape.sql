-- Jobs that have ended and say no time, or the other way round.
WITH found (subject) AS (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE (job.state IN ('completed', 'failed', 'cancelled')) <> (job.finalized_at IS NOT NULL)
    UNION ALL
    SELECT job.id
    FROM awa.scheduled_jobs AS job
    WHERE job.finalized_at IS NOT NULL
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
