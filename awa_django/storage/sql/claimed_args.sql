-- The arguments of a claimed job that were too large to come with its claim; no row: its run is over.
-- Params: job_id, run_lease.
-- Index: jobs_hot_pkey.
SELECT job.args::text
FROM awa.jobs_hot AS job
WHERE job.id = %(job_id)s::bigint
  AND job.run_lease = %(run_lease)s::bigint
  AND job.state = 'running'
