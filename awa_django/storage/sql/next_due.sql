-- Seconds until the next deferred row is due (negative: overdue); no row when there is none.
-- Index: scheduled_jobs_due. It reads `state`, which is always one of these two, so that no other index
-- holds all it needs: with misleading statistics it would sort one of those instead.
SELECT extract(epoch FROM job.run_at - clock_timestamp())::double precision
FROM awa.scheduled_jobs AS job
WHERE job.state IN ('scheduled', 'retryable')
ORDER BY job.run_at, job.id
LIMIT 1
