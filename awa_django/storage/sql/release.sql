-- Put attempts that were claimed and never started back: available, the attempt given back.
-- Params: job_ids, run_leases (parallel arrays, sorted by id: the lock order).
-- Index: jobs_hot_pkey, one probe a run, kept so as in complete.sql.
-- Priority and run_at are as they were, so the job keeps its place in line.
UPDATE awa.jobs_hot AS job
SET state = 'available',
    attempt = greatest(job.attempt - 1, 0),
    heartbeat_at = NULL,
    deadline_at = NULL
FROM unnest(
    (SELECT %(job_ids)s::bigint[]),
    (SELECT %(run_leases)s::bigint[])
) AS attempt (job_id, run_lease)
WHERE job.id = attempt.job_id
  AND job.run_lease = attempt.run_lease
  AND job.state::text = 'running'
RETURNING job.id, job.queue
