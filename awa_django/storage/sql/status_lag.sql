-- For how many seconds the first deferred job has been due: null when none is.
-- Index: scheduled_jobs_due.
SELECT extract(epoch FROM now() - first.run_at)::double precision
FROM (
    SELECT job.run_at
    FROM awa.scheduled_jobs AS job
    ORDER BY job.run_at, job.id
    LIMIT 1
) AS first
WHERE first.run_at <= now()
