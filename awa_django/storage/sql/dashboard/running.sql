-- What runs now, and in which worker.
-- Params: cap (rows at most).
-- Index: jobs_hot_running (as many rows as the workers run).
SELECT job.id, job.kind, job.queue, job.worker, job.attempted_at
FROM awa.jobs_hot AS job
WHERE job.state = 'running'
LIMIT %(cap)s::integer
