-- Running jobs past their deadline by more than a rescue may take.
-- Params: overdue_by (seconds).
WITH found (subject) AS (
    SELECT job.id
    FROM awa.jobs_hot AS job
    WHERE job.state = 'running'
      AND job.deadline_at < now() - make_interval(secs => %(overdue_by)s::double precision)
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
