-- The ids that the next promotion would move, without locking them.
-- Params: batch.
-- Index: scheduled_jobs_due.
SELECT job.id
FROM awa.scheduled_jobs AS job
WHERE job.run_at <= now()
ORDER BY job.run_at, job.id
LIMIT %(batch)s::integer
