-- Running jobs without what a claim sets.
WITH found (subject) AS (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.state = 'running'
      AND (
          job.attempt < 1
          OR job.run_lease < 1
          OR job.attempted_at IS NULL
          OR job.heartbeat_at IS NULL
          OR job.worker IS NULL
      )
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
