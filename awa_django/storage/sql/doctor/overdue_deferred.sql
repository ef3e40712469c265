-- Deferred jobs that have been due for longer than a promotion may take.
-- Params: promotion_overdue_by (seconds).
WITH found (subject) AS (
    SELECT job.id
    FROM awa.scheduled_jobs AS job
    WHERE job.run_at < now() - make_interval(secs => %(promotion_overdue_by)s::double precision)
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
