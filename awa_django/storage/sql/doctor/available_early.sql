-- Available jobs that are not due.
WITH found (subject) AS (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.state = 'available'
      AND job.run_at > now()
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
