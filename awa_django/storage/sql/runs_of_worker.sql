-- The running rows that were claimed in the name of these workers.
-- Params: workers, min_age (seconds since the claim).
-- Index: jobs_hot_running (only running rows are in it).
-- Nothing is locked: a row that a last heartbeat still holds must not be passed over, and what
-- follows is guarded by the lease.
SELECT
    job.id,
    job.run_lease,
    job.kind,
    job.queue,
    job.attempt,
    job.max_attempts,
    CASE WHEN job.metadata <> '{}' THEN job.metadata::text END,
    job.worker,
    'worker'
FROM awa.jobs_hot AS job
WHERE job.state = 'running'
  AND job.worker = ANY (%(workers)s::text[])
  AND job.attempted_at <= now() - make_interval(secs => %(min_age)s::double precision)
ORDER BY job.id
