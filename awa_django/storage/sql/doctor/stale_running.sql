-- Running jobs whose heartbeat has been silent for longer than a rescue may take.
-- Params: silent_for (seconds).
WITH found (subject) AS (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.state = 'running'
      AND job.heartbeat_at < now() - make_interval(secs => %(silent_for)s::double precision)
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
