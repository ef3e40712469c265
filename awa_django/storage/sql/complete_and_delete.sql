-- Finalize running attempts of queues that keep no completed jobs: delete them; returns the ids done.
-- Params: job_ids, run_leases (parallel arrays, sorted by id: the lock order).
-- Index: jobs_hot_pkey, one probe a run, kept so as in complete.sql.
DELETE FROM awa.jobs_hot AS job
USING unnest(
    (SELECT %(job_ids)s::bigint[]),
    (SELECT %(run_leases)s::bigint[])
) AS attempt (job_id, run_lease)
WHERE job.id = attempt.job_id
  AND job.run_lease = attempt.run_lease
  AND job.state::text = 'running'
RETURNING job.id
