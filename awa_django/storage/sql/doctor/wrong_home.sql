-- Jobs in the table that is not for their state.
WITH found (subject) AS (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.state IN ('scheduled', 'retryable')
    UNION ALL
    SELECT job.id
    FROM awa.scheduled_jobs AS job
    WHERE job.state NOT IN ('scheduled', 'retryable')
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
