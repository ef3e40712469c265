-- Deferred jobs that have been due for longer than a promotion may take.
-- Params: promotion_overdue_by (seconds).
-- Index: scheduled_jobs_due, the only one in this order.
WITH found (subject) AS (
    SELECT job.id
    FROM awa.scheduled_jobs AS job
    WHERE job.run_at < now() - make_interval(secs => %(promotion_overdue_by)s::double precision)
    ORDER BY job.run_at, job.id
)
SELECT
    (SELECT count(*) FROM found),
    ARRAY(SELECT found.subject::text FROM found ORDER BY found.subject LIMIT 20)
