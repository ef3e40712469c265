-- Seconds until the next deferred row is due (negative: overdue); no row when there is none.
-- Index: scheduled_jobs_due.
SELECT extract(epoch FROM job.run_at - clock_timestamp())::double precision
FROM awa.scheduled_jobs AS job
ORDER BY job.run_at, job.id
LIMIT 1
