-- Finalize running attempts as completed; returns the ids done, a stale lease is absent.
-- Params: job_ids, run_leases, results (parallel arrays, sorted by id: the lock order; a result is
--   JSON text or null).
-- Index: jobs_hot_pkey.
UPDATE awa.jobs_hot AS job
SET state = 'completed',
    finalized_at = now(),
    heartbeat_at = NULL,
    deadline_at = NULL,
    progress = NULL,
    result = attempt.result::jsonb
FROM unnest(%(job_ids)s::bigint[], %(run_leases)s::bigint[], %(results)s::text[])
    AS attempt (job_id, run_lease, result)
WHERE job.id = attempt.job_id
  AND job.run_lease = attempt.run_lease  -- a rescued attempt matches nothing
  AND job.state = 'running'
RETURNING job.id
