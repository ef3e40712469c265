-- Jobs that do not run and have a heartbeat or a deadline.
WITH found (subject) AS (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.state <> 'running'
      AND (job.heartbeat_at IS NOT NULL OR job.deadline_at IS NOT NULL)
    UNION ALL
    SELECT job.id
    FROM awa.scheduled_jobs AS job
    WHERE job.heartbeat_at IS NOT NULL OR job.deadline_at IS NOT NULL
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
