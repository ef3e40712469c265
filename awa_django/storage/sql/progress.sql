-- Store the progress of running attempts; returns the ids that are still theirs.
-- Params: job_ids, run_leases, progress (parallel arrays, sorted by id; progress is JSON text).
-- Index: jobs_hot_pkey, one probe a run, kept so as in complete.sql.
-- progress is in no index, so each update is HOT.
UPDATE awa.jobs_hot AS job
SET progress = attempt.progress::jsonb
FROM unnest(
    (SELECT %(job_ids)s::bigint[]),
    (SELECT %(run_leases)s::bigint[]),
    (SELECT %(progress)s::text[])
) AS attempt (job_id, run_lease, progress)
WHERE job.id = attempt.job_id
  AND job.run_lease = attempt.run_lease
  AND job.state::text = 'running'
RETURNING job.id
