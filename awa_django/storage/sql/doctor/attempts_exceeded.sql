-- Jobs with an impossible number of attempts: negative, or completed in one above the last.
WITH found (subject) AS (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.attempt < 0
       OR (job.attempt > job.max_attempts AND job.state = 'completed')
    UNION ALL
    SELECT job.id
    FROM awa.scheduled_jobs AS job
    WHERE job.attempt < 0
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
