-- Refresh the heartbeat of running attempts; returns the ids that are still theirs.
-- Params: job_ids, run_leases (parallel arrays, sorted by id: the lock order).
-- Index: jobs_hot_pkey, one probe a run, kept so as in complete.sql.
-- heartbeat_at is in no index, so each update is HOT.
UPDATE awa.jobs_hot AS job
SET heartbeat_at = now()
FROM unnest(
    (SELECT %(job_ids)s::bigint[]),
    (SELECT %(run_leases)s::bigint[])
) AS attempt (job_id, run_lease)
WHERE job.id = attempt.job_id
  AND job.run_lease = attempt.run_lease
  AND job.state::text = 'running'
RETURNING job.id, job.run_lease
